// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"time"

	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// Config is the settings of a relay. Those marked fixed are read by [New] alone.
type Config struct {
	// Host makes a host-specific relay (RFC 4380 section 5.4): it serves the host
	// it runs on, so it takes no hop off, and clients may speak first. Fixed.
	Host bool
	// Prefixes are the Teredo service prefixes, /32, that the relay reaches.
	// Fixed.
	Prefixes []netip.Prefix
	// Serve are the IPv6 ranges that clients may send to (RFC 4380 section
	// 5.4.2). Prefixes are never among them.
	Serve []netip.Prefix
	// Address is the source of ICMPv6 errors; not valid: none are sent.
	Address netip.Addr
	// Own are the host's IPv4 addresses and Port the relay's UDP port: packets
	// from them, or to clients that claim one of them, would loop.
	Own  []netip.Addr
	Port uint16
	// Global decides which IPv4 addresses may be sent to (RFC 4380 section 5.2.4).
	Global teredo.GlobalCheck
	// MTU is the largest IPv6 packet for clients, in bytes.
	MTU int
	// MaxPeers bounds the trusted peers; a quarter of that, and 65536 at most,
	// may be under test. Fixed.
	MaxPeers int
	// Memory is where the trusted peers lie: peer.HotBytes(MaxPeers) zero bytes.
	// Nil: the relay takes its own. Fixed.
	Memory []byte
	// Shared, if not nil, is what a fast path outside this program reads beside
	// Memory, which then may hold peers. Fixed.
	Shared *Shared
	// Epoch is the time from which the instants in Memory count; zero is that of
	// [New]. Fixed.
	Epoch time.Time
	// PeerTimeout is how long after its last packet a peer stays valid; 30 s in
	// RFC 4380 section 5.2.4.
	PeerTimeout time.Duration
	// QueuePackets and QueueBytes bound what waits for one peer, QueueTotalBytes
	// what waits in all.
	QueuePackets, QueueBytes, QueueTotalBytes int
	// BubbleRate bounds the bubbles a second, and with them the new peers, also
	// those that a host-specific relay makes without bubbles; 0 is no limit.
	BubbleRate int
	// ICMPRate bounds the ICMPv6 errors a second; 0 is no limit. One network gets a quarter
	// of them.
	ICMPRate int
	// BehindNAT sends each bubble to the client's mapped address too, which opens
	// the relay's own NAT (RFC 4380 section 5.4.1).
	BehindNAT bool
	// EchoThroughServer sends the answers to connectivity tests by the client's
	// server too; see echo.go.
	EchoThroughServer bool
	// CarryClients lets clients bind themselves to the relay, which then carries
	// packets between them; see carry.go. CarryRate bounds these packets a second
	// in all, CarryClientRate those that one client sends; 0 is no limit.
	CarryClients               bool
	CarryRate, CarryClientRate int
}

// Shared is what a relay shares with a fast path outside the program.
type Shared struct {
	Seed      peer.Seed    // of the hash of Memory
	Foreign   peer.Foreign // mappings that are not in the clients' addresses
	UnderTest peer.Filter  // clients that bubbles go to, or went in vain
}

// Ages are the ages of a peer's last packet below which the quick way, and a fast
// path outside the program, sends to the peer and takes packets from it.
func (c *Config) Ages() (send, receive time.Duration) { return c.refresh(), c.memory() }

// refresh is the age at which a peer that is sent to is asked for a sign of life.
func (c *Config) refresh() time.Duration { return c.PeerTimeout * refreshNum / refreshDen }

// memory is how long this relay remembers a peer that has fallen silent.
func (c *Config) memory() time.Duration { return max(memory, c.PeerTimeout) }

// check returns an error when the relay could not work with c.
func (c *Config) check() error {
	if len(c.Prefixes) == 0 {
		return errors.New("no Teredo prefix given: set at least one /32")
	}
	for _, p := range c.Prefixes {
		if p.Bits() != 32 || !p.Addr().Is6() {
			return fmt.Errorf("prefix %s cannot be a Teredo prefix: it must be an IPv6 /32", p)
		}
	}
	if c.PeerTimeout <= 0 {
		return fmt.Errorf("peer timeout %s is not positive", c.PeerTimeout)
	}
	if c.MTU < teredo.MTU {
		return fmt.Errorf("MTU %d is below %d, the least that IPv6 allows", c.MTU, teredo.MTU)
	}
	return nil
}

