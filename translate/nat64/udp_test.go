// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/hex"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// TestGolden compares both directions with octets that were worked out apart from this
// code and its tests.
func TestGolden(t *testing.T) {
	b := engine(t, nil)
	if err := b.AddStatic(static(t, "udp", "[2001:db8:1::c]:1500", poolIP+":4000")); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, in, want string }{
		{"UDP out", "60000000000d114020010db800010000000000000000000c20010db80064000000000000c633640205dc0035000d2fd868656c6c6f",
			"45000021000000003f111595cb007101c63364020fa00035000d45f568656c6c6f"},
		{"UDP in", "45000022000700003211228dc6336402cb00710100350fa0000e3bc8776f726c6421",
			"60000000000e113120010db80064000000000000c633640220010db800010000000000000000000c003505dc000e25ab776f726c6421"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in, err := hex.DecodeString(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			got := b.one(b.raw(in))
			if got[0]>>4 == 4 { // the identification is random, and with it the checksum
				sum := sumWords(got[:20])
				if sum != 0xffff {
					t.Errorf("header checksum %04x", sum)
				}
				copy(got[4:6], []byte{0, 0})
				copy(got[10:12], []byte{0x15, 0x95})
			}
			if s := hex.EncodeToString(got); s != tt.want {
				t.Errorf("\n%s, want\n%s", s, tt.want)
			}
		})
	}
}

func TestUDPBothWays(t *testing.T) {
	b := engine(t, nil)
	out := b.one(b.in(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 10)}))
	port := srcPort(out)
	b.wants([][]byte{out}, pkt{src: poolIP, dst: server4, proto: udpProto, hop: 63, payload: udpMsg(port, 53, 10)})
	b.wants(b.in(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, port, 7)}),
		pkt{src: server6, dst: clientA, proto: udpProto, hop: 63, payload: udpMsg(53, 1500, 7)})
	if n := b.Engine.Sizes(); n.Sessions != 1 || n.Bindings != 1 || n.Subscribers != 1 {
		t.Errorf("sizes %+v", n)
	}
}

// TestEndpointIndependentMapping: one T,t for all that one X',x sends to (RFC 6146 section
// 5.2), and one T for all of a client, in all BIBs.
func TestEndpointIndependentMapping(t *testing.T) {
	b := engine(t, nil)
	first := b.openUDP(clientA, 1500, server6)
	if again := b.openUDP(clientA, 1500, other6); again != first {
		t.Errorf("port %d towards one host, %d towards another", first, again)
	}
	if other := b.openUDP(clientA, 1501, server6); other == first {
		t.Error("two ports of a client have one port of the poolIP")
	}
	tcp := b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)}))
	echo := b.one(b.in(pkt{src: clientA, dst: server6, proto: icmp6Proto, payload: echoMsg(128, 7, 3)}))
	if srcAddr(tcp) != poolIP || srcAddr(echo) != poolIP {
		t.Errorf("addresses %s and %s", srcAddr(tcp), srcAddr(echo))
	}
}

func TestFilteringOfUDPAndICMP(t *testing.T) {
	for _, tt := range []struct {
		name      string
		filtering Filtering
		from      string
		port      uint16
		passes    bool
	}{
		{"endpoint-independent lets another host in", EndpointIndependent, other4, 99, true},
		{"endpoint-independent lets another port in", EndpointIndependent, server4, 99, true},
		{"address-dependent lets another port of the host in", AddressDependent, server4, 99, true},
		{"address-dependent keeps another host out", AddressDependent, other4, 53, false},
	} {
		t.Run("UDP "+tt.name, func(t *testing.T) {
			b := engine(t, func(s *Settings) { s.FilterUDP = tt.filtering })
			port := b.openUDP(clientA, 1500, server6)
			p := pkt{src: tt.from, dst: poolIP, proto: udpProto, payload: udpMsg(tt.port, port, 4)}
			if !tt.passes {
				b.refused(p, Filtered)
				return
			}
			b.wants(b.in(p), pkt{src: "2001:db8:64::" + tt.from, dst: clientA, proto: udpProto, hop: 63, payload: udpMsg(tt.port, 1500, 4)})
		})
		t.Run("ICMP "+tt.name, func(t *testing.T) {
			b := engine(t, func(s *Settings) { s.FilterICMP = tt.filtering })
			id := srcPort(b.one(b.in(pkt{src: clientA, dst: server6, proto: icmp6Proto, payload: echoMsg(128, 7, 3)})))
			p := pkt{src: tt.from, dst: poolIP, proto: icmpProto, payload: echoMsg(8, id, 3)}
			if !tt.passes {
				b.refused(p, Filtered)
				return
			}
			b.wants(b.in(p), pkt{src: "2001:db8:64::" + tt.from, dst: clientA, proto: icmp6Proto, hop: 63, payload: echoMsg(128, 7, 3)})
		})
	}
}

