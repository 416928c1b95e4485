// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// otherPools has settings name other pools than the test's.
func otherPools(t *testing.T) func(*Settings) {
	return func(s *Settings) {
		s.Translate.Prefixes = []translate.Prefix{prefix6(t, "2001:db8:65::/96")}
		s.Pool4 = []Range{{Prefix: netip.MustParsePrefix("203.0.113.9/32")}}
	}
}

// TestLeaving: what sessions have and is not named is known, by the engine that had it and by
// the next, until they end; then its address is a stranger's.
func TestLeaving(t *testing.T) {
	for _, next := range []struct {
		name string
		of   func(b *bench) *bench
	}{
		{"after a change", func(b *bench) *bench {
			if err := b.Reconfigure(b.changed(otherPools(t))); err != nil {
				t.Fatal(err)
			}
			return b
		}},
		{"after a restart", func(b *bench) *bench {
			after, _ := b.resumed(otherPools(t), Earlier{})
			return after
		}},
	} {
		for _, end := range []struct {
			name string
			of   func(b *bench)
		}{
			{"by time", func(b *bench) { b.pass(6 * time.Minute) }},
			{"by order", func(b *bench) {
				b.out.Reset()
				for at := uint32(0); ; {
					_, at = b.Engine.End(at, 100, b.now, &b.out, func(s SessionInfo) bool { return s.Outside.Addr() == netip.MustParseAddr(poolIP) })
					if at == 0 {
						break
					}
				}
				if got := b.events(SessionStop); len(got) != 1 || got[0].Inside != netip.MustParseAddrPort("["+clientA+"]:1500") {
					t.Errorf("events %+v", got)
				}
			}},
		} {
			t.Run(next.name+", ended "+end.name, func(t *testing.T) {
				b := keptEngine(t, testSizes, nil)
				b.openUDP(clientA, 1500, server6)
				if got := b.Leaving(); len(got) != 0 {
					t.Errorf("%v leave although all is named", got)
				}
				b = next.of(b)
				b.settings.SessionEvents = true
				if got := fmt.Sprint(b.Leaving()); got != "["+poolIP+"/32 "+pool6Text+"]" {
					t.Errorf("leaving %v", got)
				}
				end.of(b)
				if got := b.Leaving(); len(got) != 0 {
					t.Errorf("%v leave without a session", got)
				}
				b.in(pkt{src: clientA, dst: "2001:db8:65::198.51.100.2", proto: udpProto, payload: udpMsg(1500, 53, 4)})
				if err := b.Reconfigure(b.settings); err != nil {
					t.Fatal(err)
				}
				got := b.one(b.in(pkt{src: clientA, dst: "2001:db8:65::203.0.113.1", proto: udpProto, payload: udpMsg(1500, 53, 4)}))
				if got[0]>>4 != 4 || srcAddr(got) != "203.0.113.9" {
					t.Errorf("a packet to the former address became %x", got)
				}
			})
		}
	}
}

// TestResumeTells: sessions and blocks that a start ends have events, as all others.
func TestResumeTells(t *testing.T) {
	z := testSizes
	z.Addresses = 1
	for _, tt := range []struct {
		name     string
		static   bool          // one is to have the session's port
		after    time.Duration // since its last packet
		change   func(*Settings)
		sessions int
		blocks   int
	}{
		{"nothing ends", false, 0, nil, 0, 0},
		{"the port is a static binding's", true, 0, nil, 1, 0},
		{"its time is over", false, time.Hour, nil, 1, 0},
		{"there is no room for its address", false, 0, otherPools(t), 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := keptEngine(t, z, nil)
			port := b.openUDP(clientA, 1500, server6)
			b.now = b.now.Add(tt.after)
			var left Earlier
			if tt.static {
				left.Static = []Static{{state.UDP, netip.MustParseAddrPort("[2001:db8:1::99]:80"), netip.AddrPortFrom(netip.MustParseAddr(poolIP), port)}}
			}
			left.Tell = func(events []Event) { b.out.Events = append(b.out.Events, events...) }
			b.out.Reset()
			b.resumed(func(s *Settings) {
				s.SessionEvents = true
				if tt.change != nil {
					tt.change(s)
				}
			}, left)
			sessions, blocks := b.events(SessionStop), b.events(BlockStop)
			if len(sessions) != tt.sessions || len(blocks) != tt.blocks {
				t.Fatalf("%d sessions, %d blocks: %+v", len(sessions), len(blocks), b.out.Events)
			}
			for _, e := range sessions {
				want := Event{
					Kind: SessionStop, Time: b.now, Client: netip.MustParsePrefix("2001:db8:1::/64"), Pool: netip.MustParseAddr(poolIP), First: port, Last: port,
					Transport: state.UDP, Inside: netip.MustParseAddrPort("[" + clientA + "]:1500"), Peer: netip.MustParseAddrPort(server4 + ":53"),
				}
				if e != want {
					t.Errorf("event %+v, want %+v", e, want)
				}
			}
		})
	}
}