// New makes a relay whose clock starts at now and whose secrets come from rand,
// which must be a cryptographic source.
func New(cfg Config, now time.Time, rand io.Reader) (*Relay, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	r := &Relay{clock: peer.Clock{Epoch: cfg.Epoch}}
	if cfg.Epoch.IsZero() {
		r.clock.Epoch = now
	}
	for _, p := range cfg.Prefixes {
		r.prefixes = append(r.prefixes, [4]byte(p.Addr().AsSlice()))
	}
	var err error
	if r.key, err = newKey(rand); err != nil {
		return nil, err
	}
	unlimited := ratelimit.Limit{} // apply sets the limits
	if r.perSource, err = ratelimit.NewFair(unlimited, ratelimit.DefaultBuckets, rand); err != nil {
		return nil, err
	}
	if r.errorSources, err = ratelimit.NewFair(unlimited, ratelimit.DefaultBuckets, rand); err != nil {
		return nil, err
	}
	if r.perServer, err = ratelimit.NewPerSource(unlimited, ratelimit.DefaultBuckets, rand); err != nil {
		return nil, err
	}
	if !cfg.Host { // or all that waits is of one source
		if r.budget.Sources, err = ratelimit.NewHeld(ratelimit.DefaultBuckets, rand); err != nil {
			return nil, err
		}
	}
	strangers := ratelimit.PerSecond(strangerRate, strangerBurst)
	if r.perStranger, err = ratelimit.NewPerSource(strangers, ratelimit.DefaultBuckets, rand); err != nil {
		return nil, err
	}
	untrusted := max(min(maxUntrusted, cfg.MaxPeers/untrustedShare), 1)
	r.tests = peer.NewTable(peer.Limits{Peers: 2 * untrusted, Untrusted: untrusted}, r.evicted)
	r.cfg.MaxPeers = cfg.MaxPeers
	if err = r.makeHot(&cfg, now, rand); err != nil {
		return nil, err
	}
	r.unpublished = make([][16]byte, 0, publishRoom)
	if err = r.carriage.init(rand); err != nil {
		return nil, err
	}
	r.apply(cfg)
	r.review = -1
	return r, nil
}

// makeHot makes the table of trusted peers, or takes over the one that is there.
func (r *Relay) makeHot(cfg *Config, now time.Time, rand io.Reader) (err error) {
	memory := cfg.Memory
	if memory == nil {
		memory = make([]byte, peer.HotBytes(cfg.MaxPeers))
	}
	if cfg.Shared == nil {
		r.hot, err = peer.NewHot(memory, cfg.MaxPeers, r.prefixes, rand)
		return err
	}
	r.hot, err = peer.OpenHot(memory, cfg.MaxPeers, r.prefixes, cfg.Shared.Seed, cfg.Shared.Foreign, r.clock.At(now))
	r.share(cfg.Shared, now)
	return err
}

// Move lays the table of trusted peers over other memory, which a fast path reads if
// shared is not nil, and takes over the peers that are there; those that it had are
// forgotten. Like the other methods it needs the lock, and no lane may be in use.
func (r *Relay) Move(memory []byte, shared *Shared, now time.Time) error {
	if shared == nil {
		shared = &Shared{Seed: r.hot.Seed()}
	}
	hot, err := peer.OpenHot(memory, r.cfg.MaxPeers, r.prefixes, shared.Seed, shared.Foreign, r.clock.At(now))
	if err == nil {
		r.hot = hot
		r.share(shared, now)
	}
	return err
}

// share begins to work with what a fast path reads too.
func (r *Relay) share(shared *Shared, now time.Time) {
	r.late = nil
	r.tests.SetFilter(nil)
	if shared.UnderTest != nil {
		r.late = newLateFilter(shared.UnderTest)
		r.tests.SetFilter(r.late)
	}
	if r.hot != nil {
		r.sweepAt = r.clock.At(now).Add(r.sweepInterval())
	}
}

// Reconfigure applies all settings of cfg that are not fixed and keeps the peers.
func (r *Relay) Reconfigure(cfg Config) error {
	if err := cfg.check(); err != nil {
		return err
	}
	cfg.Host, cfg.Prefixes, cfg.MaxPeers = r.cfg.Host, r.cfg.Prefixes, r.cfg.MaxPeers
	cfg.Memory, cfg.Shared, cfg.Epoch = nil, nil, time.Time{}
	r.apply(cfg)
	return nil
}

func (r *Relay) apply(cfg Config) {
	if !reflect.DeepEqual(cfg.Own, r.cfg.Own) || !reflect.DeepEqual(cfg.Global, r.cfg.Global) {
		r.review = 0
	}
	r.cfg = cfg
	r.shared.Store(&shared{
		host: cfg.Host, mtu: cfg.MTU, serve: cfg.Serve,
		refresh: cfg.refresh(), memory: cfg.memory(),
		carry: cfg.CarryClients,
	})
	r.budget.QueuePackets, r.budget.QueueBytes = cfg.QueuePackets, cfg.QueueBytes
	r.budget.TotalBytes = cfg.QueueTotalBytes
	r.bubbleLimit = ratelimit.PerSecond(cfg.BubbleRate, cfg.BubbleRate)
	r.errorLimit = ratelimit.PerSecond(cfg.ICMPRate, cfg.ICMPRate)
	r.perServer.SetLimit(r.bubbleLimit.Part(serverShare))
	if !cfg.Host { // or all of them are for one
		r.perSource.SetLimit(r.bubbleLimit.Part(sourceShare))
		r.errorSources.SetLimit(r.errorLimit.Part(errorShare))
	}
	r.carriage.apply(&cfg)
}
