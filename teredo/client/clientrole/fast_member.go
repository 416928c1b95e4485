// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"maps"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/teredobpf"
)

// fastMember is one client's part of the fast path.
type fastMember struct {
	fast   *fastPath
	c      *Client
	number uint32

	// The mutex of fast guards what follows.
	own     netip.Addr // Teredo address; not valid: none
	held    bool       // the network changes: nothing is carried
	peers   map[[16]byte]client.FastChange
	ways    map[netip.Addr]fastWay // to IPv4 addresses, as far as they are known
	missing []netip.Addr           // whose ways are to be found
	changes int                    // of the network: ways found before one are worth nothing
	refused string                 // why the way to a peer was of no use, the last time

	// Only the goroutine of fast.inside uses these.
	heard, sent time.Duration // as reported last
	reported    time.Time
}

// fastWay is how packets to an IPv4 address leave the host; device 0 is not by the
// fast path.
type fastWay struct {
	device int
	source netip.Addr
}

// settle does what an engine's call asks for; the loop of the engine is locked.
func (m *fastMember) settle(out *client.Out, changes []client.FastChange) {
	if len(changes) == 0 && len(out.Events) == 0 {
		return
	}
	m.fast.mu.Lock()
	defer m.fast.mu.Unlock()
	for _, c := range changes {
		switch {
		case !c.Gone:
			m.peers[c.Peer] = c
			m.place(&c)
			m.fast.Nudge() // it may have been idle
		case c.Peer == [16]byte{}:
			m.removeAll()
			clear(m.peers)
		default:
			delete(m.peers, c.Peer)
			m.remove(&c.Peer)
		}
	}
	for _, e := range out.Events {
		switch e.Kind {
		case client.GotAddress, client.AddressChanged, client.AddressLost:
			m.end()
			m.own = e.Address
			m.begin()
		}
	}
}

// begin has the client's address carried.
func (m *fastMember) begin() {
	if !m.fast.carries || m.held || !m.own.IsValid() {
		return
	}
	m.c.conn.Merge(false)
	// Without it everything goes to the engine, which is slower and no fault.
	_ = m.fast.host.SetClient(m.own, teredobpf.HostClient{
		Number: m.number, Established: m.fast.cfg.Unsolicited == UnsolicitedEstablished,
	})
	for _, c := range m.peers {
		m.place(&c)
	}
}

// end leaves the client's address to the engine, with all its peers.
func (m *fastMember) end() {
	if m.fast.carries && m.own.IsValid() {
		_ = m.fast.host.RemoveClient(m.own)
		m.c.conn.Merge(true)
	}
}

// place puts a peer into the table, or has the way to it found.
func (m *fastMember) place(c *client.FastChange) {
	if !m.fast.carries || m.held {
		return
	}
	to := c.Mapping.Addr()
	way, known := m.ways[to]
	if !known {
		m.missing = append(m.missing, to)
		m.fast.Nudge()
		return
	}
	local, ok := m.c.conn.LocalAddr().Port(), true
	if c.Socket != 0 {
		local, ok = m.c.sockets.port(c.Socket)
	}
	if way.device == 0 || !ok {
		m.remove(&c.Peer)
		return
	}
	epoch := port.MonotonicEpoch()
	_ = m.fast.host.Put(m.number, &c.Peer, teredobpf.Endpoint{
		Mapping: c.Mapping, Own: netip.AddrPortFrom(way.source, local), Device: way.device,
		Tested: c.Tested, Heard: c.Heard.Sub(epoch), Sent: c.Sent.Sub(epoch),
	})
}

// remove leaves a peer to the engine.
func (m *fastMember) remove(peer *[16]byte) {
	if m.fast.carries {
		_ = m.fast.host.Delete(m.number, peer)
	}
}

// removeAll leaves all peers to the engine.
func (m *fastMember) removeAll() {
	if m.fast.carries {
		_ = m.fast.host.DeleteAll(m.number, maps.Keys(m.peers))
	}
}

// hold leaves everything to the engine while the network changes.
func (m *fastMember) hold() {
	m.fast.mu.Lock()
	defer m.fast.mu.Unlock()
	m.end()
	m.held = true
	m.changes++
}

