// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nattest

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// Each kind against RFC 4787: is the mapping the same towards two remote
// endpoints, and who gets in after a packet went out to the first?
func TestKinds(t *testing.T) {
	inside := netip.MustParseAddrPort("192.168.1.2:3551")
	a := netip.MustParseAddrPort("203.0.113.1:3544")
	samePort := netip.MustParseAddrPort("203.0.113.2:3544")
	sameAddr := netip.MustParseAddrPort("203.0.113.1:9999")
	now := time.Unix(0, 0)
	for _, tt := range []struct {
		kind                     Kind
		one, sameAddrIn, otherIn bool
	}{
		{FullCone, true, true, true},
		{AddressRestricted, true, true, false},
		{PortRestricted, true, false, false},
		{SymmetricRandom, false, false, false},
		{SymmetricSequential, false, false, false},
		{SymmetricPreserving, false, false, false},
		{SymmetricPreservingSequential, false, false, false},
	} {
		t.Run(tt.kind.Name, func(t *testing.T) {
			n := NewNAT(tt.kind, netip.MustParseAddr("198.51.100.7"))
			first := n.Outbound(inside, a, now)
			in := func(from netip.AddrPort, at time.Time) bool {
				got, ok := n.Inbound(from, first.Port(), at)
				return ok && got == inside
			}
			if !in(a, now) {
				t.Error("the answer does not get in")
			}
			if got := in(sameAddr, now); got != tt.sameAddrIn {
				t.Errorf("another port of the same address gets in: %v", got)
			}
			if got := in(samePort, now); got != tt.otherIn {
				t.Errorf("another address gets in: %v", got)
			}
			if in(a, now.Add(n.Timeout)) {
				t.Error("the mapping does not time out")
			}
			if got := n.Outbound(inside, samePort, now) == first; got != tt.one {
				t.Errorf("one mapping for two addresses: %v", got)
			}
		})
	}
}

func TestSequentialPortsCountUp(t *testing.T) {
	n := NewNAT(SymmetricSequential, netip.MustParseAddr("198.51.100.7"))
	inside := netip.MustParseAddrPort("192.168.1.2:3551")
	now := time.Unix(0, 0)
	a := n.Outbound(inside, netip.MustParseAddrPort("203.0.113.1:3544"), now)
	b := n.Outbound(inside, netip.MustParseAddrPort("203.0.113.2:3544"), now)
	if b.Port() != a.Port()+1 {
		t.Errorf("ports %d and %d", a.Port(), b.Port())
	}
}

// The first mapping of a local port keeps it, later ones do not; another local
// port keeps its own.
func TestPreservedPorts(t *testing.T) {
	now := time.Unix(0, 0)
	fresh := netip.MustParseAddrPort("192.168.1.2:3999")
	inside := netip.MustParseAddrPort("192.168.1.2:3551")
	a, b := netip.MustParseAddrPort("203.0.113.1:3544"), netip.MustParseAddrPort("203.0.113.2:3544")
	for _, kind := range []Kind{SymmetricPreserving, SymmetricPreservingSequential} {
		n := NewNAT(kind, netip.MustParseAddr("198.51.100.7"))
		first, second, other := n.Outbound(inside, a, now), n.Outbound(inside, b, now), n.Outbound(fresh, b, now)
		if first.Port() != 3551 || second.Port() == 3551 || other.Port() != 3999 {
			t.Errorf("%s: ports %d, %d and %d", kind.Name, first.Port(), second.Port(), other.Port())
		}
		if next := n.Outbound(fresh, a, now).Port(); (next == second.Port()+1) != kind.Sequential {
			t.Errorf("%s: port %d behind %d", kind.Name, next, second.Port())
		}
		if again := n.Outbound(inside, b, now.Add(n.Timeout)); again.Port() != 3551 {
			t.Errorf("%s: port %d when all have timed out", kind.Name, again.Port())
		}
	}
}

// With open input an early packet costs the mapping its port towards the sender,
// and one that is awaited does not.
func TestOpenInput(t *testing.T) {
	now := time.Unix(0, 0)
	inside := netip.MustParseAddrPort("192.168.1.2:3551")
	server, early := netip.MustParseAddrPort("203.0.113.1:3544"), netip.MustParseAddrPort("203.0.113.2:7")
	for _, open := range []bool{false, true} {
		n := NewNAT(PortRestricted, netip.MustParseAddr("198.51.100.7"))
		n.OpenInput = open
		mapped := n.Outbound(inside, server, now)
		if _, ok := n.Inbound(early, mapped.Port(), now); ok {
			t.Fatal("the early packet gets in")
		}
		if kept := n.Outbound(inside, early, now) == mapped; kept == open {
			t.Errorf("open %v: mapping kept: %v", open, kept)
		}
		moved := n.Outbound(inside, early, now)
		if got, ok := n.Inbound(early, moved.Port(), now); !ok || got != inside {
			t.Errorf("open %v: the answer does not get in", open)
		}
		if n.Outbound(inside, server, now) != mapped {
			t.Errorf("open %v: the mapping towards others has changed", open)
		}
	}
}

