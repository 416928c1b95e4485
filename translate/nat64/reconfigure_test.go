// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// changed returns the bench's settings after a change.
func (b *bench) changed(change func(*Settings)) Settings {
	s := b.settings
	s.Pool4, s.Clients = slices.Clone(s.Pool4), slices.Clone(s.Clients)
	s.Translate.Prefixes = slices.Clone(s.Translate.Prefixes)
	change(&s)
	return s
}

// TestReconfigureKeepsFlows: sessions of prefixes, addresses and clients that are taken out
// go on, and make no new ones.
func TestReconfigureKeepsFlows(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	err := b.Reconfigure(b.changed(func(s *Settings) {
		s.Translate.Prefixes = []translate.Prefix{prefix6(t, "2001:db8:65::/96")}
		s.Pool4 = []Range{{Prefix: netip.MustParsePrefix("203.0.113.9/32")}}
		s.Clients = []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/64")}
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got := b.openUDP(clientA, 1500, server6); got != port {
		t.Errorf("the session has port %d, had %d", got, port)
	}
	b.wants(b.in(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, port, 4)}),
		pkt{src: server6, dst: clientA, hop: 63, proto: udpProto, payload: udpMsg(53, 1500, 4)})
	b.refused(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1600, 53, 4)}, NotPool6)
	// New ones have the new address, and the old blocks are reported to have ended.
	got := b.one(b.in(pkt{src: clientA, dst: "2001:db8:65::198.51.100.2", proto: udpProto, payload: udpMsg(1501, 53, 4)}))
	if srcAddr(got) != "203.0.113.9" {
		t.Errorf("a new session has %s", srcAddr(got))
	}
	if stopped, started := b.events(BlockStop), b.events(BlockStart); len(stopped) != 1 || len(started) != 1 || stopped[0].Pool != netip.MustParseAddr(poolIP) {
		t.Errorf("events %+v", b.out.Events)
	}
	b.refused(pkt{src: clientB, dst: "2001:db8:65::198.51.100.2", proto: udpProto, payload: udpMsg(1501, 53, 4)}, NotClient)
	prefixes, current := b.Prefixes()
	if len(prefixes) != 2 || current[0] || !current[1] {
		t.Errorf("prefixes %v, current %v", prefixes, current)
	}
}

// TestReconfigureRefused: what is wrong changes nothing.
func TestReconfigureRefused(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	for name, change := range map[string]func(*Settings){
		"no pool6":            func(s *Settings) { s.Translate.Prefixes = nil },
		"no pool4":            func(s *Settings) { s.Pool4 = nil },
		"overlapping pool4":   func(s *Settings) { s.Pool4 = append(s.Pool4, s.Pool4[0]) },
		"IPv6 in pool4":       func(s *Settings) { s.Pool4[0].Prefix = netip.MustParsePrefix("2001:db8::/64") },
		"bits behind a pool4": func(s *Settings) { s.Pool4[0].Prefix = netip.MustParsePrefix("203.0.113.1/24") },
		"loopback in pool4":   func(s *Settings) { s.Pool4[0].Prefix = netip.MustParsePrefix("127.0.0.0/8") },
		"ports the other way": func(s *Settings) { s.Pool4[0].First, s.Pool4[0].Last = 9, 8 },
		"unknown transport":   func(s *Settings) { s.Pool4[0].Transports = 8 },
		"own and not own": func(s *Settings) {
			s.Pool4 = append(s.Pool4, Range{Prefix: s.Pool4[0].Prefix, First: 1, Last: 9, Own: true})
		},
		"more addresses than fit": func(s *Settings) { s.Pool4[0].Prefix = netip.MustParsePrefix("203.0.113.0/28") },
		"a huge pool4":            func(s *Settings) { s.Pool4[0].Prefix = netip.MustParsePrefix("192.0.0.0/8") },
		"no clients":              func(s *Settings) { s.Clients = nil },
		"IPv4 clients":            func(s *Settings) { s.Clients = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} },
		"bits behind a client":    func(s *Settings) { s.Clients = []netip.Prefix{netip.MustParsePrefix("2001:db8::1/64")} },
		"a timer of nothing":      func(s *Settings) { s.Timers.UDP = 0 },
		"a negative timer":        func(s *Settings) { s.Timers.Quarantine = -1 },
		"a timer of a century":    func(s *Settings) { s.Timers.TCPEstablished = 100 * 365 * 24 * time.Hour },
		"too many blocks":         func(s *Settings) { s.Limits.ClientBlocks = 17 },
		"a negative limit":        func(s *Settings) { s.Limits.StoredSYNs = -1 },
		"too much memory":         func(s *Settings) { s.Limits.FragmentMemory = 1 << 40 },
		"a sweep of nothing":      func(s *Settings) { s.Limits.SweepSlice = 0 },
		"unknown filtering":       func(s *Settings) { s.FilterUDP = 7 },
		"explicit mappings":       func(s *Settings) { s.Translate.Mappings = new(translate.Table) },
		"a detour that is no /64": func(s *Settings) { s.DetourPrefix = netip.MustParsePrefix("fd00::/48") },
		"a detour inside pool6":   func(s *Settings) { s.DetourPrefix = netip.MustParsePrefix("2001:db8:64::/64") },
		"nobody shares":           func(s *Settings) { s.Deterministic = &Deterministic{Reserved: 1024} },
		"too small shares":        func(s *Settings) { s.Deterministic = &Deterministic{Compression: 1000, Reserved: 1024} },
		"too large shares":        func(s *Settings) { s.Deterministic = &Deterministic{Compression: 1, Reserved: 1024} },
		"system ports":            func(s *Settings) { s.Deterministic = &Deterministic{Compression: 16, Reserved: 10} },
		"an MTU of nothing":       func(s *Settings) { s.Translate.LowestIPv6MTU = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			if err := b.Reconfigure(b.changed(change)); err == nil {
				t.Fatal("accepted")
			}
			if got := b.openUDP(clientA, 1500, server6); got != port {
				t.Errorf("port %d, was %d", got, port)
			}
			if !b.Engine.clients.has(netip.MustParseAddr(clientB)) || len(b.pool.addresses) != 1 {
				t.Error("something was changed")
			}
		})
	}
	if _, err := New(Settings{}, b.table, start, randomness()); err == nil {
		t.Error("an engine without settings")
	}
	if _, err := New(testSettings(t), nil, start, randomness()); err == nil {
		t.Error("an engine without a table")
	}
}

