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

	running   bool
	native    bool // the host has native IPv6
	state     State
	local     netip.AddrPort // not valid: no IPv4
	servers   []Server
	current   int    // index into servers
	ranks     []rank // of servers, by the same index
	scout     scout
	silence   silence
	reopening reopening
	why       Cause // of the next change of the address

	credential         credential
	authenticated      bool // the server has proved to have our key
	refused            bool // a server of this round refused our key
	primary, secondary solicitation
	comparison         comparison    // by secondary
	retryAt            time.Time     // of OffLine and Refused
	backoff            time.Duration // likewise
	lastServer         time.Time     // last packet from the server (RFC 4380 section 5.2)
	refreshAfter       time.Duration // the randomised interval in force

	last qualification // kept, so that an old mapping gets its old address back
	own  [16]byte      // Teredo address while qualified
	link netip.Addr    // link-local address of the server: source of ICMPv6 errors
	nat  NAT

	reserved netip.AddrPort // by the gateway, for us; not valid: none

	interval time.Duration // between messages to the server, at most
	search   search

	subnet                 netip.Prefix // of local; not valid: not known
	discovered, discoverAt time.Time    // last and next local discovery bubble
	seeking                ratelimit.Bucket

	bindings [maxBindings]binding // the first is with the relay of Config.Fallback

	peers   *peer.Table[effort]
	budget  peer.Budget
	relays  relays
	sweepAt time.Time
	evicted uint64 // by tables of earlier addresses

	ports randomPorts

	fastPeers   map[[16]byte]fastPeer
	fastChanges []FastChange

	perPeer         *ratelimit.PerSource
	perOrigin       *ratelimit.Fair
	strangers       strangers
	answers, errors ratelimit.Bucket
	alternates      ratelimit.Bucket
	scratch         [40]byte // for random values, so that none is allocated
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
		cfg:      cfg,
		global:   teredo.GlobalCheck{Allow: cfg.AllowPrivate},
		interval: cfg.Refresh,
		budget:   peer.Budget{QueuePackets: cfg.QueuePackets, QueueBytes: cfg.QueueBytes, TotalBytes: cfg.QueueTotalBytes},

		credential: newCredential(cfg.Credential),
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
	if c.perOrigin, err = ratelimit.NewFair(ratelimit.PerSecond(answersPerNetwork, answersPerNetworkBurst), limiterBuckets, c.random); err != nil {
		return nil, err
	}
	if c.strangers, err = newStrangers(c); err != nil {
		return nil, err
	}
	c.newTable()
	c.fastPeers = make(map[[16]byte]fastPeer)
	c.ports = randomPorts{slots: make([]randomPort, max(cfg.RandomPorts, 0)), due: farOff}
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

// Stop gives the address up and ends all work; Start begins again.
func (c *Client) Stop(out *Out) {
	c.lose(CauseStopped, c.clock.Epoch, out)
	c.reopening = reopening{}
	c.idle(Initial)
	c.tickPorts(c.clock.Epoch, out)
	c.running = false
}

// SetServers replaces the list of servers, which are asked in this order. A
// server in use that is in the new list too stays in use.
func (c *Client) SetServers(servers []Server, now time.Time, out *Out) {
	inUse, before := c.server(), c.servers
	c.servers = slices.Clone(servers)
	for i := range c.servers {
		if s := &c.servers[i]; s.Secondary == s.Primary {
			s.Secondary = netip.Addr{}
		}
	}
	c.keepRanks(before)
	c.current = max(slices.Index(c.servers, inUse), 0)
	if c.server() == inUse && c.state != Initial {
		return
	}
	c.lose(CauseServersChanged, now, out)
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
		c.lose(CauseNoIPv4, now, out)
		c.idle(Initial)
	case c.state == Qualified:
		c.why = CauseLocalChanged
		c.Examine(now, out)
	default:
		c.begin(now, out)
	}
}

