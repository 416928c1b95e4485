// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo/client"
)

// reportEvery is how often a fast path tells the engine what it has carried.
const reportEvery = time.Second

// fastModel is what the eBPF programs and their loader do for a client, in memory:
// it has no eyes but the journal of the engine, and stamps at most once a second.
type fastModel struct {
	n           *clientNode
	established bool
	peers       map[[16]byte]*client.FastChange
	heard, sent time.Time // of any peer
	reported    time.Time
	out, in     int // packets carried
}

func fastPath(c *client.Config) { c.FastPeers = 1000 }

// follow does what the journal says.
func (m *fastModel) follow() {
	if err := m.n.engine.CheckFast(); err != nil {
		m.n.w.t.Fatalf("after %v: %v", m.n.w.net.Now().Sub(start), err)
	}
	for _, change := range m.n.engine.FastChanges() {
		switch {
		case !change.Gone:
			m.peers[change.Peer] = &change
		case change.Peer == [16]byte{}:
			clear(m.peers)
		default:
			delete(m.peers, change.Peer)
		}
	}
}

// plain returns a packet that needs nothing but its outer header.
func plain(b []byte) (packet.IPv6, bool) {
	p, rest, ok := packet.ParseIPv6(b)
	if !ok || len(rest) > 0 || len(p) > 1280 {
		return nil, false
	}
	switch p.NextHeader() {
	case packet.ProtoTCP, packet.ProtoUDP:
		return p, true
	case packet.ProtoICMPv6:
		return p, !p.IsNeighborDiscovery()
	}
	return nil, false
}

func stamp(t *time.Time, now time.Time) {
	if now.Sub(*t) >= time.Second {
		*t = now
	}
}

// fromHost carries a packet of the host, or returns false.
func (m *fastModel) fromHost(b []byte) bool {
	now := m.n.w.net.Now()
	p, ok := plain(b)
	if !ok || p.Src() != m.n.address() {
		return false
	}
	e := m.peers[*p.DstBytes()]
	if e == nil || now.Sub(e.Heard) >= client.FastSend {
		return false
	}
	stamp(&e.Sent, now)
	m.sent = now
	m.out++
	m.n.transmit(e.Socket, e.Mapping, p)
	return true
}

// fromNet carries a packet of a peer, or returns false.
func (m *fastModel) fromNet(socket int, from netip.AddrPort, b []byte) bool {
	now := m.n.w.net.Now()
	p, ok := plain(b)
	if !ok || p.Dst() != m.n.address() {
		return false
	}
	e := m.peers[*p.SrcBytes()]
	if e == nil || e.Mapping != from || e.Socket != socket || now.Sub(e.Heard) >= client.FastReceive ||
		m.established && now.Sub(e.Sent) >= client.FastContact || e.Tested && p.NextHeader() == packet.ProtoICMPv6 {
		return false
	}
	stamp(&e.Heard, now)
	m.heard = now
	m.in++
	m.n.deliver(p)
	return true
}

// report tells the engine what was carried.
func (m *fastModel) report(now time.Time) {
	m.n.engine.FastTraffic(m.heard, m.sent)
	if now.Sub(m.reported) < reportEvery {
		return
	}
	m.reported = now
	for key, e := range m.peers {
		m.n.engine.FastPassed(&key, e.Heard, e.Sent)
	}
}

// next is when the model wants to report.
func (m *fastModel) next() time.Time {
	if len(m.peers) == 0 {
		return time.Time{}
	}
	return m.reported.Add(reportEvery)
}