// TestReconfigureLimits: limits hold for clients that are there already.
func TestReconfigureLimits(t *testing.T) {
	b := engine(t, nil)
	b.openUDP(clientA, 1500, server6)
	if err := b.Reconfigure(b.changed(func(s *Settings) { s.Limits.ClientSessions = 1 })); err != nil {
		t.Fatal(err)
	}
	b.in(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1501, 53, 4)})
	if b.Stats().Dropped[SessionLimit] != 1 {
		t.Errorf("dropped %v", b.drops())
	}
	if err := b.Reconfigure(b.changed(func(s *Settings) { s.Timers.UDP = 2 * time.Second })); err != nil {
		t.Fatal(err)
	}
	b.pass(12 * time.Second)
	if n := b.Engine.Sizes().Sessions; n != 0 {
		t.Errorf("%d sessions, with the new lifetime", n)
	}
}

// TestNumbersOfPrefixes: sessions of 16 may be there at a time, and what no one uses makes room.
func TestNumbersOfPrefixes(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	change := func(i int) (netip.Prefix, error) {
		p := netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb9, byte(i)}), 96)
		return p, b.Reconfigure(b.changed(func(s *Settings) { s.Translate.Prefixes = []translate.Prefix{prefix6(t, p.String())} }))
	}
	for i := range 3 * MaxPrefixes {
		if _, err := change(i); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
	}
	answer := pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, port, 4)}
	b.wants(b.in(answer), pkt{src: server6, dst: clientA, hop: 63, proto: udpProto, payload: udpMsg(53, 1500, 4)})
	for i := range MaxPrefixes {
		p, err := change(100 + i)
		if (err != nil) != (i == MaxPrefixes-1) {
			t.Errorf("change %d with sessions of all: %v", i, err)
		}
		if err == nil {
			pool6 := prefix6(t, p.String())
			server := pool6.Embed(netip.MustParseAddr(server4))
			b.openUDP(clientA, uint16(2000+i), server.String())
		}
	}
}