// release goes on, by ways that are found again.
func (m *fastMember) release() {
	m.fast.LinksChanged() // devices may have come or gone
	m.fast.mu.Lock()
	defer m.fast.mu.Unlock()
	m.held = false
	clear(m.ways)
	m.removeAll()
	m.begin()
	m.fast.Nudge()
}

// leave ends the membership.
func (m *fastMember) leave() {
	m.fast.mu.Lock()
	defer m.fast.mu.Unlock()
	m.end()
	m.removeAll()
	clear(m.peers)
	m.own = netip.Addr{}
	for i, other := range m.fast.members {
		if other == m {
			m.fast.members = append(m.fast.members[:i], m.fast.members[i+1:]...)
			return
		}
	}
}

// look reports what was carried since the last look, and whether there may be more. It
// runs on the thread of the fast path.
func (m *fastMember) look() (any bool) {
	heard, sent, any := m.traffic()
	if !any {
		return false
	}
	if heard != m.heard || sent != m.sent {
		m.heard, m.sent = heard, sent
		m.c.loop.Do(func(time.Time, *client.Out) { m.c.engine.FastTraffic(instant(heard), instant(sent)) })
	}
	if now := time.Now(); now.Sub(m.reported) >= fastReport {
		m.reported = now
		m.report()
	}
	return true
}

// traffic returns when the fast path last carried packets; any reports whether there
// are peers that it might carry for.
func (m *fastMember) traffic() (heard, sent time.Duration, any bool) {
	m.fast.mu.Lock()
	defer m.fast.mu.Unlock()
	if !m.fast.carries || !m.own.IsValid() || len(m.peers) == 0 {
		return 0, 0, false
	}
	heard, sent = m.fast.host.Traffic(m.own)
	return heard, sent, true
}

// tick tells the engine of the latest traffic before it looks at it itself.
func (m *fastMember) tick() {
	if heard, sent, any := m.traffic(); any {
		m.c.engine.FastTraffic(instant(heard), instant(sent))
	}
}

// passed are the times of one peer.
type passed struct {
	peer        [16]byte
	heard, sent time.Time
}

// report gives the engine the times of each peer.
func (m *fastMember) report() {
	list := m.collect()
	if len(list) == 0 {
		return
	}
	m.c.loop.Do(func(time.Time, *client.Out) {
		for i := range list {
			m.c.engine.FastPassed(&list[i].peer, list[i].heard, list[i].sent)
		}
	})
	if m.fast.sent == nil {
		return
	}
	for i := range list {
		if !list[i].sent.IsZero() {
			m.fast.sent(&list[i].peer, list[i].sent)
		}
	}
}

// collect lists the peers whose times have changed since the last time, and keeps
// what it sees, for the case that they are placed again.
func (m *fastMember) collect() (list []passed) {
	m.fast.mu.Lock()
	defer m.fast.mu.Unlock()
	if !m.fast.carries {
		return nil
	}
	epoch := port.MonotonicEpoch()
	_ = m.fast.host.Walk(func(number uint32, peer [16]byte, heard, sent time.Duration) {
		c, ok := m.peers[peer]
		if number != m.number || !ok {
			return
		}
		p := passed{peer: peer}
		if at := epoch.Add(heard); at.Sub(c.Heard) >= time.Millisecond {
			p.heard, c.Heard = at, at
		}
		if at := epoch.Add(sent); at.Sub(c.Sent) >= time.Millisecond {
			p.sent, c.Sent = at, at
		}
		if !p.heard.IsZero() || !p.sent.IsZero() {
			m.peers[peer] = c
			list = append(list, p)
		}
	})
	return list
}

// instant makes a time of CLOCK_MONOTONIC one of Go; 0 is none.
func instant(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return port.MonotonicEpoch().Add(d)
}

// fastEngine is the engine with a look at the fast path before each tick.
type fastEngine struct {
	*client.Client
	member *fastMember
}

// Tick implements [Engine].
func (e *fastEngine) Tick(now time.Time, out *client.Out) {
	e.member.tick()
	e.Client.Tick(now, out)
}
