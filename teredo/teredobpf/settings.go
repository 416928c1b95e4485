// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredobpf

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
)

// StampUnit is what the programs count ages in; the engine's peer table must count
// in the same.
const StampUnit = time.Duration(1) << 28

// Settings is what the programs are told of the relay's configuration and of the
// host. Those that the engine has too must be equal to the engine's.
type Settings struct {
	// Seed is the secret of the peer table's hash.
	Seed [5]uint64
	// Prefixes are the Teredo prefixes, /32, in the order of their tags: at least
	// one, and at most 16.
	Prefixes []netip.Prefix
	// Serve are the IPv6 ranges that clients may send to. Behind the first 64 the
	// engine decides.
	Serve []netip.Prefix
	// Own are the host's IPv4 addresses at which the relay is reached: the bound
	// one, or all. Of many the last may be left to the engine.
	Own []netip.Addr
	// Source is the outer source address, if the relay is bound to one; else the
	// host's routes say it, or no one, and the engine sends (see
	// [probe.Features.FibSource]).
	Source netip.Addr
	// Port is the relay's UDP port.
	Port uint16
	// TTL is the outer time to live; 0 is 64.
	TTL uint8
	// MTU is the largest IPv6 packet to clients, in bytes.
	MTU int
	// Refresh is the age from which packets to a peer are left to the engine, and
	// Memory the age from which those of a peer are.
	Refresh, Memory time.Duration
	// Host makes the programs those of a host-specific relay: no hop is taken, and
	// unknown clients may speak first.
	Host bool
	// Carry leaves to the engine what may be for another client.
	Carry bool
	// Unfinished lets tc send by a veth what a sender on this machine has left to
	// hardware, segments uncut and checksums open. A far end that forwards sees to
	// that; a client in user space there cannot. Else the engine sends such packets.
	Unfinished bool
	// Tunnel is the interface index of the relay's own device: routes are asked as
	// if packets came from there.
	Tunnel int
	// PuntRate bounds what is left to the engine, a second and for each reason;
	// PuntShare the part of that of one IPv6 /64 or IPv4 address. 0: no bound.
	PuntRate, PuntShare int
}

// Limits of the layout.
const (
	maxPrefixes = 16
	maxServe    = 64
	ownSlots    = 256
)

// Flags of settings.
const (
	flagHost = 1 << iota
	flagCarry
	flagServeMore
	flagUnfinished
)

func (s *Settings) check() error {
	switch {
	case len(s.Prefixes) == 0 || len(s.Prefixes) > maxPrefixes:
		return fmt.Errorf("the fast path takes 1 to %d Teredo prefixes, not %d", maxPrefixes, len(s.Prefixes))
	case s.Source.IsValid() && !s.Source.Is4():
		return fmt.Errorf("%s cannot be the outer source address: it must be IPv4", s.Source)
	case s.MTU < 1280 || s.MTU > 65535:
		return fmt.Errorf("an MTU of %d bytes cannot be: it must be 1280 to 65535", s.MTU)
	}
	for _, p := range s.Prefixes {
		if p.Bits() != 32 || !p.Addr().Is6() {
			return fmt.Errorf("prefix %s cannot be a Teredo prefix: it must be an IPv6 /32", p)
		}
	}
	return nil
}

// Settings returns what was set last; of tables taken over nothing but the seed,
// until Set.
func (t *Relay) Settings() Settings { return *t.current.Load() }

// Set applies settings. While they change, programs pass all packets; then next
// hops are asked for again.
func (t *Relay) Set(s Settings) error {
	if err := s.check(); err != nil {
		return err
	}
	t.Change(func() { s.fill(t.settings) })
	t.current.Store(&s)
	return nil
}

// fill writes all but generation, life, secrets of the programs, and devices.
func (s *Settings) fill(c *teredoRelaySettings) {
	c.PeerSeed = s.Seed
	c.Port = bits.ReverseBytes16(s.Port)
	c.Ttl = s.TTL
	if s.TTL == 0 {
		c.Ttl = 64
	}
	c.Source = 0
	if s.Source.IsValid() {
		c.Source = fastpath.IPv4Word(s.Source)
	}
	c.Refresh, c.Memory = stamps(s.Refresh), stamps(s.Memory)
	c.Mtu = uint32(s.MTU)
	c.Tun = uint32(s.Tunnel)
	c.PuntTotal, c.PuntSource = fastpath.PerWindow(s.PuntRate), fastpath.PerWindow(s.PuntShare)
	c.Flags = 0
	if s.Host {
		c.Flags |= flagHost
	}
	if s.Carry {
		c.Flags |= flagCarry
	}
	if s.Unfinished {
		c.Flags |= flagUnfinished
	}
	s.fillPrefixes(c)
	s.fillServe(c)
	c.OwnFactor, c.Own = placeOwn(s.Own)
}

func (s *Settings) fillPrefixes(c *teredoRelaySettings) {
	clear(c.ByTag[:])
	for i, p := range s.Prefixes {
		b := p.Addr().As16()
		c.ByTag[i] = binary.NativeEndian.Uint32(b[:])
	}
	c.Prefix, c.Prefixes = c.ByTag[0], uint32(len(s.Prefixes))
}

func (s *Settings) fillServe(c *teredoRelaySettings) {
	n := min(len(s.Serve), maxServe)
	if n < len(s.Serve) {
		c.Flags |= flagServeMore
	}
	for i, p := range s.Serve[:n] {
		c.Serve[i] = teredoRange6{Address: fastpath.IPv6Words(p.Masked().Addr().As16()), Mask: fastpath.IPv6Mask(p.Bits())}
	}
	c.Serves = uint32(n)
}

// stamps returns how many units make an age of d; one less is younger.
func stamps(d time.Duration) uint32 { return uint32((d + StampUnit - 1) / StampUnit) }

// ownTries is how many factors are tried; with some 60 addresses one in a thousand
// serves.
const ownTries = 20000

// placeOwn looks for a factor by which each address has a slot of its own. What has
// none is left out, the later ones first.
func placeOwn(own []netip.Addr) (factor uint32, slots [ownSlots]uint32) {
	rng := rand.New(rand.NewPCG(1, 2))
	best := -1
	for range ownTries {
		f := rng.Uint32() | 1
		var try [ownSlots]uint32
		placed, wanted := 0, 0
		for _, a := range own {
			if !a.Is4() {
				continue
			}
			wanted++
			word := fastpath.IPv4Word(a)
			slot := &try[word*f>>24]
			if *slot == 0 || *slot == word {
				*slot = word
				placed++
			}
		}
		if placed > best {
			best, factor, slots = placed, f, try
		}
		if placed == wanted {
			break
		}
	}
	return factor, slots
}