// TestResumeImpossible: what damaged memory has bound to an address that no pool can have
// ends, and is not led here.
func TestResumeImpossible(t *testing.T) {
	b := keptEngine(t, testSizes, func(s *Settings) { s.Pool4 = []Range{{Prefix: netip.MustParsePrefix("198.51.100.200/32")}} })
	b.openUDP(clientA, 1500, server6)
	for _, slab := range b.memory {
		for at := 0; at+4 <= len(slab); at++ {
			if [4]byte(slab[at:at+4]) == [4]byte{198, 51, 100, 200} {
				copy(slab[at:], []byte{127, 0, 0, 1})
			}
		}
	}
	next, ended := b.resumed(nil, Earlier{})
	if got := next.Leaving(); ended.Displaced != 1 || len(got) != 0 {
		t.Errorf("ended %+v, leaving %v", ended, got)
	}
}

// TestRemoveStaticTells: sessions of a static binding that is removed have events.
func TestRemoveStaticTells(t *testing.T) {
	b := engine(t, func(s *Settings) { s.SessionEvents = true })
	s := static(t, "udp", "["+clientA+"]:80", poolIP+":8080")
	if err := b.AddStatic(s); err != nil {
		t.Fatal(err)
	}
	b.one(b.in(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, 8080, 4)}))
	b.out.Reset()
	if err := b.RemoveStatic(s, b.now, &b.out); err != nil {
		t.Fatal(err)
	}
	if got := b.events(SessionStop); len(got) != 1 || got[0].First != 8080 {
		t.Errorf("events %+v", b.out.Events)
	}
}

// TestPrefixTakenOutIsFree: hosts may have addresses of a prefix that was taken out, as soon as
// no session has it, and a successor need not know it.
func TestPrefixTakenOutIsFree(t *testing.T) {
	b := engine(t, func(s *Settings) {
		s.Clients = append(s.Clients, netip.MustParsePrefix("2001:db8:64::/48"))
		s.Translate.Prefixes = append(s.Translate.Prefixes, prefix6(t, "2001:db8:65::/96"))
	})
	b.openUDP(clientA, 1500, "2001:db8:65::198.51.100.2")
	former := pkt{src: "2001:db8:65::7", dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 4)}
	change := func() {
		t.Helper()
		if err := b.Reconfigure(b.changed(func(s *Settings) {
			s.Clients = []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}
			s.Translate.Prefixes = s.Translate.Prefixes[:1]
		})); err != nil {
			t.Fatal(err)
		}
	}
	b.refused(former, SourceInPool6)
	change()
	b.refused(former, SourceInPool6) // a session has it
	b.pass(b.settings.Timers.UDP + 2*sweepRound)
	change()
	b.openUDP(former.src, 1500, server6)
	b.refused(pkt{src: clientA, dst: "2001:db8:65::198.51.100.2", proto: udpProto, payload: udpMsg(1500, 53, 4)}, NotPool6)
	if prefixes, _ := b.Prefixes(); len(prefixes) != 1 {
		t.Errorf("a successor is told of %d prefixes", len(prefixes))
	}
}
