// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// Client is one Teredo client. Make it with [New], start it with
// [Client.Start]; it then works as soon as it has servers and a local address.
type Client struct {
	cfg    Config
	global teredo.GlobalCheck
	random *rand.ChaCha8
	clock  peer.Clock
	stats  Stats

	running bool
	native  bool
	state   State
	local   netip.AddrPort // not valid: no IPv4
	servers []Server
	current int // index into servers

	primary, secondary solicitation
	retryAt            time.Time     // of OffLine
	backoff            time.Duration // of OffLine
	lastServer         time.Time     // last packet from the server (RFC 4380 section 5.2)
	refreshAfter       time.Duration // the randomised interval in force

	last qualification // kept, so that an old mapping gets its old address back
	own  [16]byte      // Teredo address while qualified
	link netip.Addr    // link-local address of the server: source of ICMPv6 errors
	nat  NAT

	peers   *peer.Table[effort]
	budget  peer.Budget
	relays  relays
	sweepAt time.Time
	evicted uint64 // by tables of earlier addresses

	perPeer, perOrigin *ratelimit.PerSource
	answers, errors    ratelimit.Bucket
	scratch            [40]byte // for random values, so that none is allocated
}

var (
	answersLimit = ratelimit.PerSecond(answersInAll, answersInAllBurst)
	errorsLimit  = ratelimit.PerSecond(errorsPerSecond, errorsBurst)
)

// qualification is what makes an address.
type qualification struct {
	server  netip.Addr
	prefix  netip.Prefix
	mapping netip.AddrPort
	address netip.Addr
}

// New makes a client that is not started.
func New(cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := &Client{
		cfg:    cfg,
		global: teredo.GlobalCheck{Allow: cfg.AllowPrivate},
		budget: peer.Budget{QueuePackets: cfg.QueuePackets, QueueBytes: cfg.QueueBytes, TotalBytes: cfg.QueueTotalBytes},
	}
	// One reading of the source seeds a stream cipher: it is as good, costs no
	// system call per nonce, and cannot fail later.
	var seed [32]byte
	if _, err := io.ReadFull(cfg.Rand, seed[:]); err != nil {
		return nil, fmt.Errorf("no random seed for the client: %w", err)
	}
	c.random = rand.NewChaCha8(seed)
	var err error
	if c.perPeer, err = ratelimit.NewPerSource(ratelimit.PerSecond(answersPerPeer, answersPerPeerBurst), limiterBuckets, c.random); err != nil {
		return nil, err
	}
	if c.perOrigin, err = ratelimit.NewPerSource(ratelimit.PerSecond(answersPerOrigin, answersPerOriginBurst), limiterBuckets, c.random); err != nil {
		return nil, err
	}
	c.newTable()
	return c, nil
}

// Start lets the client work.
func (c *Client) Start(now time.Time, out *Out) {
	if c.running {
		return
	}
	c.running = true
	c.clock = peer.Clock{Epoch: now}
	c.sweepAt = now.Add(sweepInterval)
	c.begin(now, out)
}

// Stop gives the address up and ends all work; Start begins anew.
func (c *Client) Stop(out *Out) {
	c.lose(CauseStopped, out)
	c.idle(Initial)
	c.running = false
}

// SetServers replaces the list of servers, which are asked in this order. A
// server in use that is in the new list too stays in use.
func (c *Client) SetServers(servers []Server, now time.Time, out *Out) {
	inUse := c.server()
	c.servers = slices.Clone(servers)
	for i := range c.servers {
		if s := &c.servers[i]; s.Secondary == s.Primary {
			s.Secondary = netip.Addr{}
		}
	}
	c.current = max(slices.Index(c.servers, inUse), 0)
	if c.server() == inUse && c.state != Initial {
		return
	}
	c.lose(CauseServersChanged, out)
	c.begin(now, out)
}

// LocalChanged tells the IPv4 address and port of the service socket, at the
// start and whenever the address or its route has changed, and the directed
// broadcast addresses of the host's networks. Not valid: the host has no IPv4.
// A solicitation leaves at once, without waiting for the refresh timer.
func (c *Client) LocalChanged(local netip.AddrPort, broadcasts []netip.Addr, now time.Time, out *Out) {
	c.local = local
	c.global.Broadcasts = slices.Clone(broadcasts)
	switch {
	case !local.IsValid():
		c.lose(CauseNoIPv4, out)
		c.idle(Initial)
	case c.state == Qualified:
		c.solicit(&c.primary, c.server().Primary, now, out)
	default:
		c.begin(now, out)
	}
}

// NativeChanged tells whether the host has native IPv6: then it must not be a
// Teredo client (RFC 4380 section 5.5). An operator who wants one all the same
// does not call it.
func (c *Client) NativeChanged(native bool, now time.Time, out *Out) {
	if native == c.native {
		return
	}
	c.native = native
	if native {
		c.lose(CauseNativeIPv6, out)
	}
	c.begin(now, out)
}

// Tick does what is due.
func (c *Client) Tick(now time.Time, out *Out) {
	if !c.running {
		return
	}
	c.tickQualification(now, out)
	c.tickPeers(now, out)
}

// Next returns when Tick has something to do next; zero is never.
func (c *Client) Next() time.Time {
	if !c.running {
		return time.Time{}
	}
	next := c.nextQualification()
	if at, ok := c.peers.NextDeadline(); ok {
		next = earlier(next, c.clock.Time(at))
	}
	if all, _ := c.peers.Len(); all > 0 {
		next = earlier(next, c.sweepAt)
	}
	return next
}

// earlier returns the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// server returns the server in use, or the zero Server.
func (c *Client) server() Server {
	if c.current < len(c.servers) {
		return c.servers[c.current]
	}
	return Server{}
}

// fill fills b with randomness; a ChaCha8 never fails.
func (c *Client) fill(b []byte) { _, _ = c.random.Read(b) }

// Snapshot is the state of a client for people.
type Snapshot struct {
	State   State
	Local   netip.AddrPort
	Server  netip.Addr
	Address netip.Addr     // valid while qualified
	Mapping netip.AddrPort // likewise
	NAT     NAT
	// Peers, and how many of them are trusted; Queued is in bytes.
	Peers, Trusted, Queued int
}

// Snapshot returns the state of the client.
func (c *Client) Snapshot() Snapshot {
	s := Snapshot{State: c.state, Local: c.local, Server: c.server().Primary, Queued: c.budget.Used()}
	s.Peers, s.Trusted = c.peers.Len()
	if c.state == Qualified {
		s.Address, s.Mapping, s.NAT = c.last.address, c.last.mapping, c.nat
	}
	return s
}

// Stats returns the counters.
func (c *Client) Stats() Stats {
	s := c.stats
	s.Evictions = c.evicted + c.peers.Evictions()
	return s
}
