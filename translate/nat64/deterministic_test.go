// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"testing"
)

// TestRFC7422Vector: 14 clients share an address, two shares are kept for leases.
func TestRFC7422Vector(t *testing.T) {
	d := Deterministic{Compression: 14, Dynamic: 2, Reserved: 1024}
	if got := d.Share(1); got != 4032 {
		t.Fatalf("share %d", got)
	}
	for _, tt := range []struct {
		client      uint64
		address     uint64
		first, last int
	}{{0, 0, 1024, 5055}, {1, 0, 5056, 9087}, {13, 0, 53440, 57471}, {14, 1, 1024, 5055}} {
		address, first, last := d.Range(tt.client, 1)
		if address != tt.address || first != tt.first || last != tt.last {
			t.Errorf("client %d: address %d, ports %d-%d", tt.client, address, first, last)
		}
		for _, port := range []int{tt.first, tt.last} {
			if got, ok := d.Client(tt.address, port, 1); !ok || got != tt.client {
				t.Errorf("port %d of address %d: client %d, %t", port, tt.address, got, ok)
			}
		}
	}
	if got := d.dynamicFirst(1); got != 57472 {
		t.Errorf("leases begin at %d", got)
	}
	for _, port := range []int{0, 1023, 57472, 65535} {
		if got, ok := d.Client(0, port, 1); ok {
			t.Errorf("port %d is client %d's", port, got)
		}
	}
}

func deterministic(s *Settings) {
	s.Clients = []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/62"), netip.MustParsePrefix("2001:db8:2::/48")}
	s.Pool4 = []Range{{Prefix: netip.MustParsePrefix("203.0.113.0/30")}}
	s.Deterministic = &Deterministic{Compression: 16, Dynamic: 4, Reserved: 1024}
	s.Limits.ClientBlocks = 2
}

// TestDeterministicPorts: a client's ports are those that are calculated, without a log,
// and beyond them leases with one (RFC 7422).
func TestDeterministicPorts(t *testing.T) {
	sizes := testSizes
	sizes.Sessions = 4096
	b := engineOver(t, newTable(t, sizes), deterministic)
	const client = "2001:db8:2:11::1" // the 18th after the 4 of the first prefix: number 21
	where := b.WhereInside(netip.MustParseAddr(client))
	share := b.settings.Deterministic.Share(256)
	if len(where) != 1 || !where[0].Calculated || where[0].Pool != netip.MustParseAddr("203.0.113.1") ||
		int(where[0].First) != 1024+5*share || int(where[0].Last) != 1024+6*share-1 {
		t.Fatalf("where %+v, share %d", where, share)
	}
	for i := range share {
		port := b.openUDP(client, uint16(1000+i), server6)
		if port < where[0].First || port > where[0].Last {
			t.Fatalf("port %d after %d others", port, i)
		}
		if len(b.out.Events) != 0 {
			t.Fatalf("events %+v", b.out.Events)
		}
		if got, ok := b.WhereOutside(where[0].Pool, port); !ok || got != where[0] {
			t.Fatalf("port %d belongs to %+v", port, got)
		}
	}
	port := b.openUDP(client, 999, server6)
	started := b.events(BlockStart)
	if int(port) < b.settings.Deterministic.dynamicFirst(256) || len(started) != 1 {
		t.Fatalf("port %d, events %+v", port, b.out.Events)
	}
	got, ok := b.WhereOutside(where[0].Pool, port)
	if !ok || got.Calculated || got.First != started[0].First || got.Client != where[0].Client {
		t.Errorf("port %d belongs to %+v", port, got)
	}
	if where := b.WhereInside(netip.MustParseAddr(client)); len(where) != 2 || where[1].Calculated {
		t.Errorf("where %+v", where)
	}
}

// TestLeasesBesideCalculation: what is leased to one client is bounded, so that one cannot take
// what all share.
func TestLeasesBesideCalculation(t *testing.T) {
	const own, none = "2001:db8:2:11::1", "2001:db8:2:ffff::1" // whose number is beyond the pool
	for _, tt := range []struct {
		client string
		blocks int // of 256 ports
	}{{own, 12 + 2}, {none, 2}} {
		sizes := testSizes
		sizes.Sessions = 8192
		b := engineOver(t, newTable(t, sizes), deterministic)
		for i := range tt.blocks * 256 {
			b.openUDP(tt.client, uint16(1024+i), server6)
		}
		b.in(pkt{src: tt.client, dst: server6, proto: udpProto, payload: udpMsg(1023, 53, 4)})
		b.in(pkt{src: tt.client, dst: server6, proto: udpProto, payload: udpMsg(60000, 53, 4)})
		if n := b.Stats().Dropped[NoPort]; n < 1 || b.Engine.Sizes().Blocks != tt.blocks {
			t.Errorf("%s has %d blocks, want %d; dropped %v", tt.client, b.Engine.Sizes().Blocks, tt.blocks, b.drops())
		}
	}
}

