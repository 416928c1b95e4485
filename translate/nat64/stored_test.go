// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

func synTo(port uint16) pkt {
	return pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(80, port, flagSYN, 0)}
}

// waitingList is what a fast path would be told.
type waitingList map[netip.AddrPort]int

func (w waitingList) Wait(p netip.AddrPort) { w[p]++ }
func (w waitingList) Done(p netip.AddrPort) { w[p]-- }

// TestStoredSYNUnanswered: a SYN that finds nothing waits for 6 s, and is then answered
// with Port Unreachable (RFC 6146 section 3.5.2.2).
func TestStoredSYNUnanswered(t *testing.T) {
	for _, filtered := range []bool{false, true} {
		b := engine(t, func(s *Settings) { s.FilterTCP = AddressDependent })
		waiting := make(waitingList)
		b.SetWaiting(waiting)
		port := uint16(5000)
		if filtered { // by address: there is a binding, but not with this host
			port = srcPort(b.one(b.in(pkt{src: clientA, dst: other6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)})))
		}
		syn := synTo(port)
		b.refused(syn, StoredSYN)
		b.refused(syn, StoredSYN) // sent again: still one
		peer := netip.AddrPortFrom(netip.MustParseAddr(server4), 80)
		if b.Engine.Sizes().StoredSYNs != 1 || waiting[peer] != 1 {
			t.Fatalf("sizes %+v, waiting %v", b.Engine.Sizes(), waiting)
		}
		b.wants(b.pass(5900 * time.Millisecond))
		b.wants(b.pass(200*time.Millisecond), answer4(server4, 3, 3, syn.bytes()))
		if b.Engine.Sizes().StoredSYNs != 0 || waiting[peer] != 0 {
			t.Errorf("sizes %+v, waiting %v", b.Engine.Sizes(), waiting)
		}
		if got := b.Stats().Dropped[StoredSYNUnanswered]; got != 1 {
			t.Errorf("counted %d times", got)
		}
	}
}

// engineBy makes an engine that draws other numbers than those of other seeds.
func engineBy(t *testing.T, seed byte, change func(*Settings)) *bench {
	s := testSettings(t)
	if change != nil {
		change(&s)
	}
	e, err := New(s, newTable(t, testSizes), start.Add(-time.Hour), seeded{rand.NewChaCha8([32]byte{seed})})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{Engine: e, t: t, now: start}
}

// TestForgedSYNChoosesNothing: anybody may send a SYN in the name of a server. It chooses
// neither port nor address nor a block for the client that opens a connection to there, in
// whatever state the client is: ports stay as many as before, and hard to foretell
// (RFC 6056), and the SYN is answered in its time.
func TestForgedSYNChoosesNothing(t *testing.T) {
	const clients = 60
	for _, tt := range []struct {
		name   string
		before bool // the client has a port already, so address and block
		port   uint16
		change func(*Settings)
	}{
		{name: "of a new client", port: 20000},
		{name: "of a known client, in its block", before: true},
		{name: "of a known client, in a block of nobody", before: true, port: 20000},
		{name: "at a system port", port: 500, change: ports(1, 65535)},
		{name: "at an address of two", port: 20000, change: func(s *Settings) {
			s.Pool4 = append(s.Pool4, s.Pool4[0])
			s.Pool4[1].Prefix = netip.MustParsePrefix("192.0.2.77/32")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			chosen, there := 0, 0
			for i := range byte(clients) {
				b := engineBy(t, i, tt.change)
				port := tt.port
				if tt.before {
					near := srcPort(b.one(b.in(pkt{src: clientA, dst: other6, proto: tcpProto, payload: tcpMsg(1400, 80, flagSYN, 0)})))
					if port == 0 {
						port = near ^ 1
					}
				}
				b.refused(synTo(port), StoredSYN)
				leased := b.Stats().BlocksLeased
				out := b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)}))
				if srcPort(out) == port {
					chosen++
				}
				if srcAddr(out) == poolIP {
					there++
				}
				if n := b.Stats().BlocksLeased - leased; tt.before && n != 0 {
					t.Fatalf("%d more blocks", n)
				}
			}
			// By chance 10 of 60 are met with a probability below 1e-13 where a block has 256
			// ports; at one address of two, all or none of 60 below 1e-17.
			if chosen >= 10 {
				t.Errorf("%d of %d clients got the port of the SYN", chosen, clients)
			}
			if tt.name == "at an address of two" && (there == 0 || there == clients) {
				t.Errorf("%d of %d clients got the address of the SYN", there, clients)
			}
		})
	}
}

