// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// TestView reads what a stateful translator decides by.
func TestView(t *testing.T) {
	u := udp(9)
	inner4 := v4{src: publicIP, dst: host4, payload: u}.bytes()
	inner6 := v6{src: server6, dst: client, payload: u}.bytes()
	for _, tt := range []struct {
		name     string
		ip       []byte
		src, dst string
		proto    uint8
		payload  int // octets
		headers  int
		fragment bool
		offset   int
		id       uint32
		isError  bool
	}{
		{"UDP over IPv4", v4{payload: u}.bytes(), host4, node4, 17, 17, 20, false, 0, 0, false},
		{"options are headers", v4{options: []byte{1, 1, 1, 0}, payload: u}.bytes(), host4, node4, 17, 17, 24, false, 0, 0, false},
		{"a later IPv4 fragment", v4{id: 7, offset: 16, payload: u}.bytes(), host4, node4, 17, 17, 20, true, 16, 7, false},
		{"an error over IPv4", v4{proto: 1, payload: icmp(3, 3, 0, inner4)}.bytes(), host4, node4, 1, 45, 20, false, 0, 0, true},
		{"an echo over IPv4", v4{proto: 1, payload: echo(8, 0)}.bytes(), host4, node4, 1, 8, 20, false, 0, 0, false},
		{"UDP over IPv6", v6{payload: u}.bytes(), host6, node6, 17, 17, 40, false, 0, 0, false},
		{"a first IPv6 fragment", v6{frag: true, mf: true, id: 0x12345, payload: udp(8)}.bytes(), host6, node6, 17, 16, 48, true, 0, 0x12345, false},
		{"an atomic fragment is none", v6{frag: true, id: 5, payload: u}.bytes(), host6, node6, 17, 17, 48, false, 0, 5, false},
		{"extension headers", v6{before: []byte{17, 0, 1, 4, 0, 0, 0, 0}, first: 60, payload: u}.bytes(), host6, node6, 17, 17, 48, false, 0, 0, false},
		{"an error over IPv6", v6{proto: 58, payload: icmp(1, 4, 0, inner6)}.bytes(), host6, node6, 58, 65, 40, false, 0, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			view := ViewIPv6
			if tt.ip[0]>>4 == 4 {
				view = ViewIPv4
			}
			v, r := view(tt.ip)
			if r != ReasonNone {
				t.Fatal(r)
			}
			if v.Src != netip.MustParseAddr(tt.src) || v.Dst != netip.MustParseAddr(tt.dst) || v.Proto != tt.proto ||
				len(v.Payload) != tt.payload || v.Headers != tt.headers || v.Fragment() != tt.fragment || v.Offset != tt.offset ||
				v.ID != tt.id || v.IsError() != tt.isError {
				t.Errorf("%+v, fragment %t, error %t", v, v.Fragment(), v.IsError())
			}
			if !tt.isError {
				return
			}
			if q, r := v.Quoted(); r != ReasonNone || q.Proto != 17 || len(q.Payload) != len(u) || q.Src.Is4() != v.Src.Is4() {
				t.Errorf("quoted %+v, %v", q, r)
			}
		})
	}
	for name, ip := range map[string][]byte{"nothing": nil, "half a header": make([]byte, 19), "another version": make([]byte, 60)} {
		if v, r := ViewIPv4(ip); r == ReasonNone || v.Src.IsValid() {
			t.Errorf("%s: %v as IPv4", name, r)
		}
		if v, r := ViewIPv6(ip); r == ReasonNone || v.Src.IsValid() {
			t.Errorf("%s: %v as IPv6", name, r)
		}
	}
}

// TestErrorAbout makes errors that only a stateful translator owes.
func TestErrorAbout(t *testing.T) {
	tr := translator(t, nil)
	var out packet.Batch
	in4, in6 := v4{payload: udp(9)}.bytes(), v6{payload: udp(9)}.bytes()
	want4 := v4{src: own4, dst: host4, tos: 0xc0, id: 0x1234, proto: 1, payload: icmp(3, 3, 0, in4)}.bytes()
	if got := tr.ErrorAbout4(in4, 3, 3, testPath, &out); string(got) != string(want4) {
		t.Errorf("%x, want %x", got, want4)
	}
	want6 := v6{src: own6, dst: host6, hop: 64, proto: 58, payload: icmp(1, 3, 0, in6)}.bytes()
	if got := tr.ErrorAbout6(in6, 1, 3, &out); string(got) != string(want6) {
		t.Errorf("%x, want %x", got, want6)
	}
	// Of a packet that was kept the end may be missing: what is there is quoted.
	if got := tr.ErrorAbout4(in4[:28], 3, 3, testPath, &out); len(got) != 20+8+28 {
		t.Errorf("%d octets about a packet without its end", len(got))
	}
	for name, ip := range map[string][]byte{
		"an error":         v4{proto: 1, payload: icmp(3, 3, 0, in4)}.bytes(),
		"a later fragment": v4{offset: 8, payload: udp(9)}.bytes(),
		"an illegal host":  v4{src: "127.0.0.1", payload: udp(9)}.bytes(),
		"nothing":          nil,
	} {
		if got := tr.ErrorAbout4(ip, 3, 3, testPath, &out); got != nil {
			t.Errorf("an answer to %s: %x", name, got)
		}
	}
	silent := translator(t, func(s *Settings) { s.Own4, s.Own6 = netip.Addr{}, netip.Addr{} })
	if silent.ErrorAbout4(in4, 3, 3, testPath, &out) != nil || silent.ErrorAbout6(in6, 1, 3, &out) != nil {
		t.Error("an error from nobody")
	}
	if got := tr.ErrorAbout6(v6{proto: 58, payload: icmp(1, 4, 0, in6)}.bytes(), 1, 3, &out); got != nil {
		t.Errorf("an answer to an error: %x", got)
	}
	if len(out.IP) != 0 {
		t.Error("errors are the caller's to send")
	}
}

// TestReassembled: what came in fragments may be cut again, whatever its size.
func TestReassembled(t *testing.T) {
	tr := translator(t, nil)
	in := v6{frag: true, id: 0x10007, payload: udp(1992)}.bytes()
	path := testPath
	path.MTU4 = 1020
	wantError(t, tr, path, in, ReasonTooBig, v6{src: own6, dst: host6, hop: 64, proto: 58, payload: icmp(2, 0, 1280, in[:1232])}.bytes())
	path.Reassembled = true
	if _, got := run(tr, in, path); len(got) != 2 || len(got[0]) != 1020 || len(got[1]) != 1020 {
		t.Errorf("%d packets", len(got))
	}
}

func TestForwarded(t *testing.T) {
	for addr, want := range map[string]bool{
		"192.0.2.1": true, "0.1.2.3": false, "127.0.0.1": false, "224.0.0.1": false, "255.255.255.255": false,
		"2001:db8::1": true, "::": false, "::1": false, "fe80::1": false, "ff02::1": false, "::ffff:192.0.2.1": false,
	} {
		if got := Forwarded(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %t", addr, got)
		}
	}
	for addr, want := range map[string]bool{"10.0.0.1": true, "192.0.2.1": true, "8.8.8.8": false} {
		if got := NonGlobal(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %t", addr, got)
		}
	}
	known, own := prefix(t, "64:ff9b::/96"), prefix(t, testNSP)
	if !known.WellKnown() || own.WellKnown() {
		t.Error("the well-known prefix is not known")
	}
}
