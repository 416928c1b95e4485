// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nattest

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// Node is a host: it receives datagrams and does what its timer asks for. What
// it sends goes to [Network.Send].
type Node interface {
	Receive(from, to netip.AddrPort, payload []byte, now time.Time)
	Tick(now time.Time)
	// Next is when Tick has something to do; zero is never.
	Next() time.Time
}

// Network carries datagrams between nodes with one delay for all.
type Network struct {
	Delay time.Duration
	// Jitter adds up to as much to the delay of each datagram, from a seeded
	// source; those from one endpoint to another stay in order.
	Jitter time.Duration
	// Hops is how many routers a packet passes before it is at the NAT of its
	// destination, its own NAT included; one whose time to live is not larger
	// has opened its own NAT and gets no further.
	Hops uint8
	// Trace, if set, sees each datagram that arrives at a public address or at a
	// node, with its source as seen there, and whether a NAT dropped it.
	Trace func(from, to netip.AddrPort, payload []byte, dropped bool)

	now    time.Time
	public map[netip.Addr]Node
	nats   map[netip.Addr]*NAT
	inside map[netip.Addr]attached
	nodes  []Node
	flying []datagram // in the order of arrival
	random *rand.Rand
	last   map[[2]netip.AddrPort]time.Time // arrival of the last datagram of a path
}

type attached struct {
	node Node
	nat  *NAT
}

type datagram struct {
	at       time.Time
	from, to netip.AddrPort
	payload  []byte
	lost     bool // on its way
}

// NewNetwork makes an empty network at a time.
func NewNetwork(now time.Time, delay time.Duration) *Network {
	return &Network{Delay: delay, random: rand.New(rand.NewPCG(1, 2)), last: map[[2]netip.AddrPort]time.Time{}, now: now, public: map[netip.Addr]Node{}, nats: map[netip.Addr]*NAT{}, inside: map[netip.Addr]attached{}}
}

// Seed makes the jitter another one.
func (n *Network) Seed(seed uint64) { n.random = rand.New(rand.NewPCG(seed, 2)) }

// Now returns the virtual time.
func (n *Network) Now() time.Time { return n.now }

// Attach gives a node public addresses.
func (n *Network) Attach(node Node, addrs ...netip.Addr) {
	n.nodes = append(n.nodes, node)
	for _, a := range addrs {
		n.public[a] = node
	}
}

// AttachBehind puts a node with a private address behind a NAT. The address is
// unique in the network.
func (n *Network) AttachBehind(nat *NAT, node Node, addr netip.Addr) {
	if !slices.Contains(n.nodes, node) {
		n.nodes = append(n.nodes, node)
	}
	n.nats[nat.Public] = nat
	n.inside[addr] = attached{node, nat}
}

// Renumber gives a NAT another public address; its mappings are lost.
func (n *Network) Renumber(nat *NAT, public netip.Addr) {
	delete(n.nats, nat.Public)
	nat.Public = public
	n.nats[public] = nat
	nat.Restart()
}

// Send takes a datagram from a node's own address; ttl is its time to live, 0 for
// one that suffices. Nodes behind one NAT are neighbours and reach each other at
// their private addresses.
func (n *Network) Send(from, to netip.AddrPort, payload []byte, ttl ...uint8) {
	d := datagram{from: from, to: to, payload: bytes.Clone(payload)}
	a, behind := n.inside[from.Addr()]
	if behind && n.neighbour(a.nat, to.Addr()) == nil {
		d.from = a.nat.Outbound(from, to, n.now)
		d.lost = to.Addr() == a.nat.Public && !a.nat.Hairpin
		for _, t := range ttl {
			d.lost = d.lost || t > 0 && t <= n.Hops
		}
	}
	d.at = n.arrival(d.from, d.to)
	later := func(f datagram) bool { return f.at.After(d.at) }
	if i := slices.IndexFunc(n.flying, later); i >= 0 {
		n.flying = slices.Insert(n.flying, i, d)
		return
	}
	n.flying = append(n.flying, d)
}

// arrival is when a datagram sent now is there.
func (n *Network) arrival(from, to netip.AddrPort) time.Time {
	at := n.now.Add(n.Delay)
	if n.Jitter == 0 {
		return at
	}
	at = at.Add(time.Duration(n.random.Int64N(int64(n.Jitter))))
	path := [2]netip.AddrPort{from, to}
	if last := n.last[path]; at.Before(last) {
		at = last
	}
	n.last[path] = at
	return at
}

// neighbour returns the node of a private address behind a NAT, or nil.
func (n *Network) neighbour(nat *NAT, addr netip.Addr) Node {
	if b, ok := n.inside[addr]; ok && nat != nil && b.nat == nat {
		return b.node
	}
	return nil
}

// deliver hands a datagram to its node, through the NAT of its destination.
func (n *Network) deliver(d datagram) {
	node, to := n.receiver(d)
	if n.Trace != nil {
		n.Trace(d.from, d.to, d.payload, node == nil)
	}
	if node != nil {
		node.Receive(d.from, to, d.payload, n.now)
	}
}

// receiver returns the node that gets a datagram, or nil, and at which address.
func (n *Network) receiver(d datagram) (Node, netip.AddrPort) {
	if d.lost {
		return nil, d.to
	}
	if a, ok := n.inside[d.from.Addr()]; ok { // from a neighbour
		return n.neighbour(a.nat, d.to.Addr()), d.to
	}
	if nat := n.nats[d.to.Addr()]; nat != nil {
		if inside, ok := nat.Inbound(d.from, d.to.Port(), n.now); ok {
			return n.inside[inside.Addr()].node, inside
		}
		return nil, d.to
	}
	return n.public[d.to.Addr()], d.to
}

// Run lets d pass.
func (n *Network) Run(d time.Duration) {
	n.RunUntil(d, func() bool { return false })
}

// RunUntil lets time pass until done or for at most d, and reports whether done
// was reached.
func (n *Network) RunUntil(d time.Duration, done func() bool) bool {
	end := n.now.Add(d)
	for !done() {
		at, ok := n.next()
		if !ok || at.After(end) {
			n.now = end
			return done()
		}
		if at.After(n.now) {
			n.now = at
		}
		n.step()
	}
	return true
}

// step does what is due now: one arrival, or all timers.
func (n *Network) step() {
	if len(n.flying) > 0 && !n.flying[0].at.After(n.now) {
		d := n.flying[0]
		n.flying = n.flying[1:]
		n.deliver(d)
		return
	}
	for _, node := range n.nodes {
		if t := node.Next(); !t.IsZero() && !t.After(n.now) {
			node.Tick(n.now)
		}
	}
}

// next returns the time of the next arrival or timer.
func (n *Network) next() (at time.Time, ok bool) {
	if len(n.flying) > 0 {
		at, ok = n.flying[0].at, true
	}
	for _, node := range n.nodes {
		if t := node.Next(); !t.IsZero() && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	return at, ok
}