// TestSimultaneousOpenOfABinding: the same where address-dependent filtering kept the SYN.
func TestSimultaneousOpenOfABinding(t *testing.T) {
	b := engine(t, func(s *Settings) { s.FilterTCP = AddressDependent })
	port := srcPort(b.one(b.in(pkt{src: clientA, dst: other6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)})))
	b.refused(synTo(port), StoredSYN)
	if got := srcPort(b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)}))); got != port {
		t.Errorf("port %d, want %d", got, port)
	}
	if got := b.Stats().Dropped[StoredSYNReplaced]; got != 1 {
		t.Errorf("replaced %d", got)
	}
	b.wants(b.pass(10 * time.Second))
	b.one(b.in(synTo(port)))
}

// TestSimultaneousOpenByChance: a SYN that waits where the other happens to be bound is met
// by it. With two ports, one of which is taken, it is no chance.
func TestSimultaneousOpenByChance(t *testing.T) {
	b := engine(t, ports(5000, 5001))
	taken := srcPort(b.one(b.in(pkt{src: clientA, dst: other6, proto: tcpProto, payload: tcpMsg(1400, 80, flagSYN, 0)})))
	free := taken ^ 1
	b.refused(synTo(free), StoredSYN)
	out := b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)}))
	b.wants([][]byte{out}, pkt{src: poolIP, dst: server4, hop: 63, proto: tcpProto, payload: tcpMsg(free, 80, flagSYN, 0)})
	if got := b.Stats().Dropped[StoredSYNReplaced]; got != 1 || b.Engine.Sizes().StoredSYNs != 0 {
		t.Errorf("replaced %d, sizes %+v", got, b.Engine.Sizes())
	}
	b.wants(b.pass(10 * time.Second)) // no error
	b.one(b.in(synTo(free)))          // sent again, it passes now
}

// TestStoredSYNsAreBounded: no more wait than may, and not of one client. The oldest gives
// way, and is forgotten in silence.
func TestStoredSYNsAreBounded(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		bound  bool // the SYNs are for a client's port
		want   []uint16
		why    Reason
		lost   uint64
	}{
		{"for one client", func(s *Settings) { s.Limits.StoredSYNsSource = 3 }, true, []uint16{82, 83, 84}, StoredSYNsSource, 2},
		{"for nobody's ports", func(s *Settings) { s.Limits.StoredSYNsSource = 3 }, false, []uint16{80, 81, 82, 83, 84}, none, 0},
		{"in all", func(s *Settings) { s.Limits.StoredSYNs = 4 }, false, []uint16{81, 82, 83, 84}, StoredSYNsFull, 1},
		{"none in all", func(s *Settings) { s.Limits.StoredSYNs = 0 }, false, nil, StoredSYNsFull, 5},
		{"none of one source", func(s *Settings) { s.Limits.StoredSYNsSource = 0 }, false, nil, StoredSYNsSource, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := engine(t, func(s *Settings) { s.FilterTCP = AddressDependent; tt.change(s) })
			waiting := make(waitingList)
			b.SetWaiting(waiting)
			port := uint16(5000)
			if tt.bound {
				port = srcPort(b.one(b.in(pkt{src: clientA, dst: other6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)})))
			}
			for peer := range uint16(5) {
				b.in(pkt{src: server4, dst: poolIP, proto: tcpProto, payload: tcpMsg(80+peer, port, flagSYN, 0)})
			}
			var kept []uint16
			for peer, n := range waiting {
				if n == 1 {
					kept = append(kept, peer.Port())
				}
			}
			slices.Sort(kept)
			if !slices.Equal(kept, tt.want) || tt.why != none && b.Stats().Dropped[tt.why] != tt.lost {
				t.Errorf("peers %v wait, want %v; drops %v", kept, tt.want, b.drops())
			}
			if errors := b.pass(7 * time.Second); len(errors) != len(tt.want) || b.Engine.Sizes().StoredSYNs != 0 {
				t.Errorf("%d errors, sizes %+v", len(errors), b.Engine.Sizes())
			}
		})
	}
}

