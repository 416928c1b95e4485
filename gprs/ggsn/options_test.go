// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"fmt"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// pcoOf makes options of containers and values in turn.
func pcoOf(parts ...any) gtp.PCO {
	p := gtp.NewPCO(nil)
	for i := 0; i < len(parts); i += 2 {
		value, _ := parts[i+1].([]byte)
		p, _ = p.Add(parts[i].(gtp.Container), value)
	}
	return p
}

func ppp(code gtp.PPPCode, id uint8, data ...byte) []byte {
	return gtp.PPP{Code: code, Identifier: id, Data: data}.Append(nil)
}

func TestOptions(t *testing.T) {
	none4 := []byte{129, 6, 0, 0, 0, 0, 131, 6, 0, 0, 0, 0}
	both4 := []byte{129, 6, 192, 0, 2, 53, 131, 6, 192, 0, 2, 54}
	nbns := []byte{130, 6, 0, 0, 0, 0}
	tests := []struct {
		name string
		kind gtp.PDPType
		ask  []any
		want []string
	}{
		{"nothing known", gtp.PDPTypeIPv4v6, []any{gtp.Container(0x4711), nil, gtp.ContainerPDUSession, []byte{1}}, nil},
		{"what tells something, or needs no answer", gtp.PDPTypeIPv4v6, []any{
			gtp.ContainerAddressNAS, nil, gtp.ContainerAddressDHCP, nil, gtp.ContainerPolicyRejection, []byte{1}, gtp.ContainerMSISDN, nil, gtp.ContainerMTUNonIP, nil,
			gtp.ContainerRateControl, nil, gtp.ContainerRateControlExtra, nil, gtp.ContainerDataOff, []byte{1}, gtp.ContainerReliableData, nil}, nil},
		{"the address by NAS, and name servers", gtp.PDPTypeIPv4, []any{gtp.ContainerAddressNAS, nil, gtp.ContainerDNS4, nil}, []string{"000d c0000235", "000d c0000236"}},
		{"DNS", gtp.PDPTypeIPv4v6, []any{gtp.ContainerDNS4, nil, gtp.ContainerDNS6, nil}, []string{
			"000d c0000235", "000d c0000236", "0003 20010db8000000000000000000000053"}},
		{"asked twice", gtp.PDPTypeIPv4, []any{gtp.ContainerDNS4, nil, gtp.ContainerDNS4, nil}, []string{"000d c0000235", "000d c0000236"}},
		{"of a family that the context has not", gtp.PDPTypeIPv4, []any{gtp.ContainerDNS6, nil, gtp.ContainerPCSCF6, nil}, nil},
		{"the other family", gtp.PDPTypeIPv6, []any{gtp.ContainerDNS4, nil, gtp.ContainerMTU4, nil, gtp.ContainerPCSCF4, nil}, nil},
		{"P-CSCF", gtp.PDPTypeIPv4v6, []any{gtp.ContainerPCSCF6, nil, gtp.ContainerPCSCF4, nil}, []string{
			"0001 20010db8000000000000000000000060", "0001 20010db8000000000000000000000061", "000c c000023c"}},
		{"MTU, signalling flag, bearer control", gtp.PDPTypeIPv4, []any{gtp.ContainerMTU4, nil, gtp.ContainerIMSignalling, nil, gtp.ContainerBearerControl, nil}, []string{
			"0010 0578", "0002 ", "0005 01"}},
		{"IPCP without name servers", gtp.PDPTypeIPv4, []any{gtp.ContainerIPCP, ppp(gtp.ConfigureRequest, 3, none4...)}, []string{"8021 03030010" + fmt.Sprintf("%x", both4)}},
		{"IPCP with the right ones", gtp.PDPTypeIPv4, []any{gtp.ContainerIPCP, ppp(gtp.ConfigureRequest, 4, both4...)}, []string{"8021 02040010" + fmt.Sprintf("%x", both4)}},
		{"IPCP of NBNS", gtp.PDPTypeIPv4, []any{gtp.ContainerIPCP, ppp(gtp.ConfigureRequest, 5, nbns...)}, []string{"8021 0405000a820600000000"}},
		{"IPCP of both", gtp.PDPTypeIPv4, []any{gtp.ContainerIPCP, ppp(gtp.ConfigureRequest, 6, slices.Concat(none4, nbns)...)}, []string{
			"8021 03060010" + fmt.Sprintf("%x", both4), "8021 0406000a820600000000"}},
		{"IPCP that is no request", gtp.PDPTypeIPv4, []any{gtp.ContainerIPCP, ppp(gtp.ConfigureAck, 5)}, nil},
		{"IPCP cut short", gtp.PDPTypeIPv4, []any{gtp.ContainerIPCP, []byte{1, 1, 0}}, nil},
		{"PAP", gtp.PDPTypeIPv4, []any{gtp.ContainerPAP, ppp(gtp.PAPRequest, 9, 3, 'm', 'i', 'g', 1, 'x')}, []string{"c023 0209000500"}},
		{"CHAP", gtp.PDPTypeIPv4, []any{gtp.ContainerCHAP, ppp(gtp.CHAPChallenge, 9, 1, 1), gtp.ContainerCHAP, ppp(gtp.CHAPResponse, 9, 1, 1)}, []string{"c223 03090004"}},
		{"PAP of a password beyond its end", gtp.PDPTypeIPv4, []any{gtp.ContainerPAP, ppp(gtp.PAPRequest, 9, 3, 'm', 'i', 'g', 2, 'x')}, nil},
		{"PAP that is no request", gtp.PDPTypeIPv4, []any{gtp.ContainerPAP, ppp(gtp.PAPAck, 9, 0)}, nil},
		{"PAP cut short", gtp.PDPTypeIPv4, []any{gtp.ContainerPAP, []byte{1, 9}}, nil},
		{"CHAP of a challenge alone", gtp.PDPTypeIPv4, []any{gtp.ContainerCHAP, ppp(gtp.CHAPChallenge, 9, 1, 1)}, nil},
		{"CHAP of a response beyond its end", gtp.PDPTypeIPv4, []any{gtp.ContainerCHAP, ppp(gtp.CHAPResponse, 9, 16, 1)}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			m := w.createRequest(imsi1, "dual", tt.kind)
			m.PCO = gtp.Some(pcoOf(tt.ask...))
			got := w.create(m).PCO
			if got.Present != (len(tt.want) > 0) {
				t.Fatalf("options %x", got.Value)
			}
			i := 0
			for c, v := range got.Value.All() {
				if i >= len(tt.want) || fmt.Sprintf("%04x %x", uint16(c), v) != tt.want[i] {
					t.Fatalf("container %d is %04x %x, want %q", i, uint16(c), v, tt.want)
				}
				i++
			}
			if i != len(tt.want) {
				t.Errorf("%d containers, want %q", i, tt.want)
			}
		})
	}
}

