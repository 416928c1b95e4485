// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"math"
	"time"

	"github.com/isthmus-net/isthmus/teredo/peer"
)

// Specification constants of random ports.
const (
	portRefresh      = 30 * time.Second // peer refresh timer (RFC 6081 section 5.4.2)
	maxPortRefreshes = 20               // since the last data (RFC 6081 section 5.4.2.1)
)

// Implementation constants of random ports.
const (
	// FirstRandomSocket is the index of the first socket of a random port, as in
	// [packet.Datagram]; lower ones are for sockets that are there all the time.
	FirstRandomSocket = 16

	// DefaultRandomPorts bounds the random ports that are open at once.
	DefaultRandomPorts = 64

	// portPatience is how long a random port waits for a proof: as long as the
	// peer goes on with its attempts, and a little more.
	portPatience = maxAttempts*retryInterval + 2*time.Second

	// Random ports lie in the dynamic range (RFC 6335 section 6).
	firstPort, numPorts = 49152, 1 << 14
)

// SocketChange asks for a socket on a random port, or for its end. It has to be
// done before the datagrams of the same [Out] are sent; when a socket cannot be
// opened, [Client.SocketFailed] is called.
type SocketChange struct {
	// Socket is the index by which datagrams name the socket from now on.
	Socket int
	// Port is the local UDP port to bind; 0 closes the socket.
	Port uint16
}

// randomPort is a local port beside the service port, by which one peer is
// reached (RFC 6081 sections 5.4.1 and 5.5.1).
type randomPort struct {
	local  uint16   // 0: the slot is free
	peer   [16]byte // whom it is for
	proved bool     // Direct Receive on Random Port
	gone   bool     // its peer is forgotten; to be closed

	// external is the port that the NAT is predicted to have given, the Random
	// Port of RFC 6081; 0 while there is no prediction.
	external  uint16
	guess     prediction
	refreshes int // Connection Refresh Count
	expires   peer.Instant
}

// due is when the port wants attention.
func (p *randomPort) due() peer.Instant {
	switch {
	case p.gone:
		return 0
	case p.guess.running:
		return min(p.guess.due, p.expires)
	}
	return p.expires
}

// randomPorts are all ports of a client. The slots are few, so that a walk over
// them costs nothing beside a packet's other work.
type randomPorts struct {
	slots []randomPort
	open  int
	due   peer.Instant // not after any port's; far off when none is open
}

const farOff = peer.Instant(math.MaxInt64)

// wake makes sure that a port's timer is seen.
func (r *randomPorts) wake(p *randomPort) { r.due = min(r.due, p.due()) }

// portOf returns the random port of an effort, or nil.
func (c *Client) portOf(f *effort) *randomPort {
	if f == nil || f.slot == 0 {
		return nil
	}
	return &c.ports.slots[f.slot-1]
}

// socketOf returns the socket by which a peer is reached; f may be nil.
func socketOf(f *effort) int {
	if f == nil || f.slot == 0 {
		return 0
	}
	return FirstRandomSocket + int(f.slot) - 1
}

// portOn returns the port of a socket and its peer; nil when the socket is none
// or was closed.
func (c *Client) portOn(socket int) (*randomPort, *peer.Entry, *effort) {
	i := socket - FirstRandomSocket
	if i < 0 || i >= len(c.ports.slots) || c.ports.slots[i].local == 0 || c.ports.slots[i].gone {
		return nil, nil, nil
	}
	p := &c.ports.slots[i]
	e := c.peers.Lookup(&p.peer)
	return p, e, c.peers.Cold(e)
}

// openPort opens a random port for a peer and returns nil when all are in use.
// Half of them are kept for peers that the host itself sends to, so that bubbles
// of strangers cannot take them all.
func (c *Client) openPort(e *peer.Entry, f *effort, at peer.Instant, out *Out) *randomPort {
	limit := len(c.ports.slots)
	if f.phase != bubbling {
		limit /= 2
	}
	if c.ports.open >= limit {
		c.stats.RandomPortsRefused++
		return nil
	}
	for i := range c.ports.slots {
		p := &c.ports.slots[i]
		if p.local != 0 {
			continue
		}
		*p = randomPort{local: c.pickPort(), peer: e.Key, expires: at.Add(portPatience)}
		c.withdraw(&e.Key)
		f.slot = uint16(i + 1)
		c.ports.open++
		c.ports.wake(p)
		c.stats.RandomPorts++
		out.Sockets = append(out.Sockets, SocketChange{Socket: socketOf(f), Port: p.local})
		return p
	}
	return nil
}