// catcher is a node that remembers who sent to it.
type catcher struct{ from []netip.AddrPort }

func (c *catcher) Receive(from, _ netip.AddrPort, _ []byte, _ time.Time) {
	c.from = append(c.from, from)
}
func (c *catcher) Tick(time.Time)  {}
func (c *catcher) Next() time.Time { return time.Time{} }

// Two nodes behind one NAT, at their private and public addresses.
func TestNeighbours(t *testing.T) {
	a, b := netip.MustParseAddrPort("192.168.1.2:3551"), netip.MustParseAddrPort("192.168.1.3:3552")
	for _, hairpin := range []bool{false, true} {
		network := NewNetwork(time.Unix(0, 0), time.Millisecond)
		nat := NewNAT(FullCone, netip.MustParseAddr("198.51.100.7"))
		nat.Hairpin = hairpin
		var nodeA, nodeB, outside catcher
		network.AttachBehind(nat, &nodeA, a.Addr())
		network.AttachBehind(nat, &nodeB, b.Addr())
		host := netip.MustParseAddrPort("203.0.113.1:3544")
		network.Attach(&outside, host.Addr())
		network.Send(b, host, nil)
		network.Run(time.Second)
		network.Send(a, b, nil)
		network.Run(time.Second)
		want := []netip.AddrPort{a}
		network.Send(a, outside.from[0], nil)
		network.Run(time.Second)
		if hairpin {
			want = append(want, netip.AddrPortFrom(nat.Public, a.Port()))
		}
		if !slices.Equal(nodeB.from, want) {
			t.Errorf("hairpin %v: from %v, want %v", hairpin, nodeB.from, want)
		}
	}
}

// A time to live that ends between the NATs opens the own one.
func TestTimeToLive(t *testing.T) {
	network := NewNetwork(time.Unix(0, 0), time.Millisecond)
	network.Hops = 4
	nat := NewNAT(PortRestricted, netip.MustParseAddr("198.51.100.7"))
	inside, host := netip.MustParseAddrPort("192.168.1.2:3551"), netip.MustParseAddrPort("203.0.113.1:3544")
	var node, outside catcher
	network.AttachBehind(nat, &node, inside.Addr())
	network.Attach(&outside, host.Addr())
	network.Send(inside, host, nil, 4)
	network.Run(time.Second)
	if len(outside.from) != 0 {
		t.Error("a packet lived longer than its time")
	}
	network.Send(host, netip.AddrPortFrom(nat.Public, inside.Port()), nil)
	network.Run(time.Second)
	if len(node.from) != 1 {
		t.Error("the NAT is not open")
	}
	network.Send(inside, host, nil, 5)
	network.Run(time.Second)
	if len(outside.from) != 1 {
		t.Error("a packet died before its time")
	}
}

// Jitter changes the order between paths, never within one, and is the same again
// with the same seed.
func TestJitter(t *testing.T) {
	run := func(seed uint64) (order []uint16) {
		network := NewNetwork(time.Unix(0, 0), time.Millisecond)
		network.Jitter = 50 * time.Millisecond
		network.Seed(seed)
		var sender, host catcher
		from, to := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddrPort("203.0.113.1:7")
		network.Attach(&sender, from)
		network.Attach(&host, to.Addr())
		network.Trace = func(from, _ netip.AddrPort, payload []byte, _ bool) {
			order = append(order, from.Port()<<8|uint16(payload[0]))
		}
		for i := range byte(20) {
			network.Send(netip.AddrPortFrom(from, uint16(1+i%2)), to, []byte{i})
		}
		network.Run(time.Second)
		return order
	}
	one := run(1)
	if !slices.Equal(one, run(1)) || slices.Equal(one, run(2)) {
		t.Error("the seed does not decide")
	}
	last, overtaken := map[uint16]uint16{}, false
	for i, x := range one {
		path, n := x>>8, x&0xff
		if n < last[path] {
			t.Errorf("%d came behind %d of its path", n, last[path])
		}
		last[path] = n
		overtaken = overtaken || int(n) != i
	}
	if !overtaken {
		t.Error("nothing was overtaken")
	}
}