// TestRestart: an engine over the state of an earlier one goes on where that was.
func TestRestart(t *testing.T) {
	memory := state.HeapMemory(testSizes)
	open := func() *state.Table {
		table, _, err := state.Open(testSizes, memory, [state.Seeds]uint64{1, 2, 3, 4, 5, 6, 7, 8})
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	first := engineOver(t, open(), nil)
	port := first.openUDP(clientA, 1500, server6)
	if err := first.AddStatic(static(t, "udp", "["+clientB+"]:80", poolIP+":8080")); err != nil {
		t.Fatal(err)
	}
	second := engineOver(t, open(), func(s *Settings) {
		s.Pool4 = []Range{{Prefix: netip.MustParsePrefix("203.0.113.9/32")}} // changed meanwhile
	})
	second.now = first.now.Add(time.Minute)
	second.wants(second.in(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, port, 4)}),
		pkt{src: server6, dst: clientA, hop: 63, proto: udpProto, payload: udpMsg(53, 1500, 4)})
	if got := second.openUDP(clientA, 1500, server6); got != port {
		t.Errorf("port %d, was %d", got, port)
	}
	second.one(second.in(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(53, 8080, 4)}))
	second.pass(6 * time.Minute)
	if n := second.Engine.Sizes(); n.Sessions != 0 || n.Bindings != 1 {
		t.Errorf("sizes %+v", n)
	}
}

func TestAdvice(t *testing.T) {
	s := testSettings(t)
	if got := s.Advice(); len(got) != 0 {
		t.Errorf("the defaults are advised against: %q", got)
	}
	for name, change := range map[string]func(*Settings){
		"UDP":            func(s *Settings) { s.Timers.UDP = time.Minute },
		"established":    func(s *Settings) { s.Timers.TCPEstablished = time.Hour },
		"transitory":     func(s *Settings) { s.Timers.TCPTransitory, s.Timers.TCPOpening = time.Minute, time.Hour },
		"opening":        func(s *Settings) { s.Timers.TCPOpening = time.Minute },
		"SYN":            func(s *Settings) { s.Timers.IncomingSYN = time.Second },
		"ICMP":           func(s *Settings) { s.Timers.ICMP = time.Second },
		"fragments":      func(s *Settings) { s.Timers.Fragments = time.Second },
		"expected":       func(s *Settings) { s.Timers.Expected = time.Second },
		"quarantine":     func(s *Settings) { s.Timers.Quarantine = time.Second },
		"everybody":      func(s *Settings) { s.Clients = []netip.Prefix{netip.MustParsePrefix("::/0")} },
		"zero checksums": func(s *Settings) { s.Translate.UDPZeroChecksum = translate.ZeroChecksumDrop },
		"no fragments":   func(s *Settings) { s.Limits.FragmentMemory = 0 },
		"no pings":       func(s *Settings) { s.DropICMPInfo = true },
		"no connections": func(s *Settings) { s.DropExternalTCP = true },
	} {
		s := testSettings(t)
		change(&s)
		if got := s.Advice(); len(got) != 1 {
			t.Errorf("%s: %q", name, got)
		}
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLifetimes(t *testing.T) {
	s := Defaults()
	quick := s
	quick.Timers.TCPOpening = time.Minute
	if units := quick.Lifetimes(); units[state.TCP][state.V6Init] != state.Units(time.Minute) || units[state.TCP][state.BothFin] != state.Units(4*time.Minute) {
		t.Errorf("connections that begin have no lifetime of their own: %v", units[state.TCP])
	}
	units := s.Lifetimes()
	for _, tt := range []struct {
		transport state.Transport
		status    state.Status
		want      time.Duration
	}{
		{state.UDP, state.Opened, 5 * time.Minute}, {state.ICMP, state.Opened, time.Minute},
		{state.TCP, state.Established, 2 * time.Hour}, {state.TCP, state.V4Fin, 2 * time.Hour}, {state.TCP, state.V6Fin, 2 * time.Hour},
		{state.TCP, state.Trans, 4 * time.Minute}, {state.TCP, state.V6Init, 4 * time.Minute},
		{state.TCP, state.V4Init, 4 * time.Minute}, {state.TCP, state.BothFin, 4 * time.Minute},
		{state.TCP, state.Opened, 0}, {state.UDP, state.Established, 0},
	} {
		if got := units[tt.transport][tt.status]; got != state.Units(tt.want) {
			t.Errorf("%s %s: %d units, want %v", tt.transport, tt.status, got, tt.want)
		}
	}
}

// TestLists: what an operator sees of sessions, bindings and blocks.
func TestLists(t *testing.T) {
	b := engine(t, nil)
	portA, portB := b.openUDP(clientA, 1500, server6), b.openUDP(clientB, 1600, other6)
	b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)}))
	tcp := state.TCP
	for _, tt := range []struct {
		name               string
		sel                Selection
		sessions, bindings int
	}{
		{"all", Selection{}, 3, 3},
		{"a transport", Selection{Transport: &tcp}, 1, 1},
		{"a client", Selection{Inside: netip.MustParsePrefix(clientB + "/128")}, 1, 1},
		{"a port of the pool", Selection{Outside: netip.AddrPortFrom(netip.MustParseAddr(poolIP), portA)}, 1, 1},
		{"a peer", Selection{Peer: netip.MustParsePrefix(other4 + "/32")}, 1, 3},
	} {
		sessions, bindings := 0, 0
		b.Sessions(tt.sel, 0, 1<<20, b.now, func(SessionInfo) bool { sessions++; return true })
		b.Bindings(tt.sel, 0, 1<<20, func(BindingInfo) bool { bindings++; return true })
		if sessions != tt.sessions || bindings != tt.bindings {
			t.Errorf("%s: %d sessions, %d bindings; want %d, %d", tt.name, sessions, bindings, tt.sessions, tt.bindings)
		}
	}
	b.Sessions(Selection{Inside: netip.MustParsePrefix(clientB + "/128")}, 0, 1<<20, b.now, func(s SessionInfo) bool {
		want := SessionInfo{
			Transport: state.UDP, Status: state.Opened, Inside: netip.MustParseAddrPort("[" + clientB + "]:1600"),
			Peer6: netip.MustParseAddr(other6), Outside: netip.AddrPortFrom(netip.MustParseAddr(poolIP), portB),
			Peer: netip.MustParseAddrPort(other4 + ":53"), Expires: s.Expires,
		}
		if left := s.Expires.Sub(b.now); s != want || left < 299*time.Second || left > 301*time.Second {
			t.Errorf("session %+v, %v left", s, left)
		}
		return true
	})
	n := 0
	b.Blocks(0, 1<<20, func(Block) bool { n++; return true })
	if n != 2 {
		t.Errorf("%d blocks", n)
	}
	// In parts, and ended early.
	seen := 0
	for from := uint32(0); ; {
		from = b.Sessions(Selection{}, from, 1, b.now, func(SessionInfo) bool { seen++; return true })
		if from == 0 {
			break
		}
	}
	if seen != 3 {
		t.Errorf("%d sessions in parts", seen)
	}
	seen = 0
	b.Sessions(Selection{}, 0, 1<<20, b.now, func(SessionInfo) bool { seen++; return false })
	if seen != 1 {
		t.Errorf("%d sessions after saying that one is enough", seen)
	}
}

