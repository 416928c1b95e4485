// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestPCO(t *testing.T) {
	var got []Container
	for c, v := range samplePCO.All() {
		got = append(got, c)
		if c != ContainerIPCP {
			continue
		}
		p, ok := ParsePPP(v)
		if !ok || p.Code != ConfigureRequest || p.Identifier != 1 {
			t.Fatalf("%+v, %v", p, ok)
		}
		for option, address := range p.Options() {
			if option != IPCPPrimaryDNS || !bytes.Equal(address, []byte{0, 0, 0, 0}) {
				t.Errorf("option %d: %x", option, address)
			}
		}
	}
	if !slices.Equal(got, []Container{ContainerIPCP, ContainerDNS6}) {
		t.Errorf("containers %x", got)
	}
	nak := PPP{Code: ConfigureNak, Identifier: 1, Data: AppendIPCPOption(nil, IPCPPrimaryDNS, netip.MustParseAddr("192.0.2.53"))}
	answer, ok := NewPCO(make([]byte, 10)).Add(ContainerIPCP, nak.Append(nil))
	if !ok || !bytes.Equal(answer, testutil.Unhex(t, "80 8021 0a 03 01 000a 81 06 c0000235")) {
		t.Errorf("answer %x", answer)
	}
	full, ok := answer.Add(ContainerMSISDN, make([]byte, MaxPCO-len(answer)-3))
	if !ok || len(full) != MaxPCO {
		t.Fatalf("%d octets, %v", len(full), ok)
	}
	if again, ok := full.Add(ContainerDNS4, nil); ok || len(again) != MaxPCO {
		t.Errorf("%d octets are not too many", len(again))
	}
	for _, bad := range []string{"", "00", "80 00", "80 0003", "80 0003 01", "80 0003 00 8021 05 00"} {
		if p, ok := ParsePCO(testutil.Unhex(t, bad)); ok {
			t.Errorf("%s is read as %x", bad, []byte(p))
		}
	}
	for range PCO(nil).All() {
		t.Error("no options have a container")
	}
}

// TestPPP reads credentials of PAP (RFC 1334) and CHAP (RFC 1994).
func TestPPP(t *testing.T) {
	pap, ok := ParsePPP(testutil.Unhex(t, "01 07 0011 03 6d6967 08 68656d6d656c6967 ffff"))
	name, password, valid := pap.PAPCredentials()
	if !ok || !valid || string(name) != "mig" || string(password) != "hemmelig" {
		t.Errorf("%q, %q, %v", name, password, valid)
	}
	chap, ok := ParsePPP(testutil.Unhex(t, "02 07 000b 04 01020304 6d69"))
	value, who, valid := chap.CHAPValue()
	if !ok || !valid || !bytes.Equal(value, []byte{1, 2, 3, 4}) || string(who) != "mi" {
		t.Errorf("%x, %q, %v", value, who, valid)
	}
	for _, bad := range []string{"", "01 07 00", "01 07 0003", "01 07 0005"} {
		if p, ok := ParsePPP(testutil.Unhex(t, bad)); ok {
			t.Errorf("%s is read as %+v", bad, p)
		}
	}
	for _, bad := range []string{"02 07 0006 00 00", "01 07 0004", "01 07 0005 01", "01 07 0007 01 61 02"} {
		p, _ := ParsePPP(testutil.Unhex(t, bad))
		if name, password, ok := p.PAPCredentials(); ok {
			t.Errorf("%s has name %q and password %q", bad, name, password)
		}
	}
	for _, bad := range []string{"03 07 0005 00", "01 07 0004", "01 07 0006 02 01"} {
		p, _ := ParsePPP(testutil.Unhex(t, bad))
		if value, _, ok := p.CHAPValue(); ok {
			t.Errorf("%s has the value %x", bad, value)
		}
	}
	// Options end at the first that makes no sense; none loops.
	for data, want := range map[string]int{"": 0, "81": 0, "81 00": 0, "81 01": 0, "81 02": 1, "81 07 00": 0, "81 03 00 82": 1} {
		n := 0
		for range (PPP{Data: testutil.Unhex(t, data)}).Options() {
			n++
		}
		if n != want {
			t.Errorf("%q has %d options, want %d", data, n, want)
		}
	}
}

// TestHidePassword leaves of a request all but passwords, also of one that is cut short.
func TestHidePassword(t *testing.T) {
	const user, word = "mig", "hemmelig"
	data := append([]byte{byte(len(user))}, user...)
	data = append(append(data, byte(len(word))), word...)
	p, _ := NewPCO(nil).Add(ContainerDNS4, nil)
	p, _ = p.Add(ContainerPAP, PPP{Code: PAPRequest, Identifier: 1, Data: data}.Append(nil))
	p, _ = p.Add(ContainerDNS6, nil)
	for n := range len(p) + 1 {
		whole, got := []byte(p[:n]), bytes.Clone(p[:n])
		HidePassword(got)
		for i := range whole {
			secret := i >= len(p)-3-len(word) && i < len(p)-3
			if secret && got[i] != 0 || !secret && got[i] != whole[i] {
				t.Fatalf("%d octets: %x of %x", n, got, whole)
			}
		}
	}
	ack, _ := NewPCO(nil).Add(ContainerPAP, PPP{Code: PAPAck, Identifier: 1, Data: []byte("\x07Welcome")}.Append(nil))
	got := bytes.Clone(ack)
	if HidePassword(got); !bytes.Equal(got, ack) {
		t.Errorf("%x of %x", got, ack)
	}
}