func TestUnboundIsDropped(t *testing.T) {
	b := engine(t, nil)
	unanswered := func(p pkt, why Reason, want ...pkt) {
		t.Helper()
		before := b.Stats().Dropped[why]
		got := b.in(p)
		b.wants(got, want...)
		if b.Stats().Dropped[why] != before+1 {
			t.Errorf("not counted as %s: %v", why, b.drops())
		}
	}
	udp := pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, 5000, 4)}
	unanswered(udp, NoBinding, answer4(server4, 3, 3, udp.bytes()))
	echo := pkt{src: server4, dst: poolIP, proto: icmpProto, payload: echoMsg(8, 9, 4)}
	unanswered(echo, NoBinding, answer4(server4, 3, 1, echo.bytes()))
	unanswered(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(80, 5000, flagACK, 0)}, NoBinding)
}

// answer4 and answer6 are errors of the translator's own.
func answer4(to string, typ, code byte, about []byte) pkt {
	return pkt{src: ownIPv4, dst: to, tos: 0xc0, proto: icmpProto, payload: icmpMsg(typ, code, 0, about)}
}

func answer6(to string, typ, code byte, about []byte) pkt {
	return pkt{src: ownIPv6, dst: to, proto: icmp6Proto, payload: icmpMsg(typ, code, 0, about)}
}

func TestLifetimesOfUDPAndICMP(t *testing.T) {
	udpOut := pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 4)}
	echoOut := pkt{src: clientA, dst: server6, proto: icmp6Proto, payload: echoMsg(128, 7, 3)}
	for _, tt := range []struct {
		name     string
		out      pkt
		lifetime time.Duration
		outbound bool
		answer   func(port uint16) pkt
	}{
		{"UDP, 5 minutes", udpOut, 5 * time.Minute, false, func(p uint16) pkt {
			return pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, p, 4)}
		}},
		{"UDP, refreshed by the IPv6 side alone", udpOut, 5 * time.Minute, true, func(p uint16) pkt {
			return pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, p, 4)}
		}},
		{"ICMP query, 60 s", echoOut, time.Minute, false, func(p uint16) pkt {
			return pkt{src: server4, dst: poolIP, proto: icmpProto, payload: echoMsg(0, p, 3)}
		}},
		{"ICMP query, refreshed by the IPv6 side alone", echoOut, time.Minute, true, func(p uint16) pkt {
			return pkt{src: server4, dst: poolIP, proto: icmpProto, payload: echoMsg(0, p, 3)}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := engine(t, func(s *Settings) { s.OutboundRefreshOnly = tt.outbound })
			port := srcPort(b.one(b.in(tt.out)))
			b.pass(tt.lifetime - 2*time.Second)
			b.one(b.in(tt.answer(port)))
			b.pass(10 * time.Second)
			if gone := b.Engine.Sizes().Sessions == 0; gone != tt.outbound {
				t.Fatalf("gone %t after its first lifetime, though an answer came", gone)
			}
			b.in(tt.out)
			b.pass(tt.lifetime - 2*time.Second)
			if b.Engine.Sizes().Sessions != 1 {
				t.Fatal("ended before its lifetime")
			}
			b.pass(12 * time.Second)
			if n := b.Engine.Sizes(); n.Sessions != 0 || n.Bindings != 0 {
				t.Fatalf("sizes %+v 10 s after the lifetime", n)
			}
		})
	}
}

// TestFilteredProlongsNothing: what the filter drops keeps no binding alive (RFC 7857
// section 7), though its own peer's packets do.
func TestFilteredProlongsNothing(t *testing.T) {
	b := engine(t, func(s *Settings) { s.FilterUDP = AddressDependent })
	port := b.openUDP(clientA, 1500, server6)
	b.pass(5*time.Minute - 2*time.Second)
	b.refused(pkt{src: other4, dst: poolIP, proto: udpProto, payload: udpMsg(53, port, 4)}, Filtered)
	b.pass(12 * time.Second)
	if n := b.Engine.Sizes(); n.Sessions != 0 || n.Bindings != 0 {
		t.Errorf("sizes %+v after the lifetime", n)
	}
}