// TestSimultaneousOpenBesideAFlood: anybody can send SYNs without number, from whatever
// source, to all ports. Another's SYN finds room nevertheless, and keeps it until its client
// calls or 6 s are over.
func TestSimultaneousOpenBesideAFlood(t *testing.T) {
	const perSecond = 4000
	anybody := func(n int) string { return netip.AddrFrom4([4]byte{203, 0, byte(n >> 8), byte(n)}).String() }
	for _, tt := range []struct {
		name  string
		flood func(n int, open uint16) (src string, port uint16)
		met   bool // another client has talked with the sources of the flood
	}{
		{"forged sources, nobody's port", func(n int, _ uint16) (string, uint16) { return anybody(n), 30000 }, false},
		{"forged sources, all ports", func(n int, _ uint16) (string, uint16) { return anybody(n), uint16(1024 + n%60000) }, false},
		{"forged sources, the open port of another client", func(n int, open uint16) (string, uint16) { return anybody(n), open }, false},
		{"one source, which a client has talked with", func(n int, _ uint16) (string, uint16) { return other4, uint16(1024 + n%60000) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := engine(t, func(s *Settings) { s.FilterTCP = AddressDependent })
			waiting := make(waitingList)
			b.SetWaiting(waiting)
			call := func(src, dst string) uint16 {
				t.Helper()
				return srcPort(b.one(b.in(pkt{src: src, dst: dst, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)})))
			}
			port, open := call(clientA, router6), call(clientB, other6)
			sent, begin := 0, b.now
			flood := func(until time.Duration) {
				for ; b.now.Sub(begin) < until; sent++ {
					src, at := tt.flood(sent, open)
					if at == port {
						at++
					}
					b.in(pkt{src: src, dst: poolIP, proto: tcpProto, payload: tcpMsg(uint16(sent), at, flagSYN, 0)})
					b.pass(time.Second / perSecond)
				}
			}
			flood(2 * time.Second)
			b.refused(synTo(port), StoredSYN)
			flood(7900 * time.Millisecond)
			if got := call(clientA, server6); got != port {
				t.Fatalf("the client calls from port %d, not %d", got, port)
			}
			if got := b.Stats().Dropped[StoredSYNReplaced]; got != 1 {
				t.Errorf("the SYN did not wait for its client: drops %v", b.drops())
			}
			if full := b.Engine.Sizes().StoredSYNs; full > Defaults().Limits.StoredSYNs {
				t.Errorf("%d SYNs wait", full)
			}
			b.pass(10 * time.Second)
			for peer, n := range waiting {
				if n != 0 {
					t.Fatalf("%s is still waited for", peer)
				}
			}
		})
	}
}

// TestStoredSYNOfAPeer: a host that has a session has its SYN to a closed port answered in
// time beside a flood.
func TestStoredSYNOfAPeer(t *testing.T) {
	b := engine(t, nil)
	b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 443, flagSYN, 0)}))
	b.pass(5 * time.Second)
	b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 443, 0, 0)}))
	b.pass(5 * time.Second)
	syn := synTo(5000)
	b.refused(syn, StoredSYN)
	for n := range 4000 {
		b.in(pkt{src: netip.AddrFrom4([4]byte{203, 0, byte(n >> 8), byte(n)}).String(), dst: poolIP, proto: tcpProto, payload: tcpMsg(80, 30000, flagSYN, 0)})
	}
	out := b.pass(6100 * time.Millisecond)
	want := answer4(server4, 3, 3, syn.bytes()).bytes()
	if !slices.ContainsFunc(out, func(ip []byte) bool { return slices.Equal(ip[12:], want[12:]) }) {
		t.Errorf("no error for the peer among %d; drops %v", len(out), b.drops())
	}
}
