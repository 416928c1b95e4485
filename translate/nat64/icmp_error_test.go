// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/translate"
)

// TestErrorsFromIPv4 translates errors of a router about what a client sent (RFC 6146
// sections 3.4, 3.6).
func TestErrorsFromIPv4(t *testing.T) {
	for _, tt := range []struct {
		name       string
		proto4     byte
		sent, back []byte // what the client sends, less its ports; by its original port
		at         func(port uint16) []byte
		as         []byte
		proto6     byte
	}{
		{"about UDP", udpProto, udpMsg(1500, 53, 9), nil, func(p uint16) []byte { return udpMsg(p, 53, 9) }, udpMsg(1500, 53, 9), udpProto},
		{"about TCP", tcpProto, tcpMsg(1500, 80, flagSYN, 0), nil, func(p uint16) []byte { return tcpMsg(p, 80, flagSYN, 0) }, tcpMsg(1500, 80, flagSYN, 0), tcpProto},
		{"about a query", icmpProto, echoMsg(128, 77, 9), nil, func(p uint16) []byte { return echoMsg(8, p, 9) }, echoMsg(128, 77, 9), icmp6Proto},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := engine(t, nil)
			port := srcPort(b.one(b.in(pkt{src: clientA, dst: server6, proto: tt.proto6, payload: tt.sent})))
			// With a session; and by the binding alone, as segments pass that let one end early.
			for to4, to6 := range map[string]string{server4: server6, other4: other6} {
				quoted := pkt{src: poolIP, dst: to4, hop: 1, proto: tt.proto4, id: 5, payload: tt.at(port)}
				b.wants(b.in(pkt{src: router4, dst: poolIP, proto: icmpProto, payload: icmpMsg(11, 0, 0, quoted.bytes())}),
					pkt{src: router6, dst: clientA, hop: 63, proto: icmp6Proto, payload: icmpMsg(3, 0, 0,
						pkt{src: clientA, dst: to6, hop: 1, proto: tt.proto6, payload: tt.as}.bytes())})
			}
		})
	}
}

// TestErrorsFromIPv6 translates errors about what a client received.
func TestErrorsFromIPv6(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	got := b.one(b.in(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, port, 9)}))
	for name, from := range map[string]string{"the host": clientA, "a router": routerV6} {
		out := b.one(b.in(pkt{src: from, dst: server6, proto: icmp6Proto, payload: icmpMsg(1, 4, 0, got)}))
		id := uint32(out[32])<<8 | uint32(out[33]) // of the quoted packet
		inner := pkt{src: server4, dst: poolIP, hop: 63, proto: udpProto, id: id, payload: udpMsg(53, port, 9)}
		t.Log("from", name)
		b.wants([][]byte{out}, pkt{src: poolIP, dst: server4, hop: 63, proto: icmpProto, payload: icmpMsg(3, 3, 0, inner.bytes())})
	}
	id := srcPort(b.one(b.in(pkt{src: clientA, dst: server6, proto: icmp6Proto, payload: echoMsg(128, 7, 3)})))
	got = b.one(b.in(pkt{src: server4, dst: poolIP, proto: icmpProto, payload: echoMsg(0, id, 3)}))
	out := b.one(b.in(pkt{src: clientA, dst: server6, proto: icmp6Proto, payload: icmpMsg(3, 1, 0, got)}))
	if out[20] != 11 || out[21] != 1 || uint16(out[52])<<8|uint16(out[53]) != id {
		t.Errorf("came out %x, want code 1 about identifier %d", out, id)
	}
}

// TestErrorsOfRouters: with addresses for IPv6 routers each has its own, and what the host
// says itself still comes from the host's (RFC 6791 section 5).
func TestErrorsOfRouters(t *testing.T) {
	for _, object := range []bool{false, true} {
		b := engine(t, func(s *Settings) {
			s.Translate.Pool4 = []netip.Prefix{netip.MustParsePrefix("203.0.113.64/30")}
			s.Translate.InterfaceObject = object
		})
		port := b.openUDP(clientA, 1500, server6)
		got := b.one(b.in(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, port, 9)}))
		seen := map[string]string{}
		for range 2 {
			for _, from := range []string{clientA, routerV6, "2001:db8:1::77", "2001:db8:ffff::2", "2001:db8:1::1"} {
				out := b.one(b.in(pkt{src: from, dst: server6, proto: icmp6Proto, payload: icmpMsg(3, 0, 0, got)}))
				src := srcAddr(out)
				if was, ok := seen[from]; ok && was != src {
					t.Errorf("%s was %s and is %s", from, was, src)
				}
				seen[from] = src
				router := from != clientA
				if extended := out[25] != 0; extended != (object && router) {
					t.Errorf("the error of %s has an extension: %t", from, extended)
				}
				if object {
					continue
				}
				inner := pkt{src: server4, dst: poolIP, hop: 63, proto: udpProto, id: uint32(out[32])<<8 | uint32(out[33]), payload: udpMsg(53, port, 9)}
				b.wants([][]byte{out}, pkt{src: src, dst: server4, hop: 63, proto: icmpProto, payload: icmpMsg(11, 0, 0, inner.bytes())})
			}
		}
		var all []string
		for from, src := range seen {
			if from == clientA && src != poolIP {
				t.Errorf("the host itself is %s", src)
			}
			all = append(all, src)
		}
		slices.Sort(all)
		want := []string{"203.0.113.64", "203.0.113.65", "203.0.113.66", "203.0.113.67", poolIP}
		slices.Sort(want)
		if !slices.Equal(all, want) {
			t.Errorf("the host and four routers are %v", seen)
		}
	}
}