// TestAddressForLeases: who has no ports by calculation goes to an address where some are leased.
func TestAddressForLeases(t *testing.T) {
	sizes := testSizes
	sizes.Sessions, sizes.Subscribers = 8192, 256
	b := engineOver(t, newTable(t, sizes), func(s *Settings) {
		deterministic(s)
		s.Deterministic.Dynamic = 1
		s.Limits.ClientBlocks = maxBlocks
	})
	room := (65536 - b.settings.Deterministic.dynamicFirst(256)) / 256
	for n := range 4 * room { // a block for each client
		client := netip.MustParsePrefix("2001:db8:2::/48").Addr().As16()
		client[6], client[7], client[15] = 0xf0, byte(n), 1
		b.openUDP(netip.AddrFrom16(client).String(), 1500, server6)
	}
	b.in(pkt{src: "2001:db8:2:ffff::1", dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 4)})
	if n := b.Stats().Dropped[NoAddress]; n != 1 {
		t.Errorf("dropped %v", b.drops())
	}
}

func TestWhereWithoutCalculation(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	got, ok := b.WhereOutside(netip.MustParseAddr(poolIP), port)
	if !ok || got.Client != netip.MustParsePrefix("2001:db8:1::/64") || got.First > port || got.Last < port {
		t.Errorf("%+v, %t", got, ok)
	}
	if where := b.WhereInside(netip.MustParseAddr(clientA)); len(where) != 1 || where[0] != got {
		t.Errorf("%+v", where)
	}
	if _, ok := b.WhereOutside(netip.MustParseAddr(poolIP), port^0x8000); ok {
		t.Error("a port that no one has is somebody's")
	}
	if where := b.WhereInside(netip.MustParseAddr(clientB)); len(where) != 0 {
		t.Errorf("%+v", where)
	}
}

// TestBlocksWithinPool: blocks are told and logged with their ports that are in the pool,
// also when the pool changes meanwhile.
func TestBlocksWithinPool(t *testing.T) {
	b := engine(t, ports(20000, 20010)) // blocks of 256 ports begin at 19968
	port := b.openUDP(clientA, 1500, server6)
	started := b.events(BlockStart)
	if len(started) != 1 || started[0].First != 20000 || started[0].Last != 20010 {
		t.Errorf("logged %+v", started)
	}
	s := b.settings
	s.Pool4 = []Range{{Prefix: netip.MustParsePrefix(poolIP + "/32"), First: 30000, Last: 30999}}
	if err := b.Reconfigure(s); err != nil {
		t.Fatal(err)
	}
	want := Block{Client: netip.MustParsePrefix("2001:db8:1::/64"), Pool: netip.MustParseAddr(poolIP), First: 20000, Last: 20010}
	if got, ok := b.WhereOutside(want.Pool, port); !ok || got != want {
		t.Errorf("port %d is of %+v", port, got)
	}
	if got := b.WhereInside(netip.MustParseAddr(clientA)); len(got) != 1 || got[0] != want {
		t.Errorf("the client has %+v", got)
	}
	b.Blocks(0, 1<<20, func(got Block) bool {
		if got != want {
			t.Errorf("listed %+v", got)
		}
		return true
	})
}

// TestRecalculatedPorts: who holds ports when the calculation changes is the one whom they are
// asked for and who is logged, until that ends.
func TestRecalculatedPorts(t *testing.T) {
	b := engine(t, func(s *Settings) { deterministic(s); s.Clients = s.Clients[:1] })
	holder, other := "2001:db8:1:0::1", "2001:db8:9:0::1"
	port := b.openUDP(holder, 1500, server6)
	pool := b.WhereInside(netip.MustParseAddr(holder))[0].Pool
	if len(b.out.Events) != 0 {
		t.Fatalf("events %+v", b.out.Events)
	}
	clients := []netip.Prefix{netip.MustParsePrefix("2001:db8:9::/62"), netip.MustParsePrefix("2001:db8:1::/62")}
	renewed := func(when string) {
		t.Helper()
		got, ok := b.WhereOutside(pool, port)
		if !ok || got.Client != netip.MustParsePrefix("2001:db8:1::/64") || got.Calculated {
			t.Errorf("%s: port %d belongs to %+v", when, port, got)
		}
		if where := b.WhereInside(netip.MustParseAddr(holder)); len(where) != 2 || !where[0].Calculated || where[1] != got {
			t.Errorf("%s: the holder has %+v", when, where)
		}
		if where := b.WhereInside(netip.MustParseAddr(other)); len(where) != 0 {
			t.Errorf("%s: the client of that range has %+v", when, where)
		}
		b.pass(sweepRound + sweepEvery)
		if started := b.events(BlockStart); len(started) != 1 || started[0].Client != got.Client || started[0].First > port || started[0].Last < port {
			t.Errorf("%s: events %+v", when, started)
		}
	}
	if err := b.Reconfigure(b.changed(func(s *Settings) { s.Clients = clients })); err != nil {
		t.Fatal(err)
	}
	renewed("reload")
	b.restart(clients)
	renewed("restart")
	b.pass(b.settings.Timers.UDP + b.settings.Timers.Quarantine + 3*sweepRound)
	if stopped := b.events(BlockStop); len(stopped) != 1 || stopped[0].First > port || stopped[0].Last < port {
		t.Errorf("events %+v", stopped)
	}
	if got, ok := b.WhereOutside(pool, port); !ok || got.Client != netip.MustParsePrefix("2001:db8:9::/64") || !got.Calculated {
		t.Errorf("port %d belongs to %+v", port, got)
	}
}