// NativeChanged reports whether the host has native IPv6: then it must not be a
// Teredo client (RFC 4380 section 5.5), or be one in reserve alone, if
// Config.Standby is set. An operator who wants one all the same does not call it.
func (c *Client) NativeChanged(native bool, now time.Time, out *Out) {
	if native == c.native {
		return
	}
	c.native = native
	switch {
	case c.cfg.Standby:
		out.Events = append(out.Events, Event{Kind: StandbyChanged, Standby: native, Address: c.address()})
		return // nothing else: what was proved of server and peers still holds
	case native:
		c.lose(CauseNativeIPv6, now, out)
	}
	c.begin(now, out)
}

// standsBy reports whether native IPv6 is there, and the address for those alone who bind to it.
func (c *Client) standsBy() bool { return c.native && c.cfg.Standby }

// address is the Teredo address; not valid: there is none.
func (c *Client) address() netip.Addr {
	if c.state != Qualified {
		return netip.Addr{}
	}
	return c.last.address
}

// Tick does what is due.
func (c *Client) Tick(now time.Time, out *Out) {
	if !c.running {
		return
	}
	c.tickQualification(now, out)
	c.tickPorts(now, out) // before peers use ports that are due to close
	c.tickBindings(now, out)
	c.tickDiscovery(now, out)
	c.tickSearch(now, out)
	c.tickPeers(now, out)
}

// Next returns when Tick has something to do next; zero is never.
func (c *Client) Next() time.Time {
	if !c.running {
		return time.Time{}
	}
	next := earlier(earlier(c.nextQualification(), c.nextPort()), c.nextBinding())
	next = earlier(earlier(next, c.nextDiscovery()), c.nextSearch())
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
	Standby bool // native IPv6 is there, and the address, if any, for those alone who bind to it
	Local   netip.AddrPort
	Server  netip.Addr
	Address netip.Addr     // valid while qualified
	Mapping netip.AddrPort // likewise
	NAT     NAT
	// PortMapped: the gateway has reserved our port (the UPnP-Enabled NAT flag of
	// RFC 6081 section 5.3.1). UPnPMapped is the address and port that it has
	// reserved, not valid where they are those of Mapping.
	PortMapped bool
	UPnPMapped netip.AddrPort
	// Authenticated: the server has proved to have our key.
	Authenticated bool
	// Interval is the longest time between messages to the server.
	Interval time.Duration
	// Servers are ranked, the best first.
	Servers []ServerRank
	// Peers, and how many of them are trusted; Queued is in bytes.
	Peers, Trusted, Queued int
	// RandomPorts are open beside the service port.
	RandomPorts int
	Fallback    Fallback
}

// Fallback is the state of the client at its own relay for peers that no direct
// way leads to.
type Fallback struct {
	Relay   netip.AddrPort // not valid: none is configured
	Until   time.Time      // the relay carries for this client until then; zero: it has not yet
	Mapping netip.AddrPort // of this client, as the relay sees it
}

// Snapshot returns the state of the client.
func (c *Client) Snapshot() Snapshot {
	s := Snapshot{
		State: c.state, Standby: c.standsBy(), Local: c.local, Server: c.server().Primary, Interval: c.interval,
		Queued: c.budget.Used(), RandomPorts: c.ports.open, Servers: c.ranking(),
		PortMapped: c.reserved.IsValid(), UPnPMapped: c.upnpMapped(),
	}
	s.Peers, s.Trusted = c.peers.Len()
	if c.state == Qualified {
		s.Address, s.Mapping, s.NAT = c.last.address, c.last.mapping, c.nat
		s.Authenticated = c.authenticated
		s.Fallback = Fallback{Relay: c.cfg.Fallback, Until: c.bindings[0].until, Mapping: c.bindings[0].mapping}
	}
	return s
}

// Stats returns the counters.
func (c *Client) Stats() Stats {
	s := c.stats
	s.Evictions = c.evicted + c.peers.Evictions()
	return s
}