// TestFeed: each session that comes or goes is told.
func TestFeed(t *testing.T) {
	b := engine(t, nil)
	buf := make([]state.Change, 8)
	b.openUDP(clientA, 1500, server6)
	if n := b.Feed().Changes(buf); n != 1 || buf[0].Gone || buf[0].Session.ClientPort != 1500 {
		t.Errorf("%d changes, %+v", n, buf[0])
	}
	b.pass(6 * time.Minute)
	if n := b.Feed().Changes(buf); n != 1 || !buf[0].Gone {
		t.Errorf("%d changes, %+v", n, buf[0])
	}
}

// TestExpiryOfMany: a full table is empty 10 s after its deadline, in slices that look at a
// bounded number of records.
func TestExpiryOfMany(t *testing.T) {
	testutil.OneThread(t)
	sizes := testSizes
	sizes.Sessions = 1 << 16
	b := engineOver(t, newTable(t, sizes), func(s *Settings) {
		s.Pool4 = []Range{{Prefix: netip.MustParsePrefix("203.0.113.0/30")}}
		s.Limits.ClientBlocks, s.Limits.SweepSlice = 16, 1024
	})
	p := pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1000, 53, 4)}.bytes()
	for i := range 40_000 {
		p[15], p[40], p[41] = byte(i>>12), 4+byte(i>>8&15), byte(i)
		b.out.Reset()
		b.HandleIPv6(p, b.path, b.now, &b.out)
	}
	if n := b.Engine.Sizes().Sessions; n != 40_000 {
		t.Fatalf("%d sessions; dropped %v", n, b.drops())
	}
	b.pass(5*time.Minute - time.Second)
	if n := b.Engine.Sizes().Sessions; n != 40_000 {
		t.Fatalf("%d sessions before the deadline", n)
	}
	slice := 0
	for end := b.now.Add(11 * time.Second); b.now.Before(end); b.now = b.now.Add(5 * time.Millisecond) {
		before := b.Engine.Stats().SessionsEnded
		b.out.Reset()
		b.Tick(b.now, &b.out)
		slice = max(slice, int(b.Engine.Stats().SessionsEnded-before))
	}
	if n := b.Engine.Sizes(); n.Sessions != 0 || n.Bindings != 0 {
		t.Errorf("sizes %+v 10 s after the deadline", n)
	}
	if slice > 1025 {
		t.Errorf("one slice ended %d sessions", slice)
	}
}

