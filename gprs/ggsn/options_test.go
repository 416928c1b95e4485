// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
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

// TestOptionsUnasked: what an access point tells unasked it tells new sessions, once, of the families that they have;
// an update, and a secondary context, have what they ask for alone.
func TestOptionsUnasked(t *testing.T) {
	const proxies6, proxy4, mtu = "0001 20010db8000000000000000000000060 0001 20010db8000000000000000000000061", "000c c000023c", "0010 0578"
	told := func(o gtp.Optional[gtp.PCO]) (list string) {
		for c, v := range o.Value.All() {
			list += fmt.Sprintf(" %04x %x", uint16(c), v)
		}
		return strings.TrimSpace(list)
	}
	for _, tt := range []struct {
		name       string
		pcscf, mtu bool
		kind       gtp.PDPType
		ask        []any
		want       string
	}{
		{"nothing", false, false, gtp.PDPTypeIPv4v6, nil, ""},
		{"proxies", true, false, gtp.PDPTypeIPv4v6, nil, proxies6 + " " + proxy4},
		{"MTU", false, true, gtp.PDPTypeIPv4v6, nil, mtu},
		{"of IPv4", true, true, gtp.PDPTypeIPv4, nil, proxy4 + " " + mtu},
		{"of IPv6", true, true, gtp.PDPTypeIPv6, nil, proxies6},
		{"beside what is asked for", true, true, gtp.PDPTypeIPv4, []any{gtp.ContainerDNS4, nil}, "000d c0000235 000d c0000236 " + proxy4 + " " + mtu},
		{"asked for, too", true, true, gtp.PDPTypeIPv4, []any{gtp.ContainerMTU4, nil, gtp.ContainerPCSCF4, nil}, mtu + " " + proxy4},
	} {
		w := newWorld(t, func(s *Settings) { s.APNs[2].TellPCSCF, s.APNs[2].TellMTU = tt.pcscf, tt.mtu })
		m := w.createRequest(imsi1, "dual", tt.kind)
		if tt.ask != nil {
			m.PCO = gtp.Some(pcoOf(tt.ask...))
		}
		c := w.create(m)
		if got := told(c.PCO); got != tt.want {
			t.Errorf("%s: told %q, want %q", tt.name, got, tt.want)
		}
		var r gtp.UpdateResponse
		if w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, w.updateRequest(0x7000), &r); r.PCO.Present {
			t.Errorf("%s: an update is told %q", tt.name, told(r.PCO))
		}
		secondary := w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 1, 1))))
		if !secondary.Cause.Accepted() || secondary.PCO.Present {
			t.Errorf("%s: a secondary context (%v) is told %q", tt.name, secondary.Cause, told(secondary.PCO))
		}
	}
}

// TestOptionsRoom: long lists of servers take no room from what else is told, and are told as far as there is some.
func TestOptionsRoom(t *testing.T) {
	list := func(n int, first string) (list []netip.Addr) {
		for a := netip.MustParseAddr(first); len(list) < n; a = a.Next() {
			list = append(list, a)
		}
		return list
	}
	const dns4, dns6, pcscf6, pcscf4, mtu = gtp.ContainerDNS4, gtp.ContainerDNS6, gtp.ContainerPCSCF6, gtp.ContainerPCSCF4, gtp.ContainerMTU4
	for _, tt := range []struct {
		name               string
		unasked            bool // proxies and MTU
		proxies6, proxies4 int
		ask                []any
		want               map[gtp.Container]int
	}{
		{"more proxies than fit beside the MTU, unasked", true, 14, 0, nil, map[gtp.Container]int{pcscf6: 13, mtu: 1}},
		{"as many as fit beside it", true, 13, 0, nil, map[gtp.Container]int{pcscf6: 13, mtu: 1}},
		{"proxies of both families", true, 12, 12, nil, map[gtp.Container]int{pcscf6: 9, pcscf4: 9, mtu: 1}},
		{"asked for first", false, 12, 12, []any{
			pcscf6, nil, pcscf4, nil, dns6, nil, dns4, nil, mtu, nil,
			gtp.ContainerPAP, ppp(gtp.PAPRequest, 9, 3, 'm', 'i', 'g', 1, 'x'),
		}, map[gtp.Container]int{pcscf6: 7, pcscf4: 7, dns6: 1, dns4: 2, mtu: 1, gtp.ContainerPAP: 1}},
		{"more than are told of a kind", false, 0, 40, []any{pcscf4, nil}, map[gtp.Container]int{pcscf4: maxAddresses}},
	} {
		w := newWorld(t, func(s *Settings) {
			a := &s.APNs[2]
			a.TellPCSCF, a.TellMTU = tt.unasked, tt.unasked
			a.PCSCF6, a.PCSCF4 = list(tt.proxies6, "2001:db8::60"), list(tt.proxies4, "192.0.2.60")
		})
		m := w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4v6)
		if tt.ask != nil {
			m.PCO = gtp.Some(pcoOf(tt.ask...))
		}
		got := map[gtp.Container]int{}
		for c := range w.create(m).PCO.Value.All() {
			got[c]++
		}
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: told %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestOptionsCounted counts what gets no answer, and what nobody knows: once, though the request comes again, and its
// answer may have been written more than once.
func TestOptionsCounted(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.APNs[2].PCSCF6 = slices.Repeat(s.APNs[2].PCSCF6, 7) })
	m := w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4v6)
	m.PCO = gtp.Some(pcoOf(
		gtp.ContainerPolicyRejection, []byte{1}, gtp.ContainerAddressNAS, nil, gtp.ContainerAddressDHCP, nil, gtp.ContainerMSISDN, nil,
		gtp.ContainerMTUNonIP, nil, gtp.ContainerRateControl, nil, gtp.ContainerDataOff, []byte{1}, gtp.ContainerReliableData, nil,
		gtp.ContainerRateControlExtra, nil, gtp.ContainerPDUSession, []byte{1}, gtp.ContainerDNS4, nil,
		gtp.ContainerPCSCF6, nil, gtp.Container(0x0006), nil, gtp.Container(0x4711), nil, gtp.Container(0xff00), []byte{0, 1, 2}))
	counted := func(what string, unanswered, unknown uint64) {
		t.Helper()
		if s := w.e.stats; s.OptionsUnanswered != unanswered || s.OptionsUnknown != unknown {
			t.Errorf("%s: %d unanswered, %d unknown", what, s.OptionsUnanswered, s.OptionsUnknown)
		}
	}
	b := w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 7}, m)
	var c gtp.CreateResponse
	w.answer(w.raw(pathControl, b), &c)
	counted("a request", 10, 3)
	w.raw(pathControl, b)
	counted("the same again", 10, 3)
	second := w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 1, 1)))
	second.PCO = gtp.Some(pcoOf(gtp.ContainerAddressNAS, nil, gtp.Container(0x4711), nil))
	b = w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 8, TEID: c.TEIDControl.Value}, second)
	for range 2 {
		w.raw(pathControl, b)
		counted("a secondary context", 11, 4)
	}
	update := w.updateRequest(0x7000)
	update.PCO = second.PCO
	b = w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 9, TEID: c.TEIDControl.Value}, update)
	for range 2 {
		w.raw(pathControl, b)
		counted("an update", 12, 5)
	}
	if w.e.stats.Repeated != 3 {
		t.Errorf("%d requests came again", w.e.stats.Repeated)
	}
}