// TestExpiredMeetsPacket: a session whose lifetime is over is as if it were not there,
// whether the sweep has met it or not.
func TestExpiredMeetsPacket(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	b.now = b.now.Add(5*time.Minute + time.Second) // without Tick
	in := pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, port, 4)}
	b.wants(b.in(in), answer4(server4, 3, 3, in.bytes()))
	if n := b.Engine.Sizes(); n.Sessions != 0 || n.Bindings != 0 {
		t.Errorf("sizes %+v", n)
	}
	b.openUDP(clientA, 1500, server6)
	if got := b.Stats().SessionsMade; got != 2 {
		t.Errorf("%d sessions made", got)
	}
}

func TestUDPZeroChecksumIsComputed(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	b.wants(b.in(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, port, 7), keepSum: true}),
		pkt{src: server6, dst: clientA, proto: udpProto, hop: 63, payload: udpMsg(53, 1500, 7)})
}

// TestFloodFromIPv4 floods a bound port by forged sources: what clients open finds room all
// the same (RFC 6888 REQ-4).
func TestFloodFromIPv4(t *testing.T) {
	flood := func(b *bench, port uint16) (passed int) {
		for i := range 2 * testSizes.Sessions {
			p := pkt{src: netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}).String(), dst: poolIP, proto: udpProto, payload: udpMsg(99, port, 4)}
			if out := b.in(p); len(out) == 1 && out[0][0]>>4 == 6 {
				passed++
			}
		}
		return passed
	}
	t.Run("a client's limit", func(t *testing.T) {
		b := engine(t, func(s *Settings) { s.Limits.ClientSessions = 100 })
		port := b.openUDP(clientA, 1500, server6)
		if n := flood(b, port); n != 49 {
			t.Errorf("%d packets passed, want 49", n)
		}
		if told := b.events(LimitReached); len(told) != 0 {
			t.Errorf("it is reported that the client has reached a limit: %+v", told)
		}
		for i := range uint16(50) {
			b.openUDP(clientA, 1501+i, server6)
		}
		b.in(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1499, 53, 4)})
		if n := b.Stats().Dropped[SessionLimit]; n != uint64(2*testSizes.Sessions-49+1) {
			t.Errorf("%d packets were dropped for the limit", n)
		}
	})
	t.Run("the table", func(t *testing.T) {
		b := engine(t, func(s *Settings) { s.Limits.ClientSessions = 0 })
		port := b.openUDP(clientA, 1500, server6)
		if n, want := flood(b, port), testSizes.Sessions*3/4-1; n != want {
			t.Errorf("%d packets passed, want %d", n, want)
		}
		for i := range uint16(testSizes.Sessions / 4) {
			b.openUDP(clientB, 1500+i, server6)
		}
	})
}

// TestFilterOfManySessions: filtering finds a peer behind any number of later ones, and searches
// all of them for no stranger.
func TestFilterOfManySessions(t *testing.T) {
	sizes := testSizes
	sizes.Sessions = 8192
	b := engineOver(t, newTable(t, sizes), func(s *Settings) { s.FilterUDP = AddressDependent })
	port := b.openUDP(clientA, 1500, server6)
	var binding state.Binding
	out := state.Outside{Pool: netip.MustParseAddr(poolIP).As4(), Port: port, Transport: state.UDP}
	if !b.table.FindBinding4(&out, &binding) {
		t.Fatal("no binding")
	}
	// As a fast path makes them.
	made := func(peer [4]byte, port uint16) {
		t.Helper()
		var s state.Session
		n := state.Fresh{Peer: peer, PeerPort: port, Status: state.Opened, Stamp: state.Stamp(b.now.Sub(b.epoch))}
		if o := b.table.NewSession(&binding, n, &s); o != state.Made {
			t.Fatal(o)
		}
	}
	late := netip.MustParseAddr("198.51.100.77")
	made(late.As4(), 53)
	for i := range uint16(5000) {
		made([4]byte{198, 51, 100, 99}, 1000+i)
	}
	from := func(peer string) pkt {
		return pkt{src: peer, dst: poolIP, proto: udpProto, payload: udpMsg(54, port, 4)}
	}
	b.one(b.in(from(server4)))
	b.refused(from(late.String()), Filtered) // until the next round
	b.pass(2 * sweepRound)
	b.one(b.in(from(late.String())))
	b.refused(from("198.51.100.78"), Filtered)
}