// TestClientsOfOneRecord: who may use the translator is asked of each host, also where another
// of the same client has been served.
func TestClientsOfOneRecord(t *testing.T) {
	const served, stranger = "2001:db8:1::10", "2001:db8:1::66"
	b := engine(t, func(s *Settings) { s.Clients = []netip.Prefix{netip.MustParsePrefix(served + "/128")} })
	from := func(host string, port uint16) pkt {
		return pkt{src: host, dst: server6, proto: udpProto, payload: udpMsg(port, 53, 4)}
	}
	b.refused(from(stranger, 1500), NotClient)
	b.openUDP(served, 1500, server6)
	b.refused(from(stranger, 1500), NotClient)
	b.openUDP(served, 1501, server6)
	b.guarded(served, true)
}

// guarded compares whether a fast path may make something of a client.
func (b *bench) guarded(host string, want bool) {
	b.t.Helper()
	client := netip.MustParseAddr(host).As16()
	var s state.Subscriber
	if !b.table.FindSubscriber(&client, &s) {
		b.t.Fatalf("%s has no record", host)
	}
	if s.Guarded != want {
		b.t.Errorf("%s is guarded: %t, want %t", host, s.Guarded, want)
	}
}

// TestClientsTakenOut: hosts that are clients no more keep their sessions and make no new ones,
// also of the bindings that they have, from either side. Static bindings are the operator's.
func TestClientsTakenOut(t *testing.T) {
	b := engine(t, nil)
	static := Static{Transport: state.UDP, Inside: netip.MustParseAddrPort("[" + clientA + "]:7000"), Outside: netip.MustParseAddrPort(poolIP + ":7000")}
	if err := b.AddStatic(static); err != nil {
		t.Fatal(err)
	}
	port := b.openUDP(clientA, 1500, server6)
	b.guarded(clientA, false)
	all := b.settings.Clients
	if err := b.Reconfigure(b.changed(func(s *Settings) { s.Clients = []netip.Prefix{netip.MustParsePrefix("2001:db8:1:9::/64")} })); err != nil {
		t.Fatal(err)
	}
	b.guarded(clientA, true)
	if again := b.openUDP(clientA, 1500, server6); again != port {
		t.Errorf("the session has port %d, had %d", again, port)
	}
	b.refused(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1501, 53, 4)}, NotClient)
	b.refused(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1500, 54, 4)}, NotClient)
	b.refused(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(54, port, 4)}, NotClient)
	b.one(b.in(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(54, 7000, 4)}))
	b.restart(all)
	b.guarded(clientA, false)
	b.one(b.in(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(54, port, 4)}))
}

// restart goes on as another engine over the same table, with these clients.
func (b *bench) restart(clients []netip.Prefix) {
	b.t.Helper()
	s := b.changed(func(s *Settings) { s.Clients = clients })
	prefixes, _ := b.Prefixes()
	e, _, err := Resume(s, Earlier{Prefixes: prefixes, Now: b.now}, b.table, start.Add(-time.Hour), randomness())
	if err != nil {
		b.t.Fatal(err)
	}
	b.Engine = e
}

// TestPrefixTakenOutIsNotChosen: who comes first from the IPv4 side has a prefix that is named.
func TestPrefixTakenOutIsNotChosen(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	if err := b.Reconfigure(b.changed(func(s *Settings) {
		s.Translate.Prefixes = []translate.Prefix{prefix6(t, "2001:db8:65::/96")}
	})); err != nil {
		t.Fatal(err)
	}
	b.wants(b.in(pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(54, port, 4)}),
		pkt{src: "2001:db8:65::198.51.100.2", dst: clientA, hop: 63, proto: udpProto, payload: udpMsg(54, 1500, 4)})
}
