// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// foreign is an UPDATE of a neighbor, with routes of its own.
func foreign(t *testing.T, as uint32, prefixes ...string) *bgp.BGPMessage {
	t.Helper()
	hop, err := bgp.NewPathAttributeNextHop(netip.MustParseAddr("127.0.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	var list []bgp.PathNLRI
	for _, p := range prefixes {
		nlri, err := bgp.NewIPAddrPrefix(netip.MustParsePrefix(p))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, bgp.PathNLRI{NLRI: nlri})
	}
	return bgp.NewBGPUpdateMessage(nil, []bgp.PathAttributeInterface{
		bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP),
		bgp.NewPathAttributeAsPath([]bgp.AsPathParamInterface{bgp.NewAs4PathParam(bgp.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{as})}), hop,
	}, list)
}

// toldUntil reads what a neighbor is told of IPv4 up to a prefix.
func toldUntil(t *testing.T, session net.Conn, last string) (prefixes []string) {
	t.Helper()
	for !slices.Contains(prefixes, last) {
		update, ok := receive(t, session).Body.(*bgp.BGPUpdate)
		if !ok {
			continue
		}
		for _, n := range update.NLRI {
			prefixes = append(prefixes, n.NLRI.String())
		}
	}
	slices.Sort(prefixes)
	return prefixes
}

// received is how many routes neighbors have sent.
func received(s *Speaker) (n uint64) {
	s.peers(func(p *api.Peer) {
		for _, family := range p.AfiSafis {
			n += family.State.Received
		}
	})
	return n
}

// TestNoTransit has one of two neighbors send routes, by eBGP: the other hears of ours alone. It is not parallel: the
// library has a variable that all speakers of a process write.
func TestNoTransit(t *testing.T) {
	none := func(int) error { return nil }
	one, other := listen(t, "127.0.0.2:0", none), listen(t, "127.0.0.3:0", none)
	cfg := settings()
	cfg.Neighbors = []config.Neighbor{
		{Address: netip.MustParseAddr("127.0.0.2"), AS: 64513, Port: uint16(one.port())},
		{Address: netip.MustParseAddr("127.0.0.3"), AS: 64514, Port: uint16(other.port())},
	}
	s, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(false)
	const early, late = "192.0.2.1/32", "192.0.2.2/32"
	if err := errors.Join(s.Announce(netip.MustParsePrefix(early)), s.AddPeers()); err != nil {
		t.Fatal(err)
	}
	from, to := one.call(t), other.call(t)
	answer(t, from, 64513)
	answer(t, to, 64514)
	toldUntil(t, from, early)
	toldUntil(t, to, early)
	send(t, from, foreign(t, 64513, "0.0.0.0/0", "203.0.113.0/24"))
	for deadline := time.Now().Add(testutil.Patience); received(s) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the routes of the neighbor did not arrive")
		}
	}
	if err := s.Announce(netip.MustParsePrefix(late)); err != nil {
		t.Fatal(err)
	}
	if got := toldUntil(t, to, late); !slices.Equal(got, []string{late}) {
		t.Errorf("a neighbor was told %v, want %s alone", got, late)
	}
}