// TestOptionsRefused: a terminal that was refused reads it in an answer to its own packet, also
// where the request comes again; one that was refused for something else reads nothing.
func TestOptionsRefused(t *testing.T) {
	pap, chap := papRequest("nemo", "arctangent"), ppp(gtp.CHAPResponse, 9, 1, 1)
	for _, tt := range []struct {
		name    string
		ask     []any
		verdict Verdict
		want    string
	}{
		{"PAP", []any{gtp.ContainerPAP, pap}, Refused, fmt.Sprintf("c023 03%02x000500", pap[1])},
		{"CHAP", []any{gtp.ContainerCHAP, ppp(gtp.CHAPChallenge, 9, 1, 1), gtp.ContainerCHAP, chap}, Refused, "c223 04090004"},
		{"a challenge of the server", []any{gtp.ContainerPAP, pap}, Challenged, fmt.Sprintf("c023 03%02x000500", pap[1])},
		{"and nothing else", []any{gtp.ContainerDNS4, nil, gtp.ContainerCHAP, chap, gtp.ContainerMTU4, nil}, Refused, "c223 04090004"},
		{"no proof", []any{gtp.ContainerDNS4, nil}, Refused, ""},
		{"no answer of the server", []any{gtp.ContainerPAP, pap}, Unknown, ""},
	} {
		w := newAuthorized(t, nil)
		m := w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)
		m.PCO = gtp.Some(pcoOf(tt.ask...))
		b, a := w.asks(m)
		for step, got := range [][]packet.Datagram{w.authorize(a.Ticket, Grant{Verdict: tt.verdict}), nil} {
			if step == 1 {
				got = w.raw(pathControl, b)
			}
			var r gtp.CreateResponse
			w.answer(got, &r)
			list := ""
			for c, v := range r.PCO.Value.All() {
				list += fmt.Sprintf("%04x %x", uint16(c), v)
			}
			if r.Cause.Accepted() || list != tt.want {
				t.Errorf("%s, step %d: %v, told %q, want %q", tt.name, step, r.Cause, list, tt.want)
			}
		}
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

// TestOptionsBounded: whatever is asked, the answer has 253 octets at most; here each question is shorter than its
// answer, a Nak and a Reject.
func TestOptionsBounded(t *testing.T) {
	w := newWorld(t, nil)
	m := w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4v6)
	p := gtp.NewPCO(nil)
	for {
		next, ok := p.Add(gtp.ContainerIPCP, ppp(gtp.ConfigureRequest, 1, 129, 6, 0, 0, 0, 0, 130, 6, 0, 0, 0, 0))
		if !ok {
			break
		}
		p = next
	}
	m.PCO = gtp.Some(p)
	const container = 3 + 4 + 6 // with one option of IPCP
	if got := w.create(m).PCO.Value; len(got) > gtp.MaxPCO || len(got) <= gtp.MaxPCO-container {
		t.Errorf("%d octets", len(got))
	}
}
