// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

func ports(first, last uint16) func(*Settings) {
	return func(s *Settings) { s.Pool4[0].First, s.Pool4[0].Last = first, last }
}

// TestPortClassAndParity: RFC 6146 sections 3.5.1.1 and 3.5.2.3, RFC 4787 REQ-3 and REQ-4.
func TestPortClassAndParity(t *testing.T) {
	b := engine(t, ports(1, 65535))
	tcpPort := func(port uint16) uint16 {
		return srcPort(b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(port, 80, flagSYN, 0)})))
	}
	for i := range uint16(40) {
		if got := b.openUDP(clientA, 2000+i, server6); got%2 != i%2 || got < 1024 {
			t.Errorf("UDP port %d became %d", 2000+i, got)
		}
		if got := b.openUDP(clientA, 500+i, server6); got%2 != i%2 && got >= 1024 || got >= 1024 {
			t.Errorf("UDP port %d became %d", 500+i, got)
		}
		if got := tcpPort(500 + i); got >= 1024 {
			t.Errorf("TCP port %d became %d", 500+i, got)
		}
		if got := tcpPort(2000 + i); got < 1024 {
			t.Errorf("TCP port %d became %d", 2000+i, got)
		}
	}
}

// TestNoSystemPorts: where the pool has none, others serve.
func TestNoSystemPorts(t *testing.T) {
	b := engine(t, nil)
	if got := b.openUDP(clientA, 500, server6); got < 1024 {
		t.Errorf("port %d is not of the pool", got)
	}
}

// TestPortsAreRandom: RFC 6056, within the block of the client.
func TestPortsAreRandom(t *testing.T) {
	b := engine(t, nil)
	var last uint16
	rising := 0
	const n = 100
	for i := range uint16(n) {
		got := b.openUDP(clientA, 3000+2*i, server6)
		if got > last {
			rising++
		}
		last = got
	}
	if rising > 3*n/4 || rising < n/4 {
		t.Errorf("%d of %d ports were greater than the one before", rising, n)
	}
}

// TestExhaustion: without a port the client hears so (ICMPv6 1/3), it is counted, and others
// are not concerned.
func TestExhaustion(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		fill   int
		why    Reason
	}{
		{"the client's blocks", func(s *Settings) { s.Limits.ClientBlocks = 2 }, 512, NoPort},
		{"the pool", func(s *Settings) { s.Pool4[0].First, s.Pool4[0].Last = 1024, 1535; s.Limits.ClientBlocks = 16 }, 512, NoAddress},
		{"the client's sessions", func(s *Settings) { s.Limits.ClientSessions = 20 }, 20, SessionLimit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := engine(t, tt.change)
			for i := range uint16(tt.fill) {
				b.openUDP(clientA, 1000+i, server6)
			}
			p := pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1000+uint16(tt.fill), 53, 4)}
			b.wants(b.in(p), answer6(clientA, 1, 3, p.bytes()))
			if got := b.Stats().Dropped[tt.why]; got != 1 {
				t.Errorf("dropped %v", b.drops())
			}
			if events := b.events(LimitReached); len(events) != 1 || events[0].Reason != tt.why || events[0].Client != netip.MustParsePrefix("2001:db8:1::/64") {
				t.Errorf("events %+v", events)
			}
			b.in(p)
			if events := b.events(LimitReached); len(events) != 0 {
				t.Errorf("told again at once: %+v", events)
			}
			if tt.why != NoAddress {
				b.openUDP(clientB, 1000, server6)
			}
			if tt.why == SessionLimit {
				if got := b.Engine.Sizes().Bindings; got != tt.fill+1 {
					t.Errorf("%d bindings, want those with a session", got)
				}
			}
		})
	}
}

// TestAllParitiesServe: parity is a wish; a client gets all ports of its block.
func TestAllParitiesServe(t *testing.T) {
	b := engine(t, func(s *Settings) { s.Limits.ClientBlocks = 1 })
	seen := make(map[uint16]bool)
	for i := range uint16(256) {
		seen[b.openUDP(clientA, 2000+2*i, server6)] = true
	}
	if len(seen) != 256 {
		t.Errorf("%d different ports", len(seen))
	}
}

