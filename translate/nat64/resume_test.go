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

// resumed is the engine of the next process over the bench's table.
func (b *bench) resumed(change func(*Settings), left Earlier) (*bench, Ended) {
	b.t.Helper()
	z := b.table.Sizes()
	table, adopted, err := state.Open(z, b.memory, [state.Seeds]uint64{})
	if err != nil || !adopted {
		b.t.Fatal(adopted, err)
	}
	if left.Prefixes == nil {
		left.Prefixes, _ = b.Prefixes()
	}
	left.Now = b.now
	s := testSettings(b.t)
	if change != nil {
		change(&s)
	}
	e, ended, err := Resume(s, left, table, b.epoch, randomness())
	if err != nil {
		b.t.Fatalf("it does not start: %v", err)
	}
	for _, static := range left.Static {
		if err := e.AddStatic(static); err != nil {
			b.t.Errorf("it does not start: %v", err)
		}
	}
	return &bench{Engine: e, t: b.t, now: b.now, memory: b.memory}, ended
}

// keptEngine makes an engine whose memory another may have later.
func keptEngine(t *testing.T, z state.Sizes, change func(*Settings)) *bench {
	t.Helper()
	m := state.HeapMemory(z)
	table, _, err := state.Open(z, m, [state.Seeds]uint64{3, 5, 7, 9, 11, 13, 15, 17})
	if err != nil {
		t.Fatal(err)
	}
	b := engineOver(t, table, change)
	b.memory = m
	return b
}

// TestResumeKeeps: what is in no one's way goes on.
func TestResumeKeeps(t *testing.T) {
	b := keptEngine(t, testSizes, nil)
	port := b.openUDP(clientA, 1500, server6)
	next, ended := b.resumed(func(s *Settings) {
		s.Translate.Prefixes = []translate.Prefix{prefix6(t, "2001:db8:65::/96")}
		s.Pool4 = []Range{{Prefix: netip.MustParsePrefix("203.0.113.9/32")}}
	}, Earlier{})
	if ended != (Ended{}) {
		t.Errorf("ended %+v", ended)
	}
	if got := next.openUDP(clientA, 1500, server6); got != port {
		t.Errorf("the session has port %d, had %d", got, port)
	}
}

// TestResumeStatic: sessions that hold one side of a static binding end, whatever they are.
func TestResumeStatic(t *testing.T) {
	const inside = "[" + clientA + "]:1500"
	b := keptEngine(t, testSizes, nil)
	port := b.openUDP(clientA, 1500, server6)
	other := b.openUDP(clientA, 1501, server6)
	bind := func(in string, out uint16) Static {
		return Static{state.UDP, netip.MustParseAddrPort(in), netip.AddrPortFrom(netip.MustParseAddr(poolIP), out)}
	}
	for _, tt := range []struct {
		name   string
		static Static
		ended  int
	}{
		{"the pair of a session", bind(inside, port), 0},
		{"a port that another holds", bind("[2001:db8:1::99]:80", other), 1},
		{"a client's port that is bound elsewhere", bind(inside, 8080), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b.t = t
			next, ended := b.resumed(nil, Earlier{Static: []Static{tt.static}})
			if ended != (Ended{Displaced: tt.ended}) {
				t.Errorf("ended %+v, want %d", ended, tt.ended)
			}
			b = next
		})
	}
}

// TestResumeExpired: what is over holds nothing, and is not said to be displaced.
func TestResumeExpired(t *testing.T) {
	b := keptEngine(t, testSizes, nil)
	port := b.openUDP(clientA, 1500, server6)
	b.now = b.now.Add(time.Hour)
	static := Static{state.UDP, netip.MustParseAddrPort("[2001:db8:1::99]:80"), netip.AddrPortFrom(netip.MustParseAddr(poolIP), port)}
	if _, ended := b.resumed(nil, Earlier{Static: []Static{static}}); ended != (Ended{Expired: 1}) {
		t.Errorf("ended %+v", ended)
	}
}

// TestResumeFullPool: a pool that has been renumbered takes the place of the least used
// addresses.
func TestResumeFullPool(t *testing.T) {
	z := testSizes
	z.Addresses = 2
	b := keptEngine(t, z, func(s *Settings) {
		s.Pool4 = []Range{{Prefix: netip.MustParsePrefix("203.0.113.0/31")}}
	})
	clients := map[string][]string{}
	for i := range 6 {
		client := fmt.Sprintf("2001:db8:1:%x::1", i)
		got := b.one(b.in(pkt{src: client, dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 4)}))
		clients[srcAddr(got)] = append(clients[srcAddr(got)], client)
	}
	few, many := clients["203.0.113.0"], clients["203.0.113.1"]
	if len(few) > len(many) {
		few, many = many, few
	}
	next, ended := b.resumed(func(s *Settings) { s.Pool4 = []Range{{Prefix: netip.MustParsePrefix("198.51.100.200/32")}} }, Earlier{})
	if ended != (Ended{Displaced: len(few)}) {
		t.Errorf("ended %+v, want the %d of one address, not the %d of the other", ended, len(few), len(many))
	}
	next, ended = next.resumed(func(s *Settings) { s.Pool4 = []Range{{Prefix: netip.MustParsePrefix("198.51.100.202/31")}} }, Earlier{})
	if ended != (Ended{Displaced: len(many)}) {
		t.Errorf("ended %+v, want the %d of all", ended, len(many))
	}
	next.one(next.in(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1500, 53, 4)}))
}

// TestResumeFullPool6: a new prefix gets the number of the one that has the fewest sessions.
func TestResumeFullPool6(t *testing.T) {
	var all []translate.Prefix
	for i := range MaxPrefixes {
		all = append(all, prefix6(t, fmt.Sprintf("2001:db8:64:%x::/96", i)))
	}
	b := keptEngine(t, testSizes, func(s *Settings) { s.Translate.Prefixes = all })
	for i := range MaxPrefixes {
		for port := range uint16(1 + i%3) {
			b.in(pkt{src: clientA, dst: fmt.Sprintf("2001:db8:64:%x::198.51.100.2", i), proto: udpProto, payload: udpMsg(1500+uint16(i)*4+port, 53, 4)})
		}
	}
	next, ended := b.resumed(func(s *Settings) { s.Translate.Prefixes = []translate.Prefix{prefix6(t, "2001:db8:65::/96")} }, Earlier{})
	if ended != (Ended{Displaced: 1}) {
		t.Errorf("ended %+v, want one", ended)
	}
	next.one(next.in(pkt{src: clientA, dst: "2001:db8:65::198.51.100.2", proto: udpProto, payload: udpMsg(1600, 53, 4)}))
	// What no one has a session of is in no one's way.
	b.now = b.now.Add(time.Hour)
	if _, ended := b.resumed(func(s *Settings) { s.Translate.Prefixes = []translate.Prefix{prefix6(t, "2001:db8:66::/96")} }, Earlier{}); ended.Displaced != 0 {
		t.Errorf("ended %+v, want none that live", ended)
	}
}