func TestErrorsRefused(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	inner := pkt{src: poolIP, dst: server4, proto: udpProto, payload: udpMsg(port, 53, 9)}
	from4 := func(body ...[]byte) pkt {
		return pkt{src: router4, dst: poolIP, proto: icmpProto, payload: icmpMsg(3, 1, 0, body...)}
	}
	nested := pkt{src: poolIP, dst: server4, proto: icmpProto, payload: icmpMsg(3, 1, 0, inner.bytes())}
	elsewhere := inner
	elsewhere.src = other4
	unbound := pkt{src: poolIP, dst: server4, proto: udpProto, payload: udpMsg(port^1, 53, 9)}
	later := pkt{src: poolIP, dst: server4, proto: udpProto, offset: 8, payload: udpMsg(port, 53, 9)}
	redirect := from4(inner.bytes())
	redirect.payload[0] = 5
	bad := from4(inner.bytes()).bytes()
	bad[22] ^= 1
	for _, tt := range []struct {
		name string
		ip   []byte
		why  Reason
	}{
		{"an error about an error (3.4)", from4(nested.bytes()).bytes(), Reason(translate.ReasonInnerError)},
		{"nothing quoted", from4().bytes(), Reason(translate.ReasonInner)},
		{"quoted without ports", from4(inner.bytes()[:22]).bytes(), Reason(translate.ReasonInner)},
		{"a later fragment quoted", from4(later.bytes()).bytes(), Reason(translate.ReasonInner)},
		{"about a packet of somebody else", from4(elsewhere.bytes()).bytes(), Reason(translate.ReasonInner)},
		{"nothing is bound there (RFC 5508 REQ-4)", from4(unbound.bytes()).bytes(), NoBinding},
		{"an error without a counterpart", redirect.bytes(), Reason(translate.ReasonICMPType)},
		{"a wrong checksum (RFC 5508 REQ-3)", bad, Reason(translate.ReasonICMPChecksum)},
		{"from IPv6, about an unknown packet", pkt{src: clientA, dst: server6, proto: icmp6Proto, payload: icmpMsg(1, 4, 0,
			pkt{src: server6, dst: clientA, proto: udpProto, payload: udpMsg(53, 1501, 3)}.bytes())}.bytes(), NoBinding},
		{"from IPv6, sent to another than it is about", pkt{src: clientA, dst: other6, proto: icmp6Proto, payload: icmpMsg(1, 4, 0,
			pkt{src: server6, dst: clientA, proto: udpProto, payload: udpMsg(53, 1500, 3)}.bytes())}.bytes(), Reason(translate.ReasonInner)},
	} {
		t.Run(tt.name, func(t *testing.T) { b.refusedRaw(tt.ip, tt.why) })
	}
}

// TestErrorsChangeNothing: they neither refresh a session nor end it (RFC 5508 REQ-6, RFC
// 4787 REQ-12, RFC 5382 REQ-10).
func TestErrorsChangeNothing(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	inner := pkt{src: poolIP, dst: server4, proto: udpProto, payload: udpMsg(port, 53, 9)}
	unreachable := pkt{src: router4, dst: poolIP, proto: icmpProto, payload: icmpMsg(3, 1, 0, inner.bytes())}
	b.pass(3 * time.Minute)
	b.one(b.in(unreachable))
	if b.Engine.Sizes().Sessions != 1 {
		t.Fatal("an error ended the session")
	}
	b.pass(2*time.Minute + 10*time.Second)
	if b.Engine.Sizes().Sessions != 0 {
		t.Error("an error prolonged the session")
	}
}

// TestSourceOfErrors: the router's own address by default, which traceroute shows; by the
// letter of RFC 6146 section 3.6.1 that of the host.
func TestSourceOfErrors(t *testing.T) {
	wellKnown := func(s *Settings) { s.Translate.Prefixes = []translate.Prefix{prefix6(t, "64:ff9b::/96")} }
	for _, tt := range []struct {
		name, server4, server6, router, want string
		change                               func(*Settings)
	}{
		{"the router", server4, server6, router4, router6, nil},
		{"the host, by the letter", server4, server6, router4, server6, func(s *Settings) { s.RouterAsInner = true }},
		{"a private router and the well-known prefix", "8.8.8.8", "64:ff9b::8.8.8.8", "10.0.0.1", "64:ff9b::8.8.8.8", wellKnown},
		{"a global router and the well-known prefix", "8.8.8.8", "64:ff9b::8.8.8.8", "9.9.9.9", "64:ff9b::9.9.9.9", wellKnown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := engine(t, tt.change)
			port := b.openUDP(clientA, 1500, tt.server6)
			inner := pkt{src: poolIP, dst: tt.server4, proto: udpProto, payload: udpMsg(port, 53, 4)}
			got := b.one(b.in(pkt{src: tt.router, dst: poolIP, proto: icmpProto, payload: icmpMsg(11, 0, 0, inner.bytes())}))
			if src := netip.AddrFrom16([16]byte(got[8:24])); src != netip.MustParseAddr(tt.want) {
				t.Errorf("source %s, want %s", src, tt.want)
			}
		})
	}
}