// TestGreedyClient: one that opens a million sessions gets what a client may have, and others
// go on as if it were not there.
func TestGreedyClient(t *testing.T) {
	b := engine(t, func(s *Settings) { s.Limits.ClientSessions, s.Errors.Rate = 300, 0 })
	good := b.openUDP(clientB, 1500, server6)
	p := pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1000, 53, 4)}.bytes()
	for i := range 1_000_000 {
		port := uint16(1024 + i%60000)
		p[40], p[41], p[27] = byte(port>>8), byte(port), byte(i/60000)
		b.out.Reset()
		b.HandleIPv6(p, b.path, b.now, &b.out)
	}
	if n := b.Engine.Sizes(); n.Sessions > 301 || n.Bindings > 301 || n.Blocks > 5 {
		t.Errorf("sizes %+v", n)
	}
	b.one(b.in(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, good, 4)}))
	b.openUDP(clientB, 1501, server6)
	b.openUDP("2001:db8:1:3::1", 1501, server6)
}

// TestTableFull: the table is full of other clients' sessions; the answer is the same.
func TestTableFull(t *testing.T) {
	sizes := testSizes
	sizes.Sessions, sizes.Subscribers = 16, 4
	b := engineOver(t, newTable(t, sizes), nil)
	full := func(p pkt) Reason {
		before := b.Stats().Dropped
		got := b.in(p)
		for r, n := range b.Stats().Dropped {
			if n > before[r] {
				b.wants(got, answer6(p.src, 1, 3, p.bytes()))
				return Reason(r)
			}
		}
		return none
	}
	var why Reason
	for i := range uint16(20) {
		if why = full(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1000+i, 53, 4)}); why != none {
			break
		}
	}
	if why != BindingsFull && why != SessionsFull {
		t.Errorf("refused for %s", why)
	}
	b.pass(10 * time.Minute)
	for i := range 6 {
		client := fmt.Sprintf("2001:db8:1:%x::1", i)
		if why = full(pkt{src: client, dst: server6, proto: udpProto, payload: udpMsg(1000, 53, 4)}); why != none {
			break
		}
	}
	if why != SubscribersFull {
		t.Errorf("refused for %s", why)
	}
}

func TestClients(t *testing.T) {
	b := engine(t, nil)
	for _, p := range []pkt{
		{src: "2001:db8:2::1", dst: server6, proto: udpProto, payload: udpMsg(1000, 53, 4)},
		{src: "2001:db8:2::1", dst: server6, proto: tcpProto, payload: tcpMsg(1000, 53, flagSYN, 0)},
		{src: "2001:db8:2::1", dst: server6, proto: icmp6Proto, payload: echoMsg(128, 1, 4)},
	} {
		b.refused(p, NotClient)
	}
	// No one is told by an error that there is something here.
	b.refused(pkt{src: "2001:db8:2::1", dst: server6, proto: 132, payload: filling(20)}, Protocol)
	b.refused(pkt{src: "2001:db8:2::1", dst: server6, hop: 1, proto: udpProto, payload: udpMsg(1, 1, 4)}, Reason(translate.ReasonHopLimit))
}