// TestOptionsRepeated: a request that comes again has the same answer, octet by octet.
func TestOptionsRepeated(t *testing.T) {
	w := newWorld(t, nil)
	m := w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4v6)
	m.PCO = gtp.Some(pcoOf(gtp.ContainerIPCP, ppp(gtp.ConfigureRequest, 3, 129, 6, 0, 0, 0, 0), gtp.ContainerDNS6, nil, gtp.ContainerMTU4, nil))
	request := w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 7}, m)
	answer := func() []byte {
		t.Helper()
		w.raw(pathControl, request)
		got := ofType(w.out.UDP, gtp.TypeCreateResponse)
		if len(got) != 1 {
			t.Fatalf("%d answers", len(got))
		}
		return slices.Clone(got[0].Payload)
	}
	if first, again := answer(), answer(); !slices.Equal(first, again) {
		t.Errorf("answered %x, then %x", first, again)
	}
	if n := w.e.contexts.used(); n != 1 {
		t.Errorf("%d contexts", n)
	}
}

// TestOptionsBounded: whatever is asked, the answer has 253 octets at most.
func TestOptionsBounded(t *testing.T) {
	w := newWorld(t, nil)
	m := w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4v6)
	p := gtp.NewPCO(nil)
	for {
		next, ok := p.Add(gtp.ContainerIPCP, ppp(gtp.ConfigureRequest, 1, 130, 6, 0, 0, 0, 0))
		if !ok {
			break
		}
		p = next
	}
	m.PCO = gtp.Some(p)
	if got := w.create(m).PCO.Value; len(got) > gtp.MaxPCO {
		t.Errorf("%d octets", len(got))
	}
}