// pickPort draws a local port that is not in use here.
func (c *Client) pickPort() uint16 {
	for {
		port := uint16(firstPort + c.random.Uint64()%numPorts)
		if port != c.local.Port() && port != c.search.port && !c.holdsPort(port) {
			return port
		}
	}
}

func (c *Client) holdsPort(port uint16) bool {
	for i := range c.ports.slots {
		if c.ports.slots[i].local == port {
			return true
		}
	}
	return false
}

// closePort closes the random port of a peer, if it has one, and forgets what
// was learnt about the peer's.
func (c *Client) closePort(f *effort, out *Out) {
	f.peerPort, f.heard = 0, way{}
	if f.slot == 0 {
		return
	}
	out.Sockets = append(out.Sockets, SocketChange{Socket: socketOf(f)})
	c.freePort(f.slot)
	f.slot = 0
}

func (c *Client) freePort(slot uint16) {
	c.withdraw(&c.ports.slots[slot-1].peer)
	c.ports.slots[slot-1] = randomPort{}
	c.ports.open--
}

// abandonPort marks the port of a peer that is being forgotten; the next tick
// closes it.
func (c *Client) abandonPort(f *effort) {
	if p := c.portOf(f); p != nil {
		p.gone = true
		c.ports.wake(p)
		f.slot = 0
	}
}

// SocketFailed reports that the socket of a random port could not be opened. The
// attempt goes on without, and its next repeat tries another port.
func (c *Client) SocketFailed(socket int, port uint16) {
	if socket == SearchSocket && port == c.search.port {
		c.search = search{} // the interval stays as it is
	}
	if p, _, f := c.portOn(socket); p != nil && p.local == port {
		c.stats.RandomPortsRefused++
		c.freePort(f.slot)
		f.slot = 0
	}
}

// tickPorts does what is due for random ports.
func (c *Client) tickPorts(now time.Time, out *Out) {
	at := c.clock.At(now)
	if c.ports.open == 0 || at < c.ports.due {
		return
	}
	for i := range c.ports.slots {
		if p := &c.ports.slots[i]; p.local != 0 && p.due() <= at {
			c.portDue(FirstRandomSocket+i, at, now, out)
		}
	}
	c.ports.due = farOff
	for i := range c.ports.slots {
		if p := &c.ports.slots[i]; p.local != 0 {
			c.ports.wake(p)
		}
	}
}

// portDue does what is due for one port.
func (c *Client) portDue(socket int, at peer.Instant, now time.Time, out *Out) {
	p, e, f := c.portOn(socket)
	switch {
	case p == nil: // gone
		out.Sockets = append(out.Sockets, SocketChange{Socket: socket})
		c.freePort(uint16(socket - FirstRandomSocket + 1))
	case p.guess.running && p.guess.due <= at:
		c.predictionLate(e, f, p, at, now, out)
	case p.proved:
		c.refreshPort(e, f, p, at, out)
	default:
		c.closePort(f, out)
	}
}

// refreshPort keeps the way through a random port open while the host is silent,
// for a time (RFC 6081 section 5.4.2.1). Behind that the port goes, and the next
// packet of the host starts again.
func (c *Client) refreshPort(e *peer.Entry, f *effort, p *randomPort, at peer.Instant, out *Out) {
	p.guess = prediction{}
	switch {
	case at.Sub(e.Tx) <= portRefresh:
		p.refreshes = 0
	case p.refreshes < maxPortRefreshes:
		p.refreshes++
		c.sendDirectBy(way{socketOf(f), e.Mapped()}, e, f, bubble{}, out)
	case !valid(e, at):
		c.distrust(e)
		c.closePort(f, out)
		return
	}
	p.expires = at.Add(portRefresh)
}

// nextPort is when tickPorts has something to do next.
func (c *Client) nextPort() time.Time {
	if c.ports.open == 0 {
		return time.Time{}
	}
	return c.clock.Time(c.ports.due)
}