// TestBlockEvents: a block is reported when a client gets it, and when another may (RFC 6888
// REQ-8 and REQ-12).
func TestBlockEvents(t *testing.T) {
	b := engine(t, func(s *Settings) { s.Timers.Quarantine = 2 * time.Minute })
	port := b.openUDP(clientA, 1500, server6)
	started := b.events(BlockStart)
	if len(started) != 1 {
		t.Fatalf("events %+v", b.out.Events)
	}
	want := Event{
		Kind: BlockStart, Time: b.now, Client: netip.MustParsePrefix("2001:db8:1::/64"),
		Pool: netip.MustParseAddr(poolIP), First: port &^ 255, Last: port | 255,
	}
	if diff := cmp.Diff(want, started[0], cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	b.openUDP(clientA, 1501, server6)
	if got := b.events(BlockStart); len(got) != 0 {
		t.Errorf("reported again: %+v", got)
	}
	b.pass(5*time.Minute + 10*time.Second)
	if n := b.Engine.Sizes(); n.Bindings != 0 || n.Subscribers != 1 {
		t.Fatalf("sizes %+v: the client keeps its block for the quarantine", n)
	}
	if got := b.events(BlockStop); len(got) != 0 {
		t.Errorf("stopped before the quarantine: %+v", got)
	}
	b.pass(2*time.Minute + 10*time.Second)
	stopped := b.events(BlockStop)
	if len(stopped) != 1 || stopped[0].First != want.First || stopped[0].Client != want.Client {
		t.Fatalf("events %+v", b.out.Events)
	}
	if n := b.Engine.Sizes(); n.Subscribers != 0 || n.Blocks != 0 {
		t.Errorf("sizes %+v", n)
	}
}

// TestSystemPortEvents: a system port is of no block, so it is reported by itself.
func TestSystemPortEvents(t *testing.T) {
	b := engine(t, ports(1, 65535))
	port := b.openUDP(clientA, 500, server6)
	if got := b.events(BlockStart); len(got) != 1 || got[0].First != port || got[0].Last != port {
		t.Fatalf("events %+v, port %d", b.out.Events, port)
	}
	b.pass(5*time.Minute + 10*time.Second)
	if got := b.events(BlockStop); len(got) != 1 || got[0].First != port {
		t.Errorf("events %+v", b.out.Events)
	}
}

func TestSessionEvents(t *testing.T) {
	b := engine(t, func(s *Settings) { s.SessionEvents = true })
	b.openUDP(clientA, 1500, server6)
	if got := b.events(SessionStart); len(got) != 1 || got[0].Inside != netip.MustParseAddrPort("["+clientA+"]:1500") || got[0].Peer != netip.MustParseAddrPort(server4+":53") {
		t.Errorf("events %+v", got)
	}
	b.pass(6 * time.Minute)
	if got := b.events(SessionStop); len(got) != 1 || got[0].Transport != state.UDP {
		t.Errorf("events %+v", got)
	}
	quiet := engine(t, nil)
	quiet.openUDP(clientA, 1500, server6)
	if got := quiet.events(SessionStart); len(got) != 0 {
		t.Errorf("reported without being asked: %+v", got)
	}
}

// TestPairedAddresses: of several addresses a client has one (RFC 4787 REQ-2), and clients
// are spread over all.
func TestPairedAddresses(t *testing.T) {
	b := engine(t, func(s *Settings) {
		s.Pool4 = []Range{{Prefix: netip.MustParsePrefix("203.0.113.0/30")}}
	})
	used := make(map[string]bool)
	for i := range 40 {
		client := fmt.Sprintf("2001:db8:1:%x::1", i)
		var mine string
		for port := range uint16(3) {
			got := srcAddr(b.one(b.in(pkt{src: client, dst: server6, proto: udpProto, payload: udpMsg(1000+port, 53, 4)})))
			if mine != "" && got != mine {
				t.Fatalf("%s has %s and %s", client, mine, got)
			}
			mine = got
		}
		// Another host of the same /64 is the same client.
		if got := srcAddr(b.one(b.in(pkt{src: client + ":2", dst: server6, proto: tcpProto, payload: tcpMsg(9, 53, flagSYN, 0)}))); got != mine {
			t.Errorf("another host of the client has %s, not %s", got, mine)
		}
		used[mine] = true
	}
	if len(used) != 4 {
		t.Errorf("addresses in use: %v", used)
	}
}

// TestExhaustedPool: new clients are refused as long as no block is free, and served as soon
// as one is.
func TestExhaustedPool(t *testing.T) {
	b := engine(t, func(s *Settings) { s.Pool4[0].First, s.Pool4[0].Last, s.Timers.Quarantine = 1024, 1279, 0 })
	b.openUDP(clientA, 1500, server6)
	p := pkt{src: clientB, dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 4)}
	for range 3 {
		b.wants(b.in(p), answer6(clientB, 1, 3, p.bytes()))
	}
	if got := b.Stats().Dropped[NoAddress]; got != 3 {
		t.Fatalf("dropped %v", b.drops())
	}
	b.pass(5*time.Minute + 20*time.Second)
	b.openUDP(clientB, 1500, server6)
}

// TestPadding: what a link put behind a packet goes nowhere.
func TestPadding(t *testing.T) {
	b := engine(t, nil)
	out := b.one(b.raw(append(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 4)}.bytes(), 1, 2, 3)))
	b.wants([][]byte{out}, pkt{src: poolIP, dst: server4, hop: 63, proto: udpProto, payload: udpMsg(srcPort(out), 53, 4)})
	b.wants(b.raw(append(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, srcPort(out), 4)}.bytes(), 1, 2, 3)),
		pkt{src: server6, dst: clientA, hop: 63, proto: udpProto, payload: udpMsg(53, 1500, 4)})
}
