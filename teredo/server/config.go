// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/teredo"
)

// Config is what an engine needs to know.
type Config struct {
	// Primary is the IPv4 address of the primary socket. Secondary is that of the
	// secondary one; not valid in single-address mode.
	Primary, Secondary netip.Addr
	// AdvertisedPrimary and AdvertisedSecondary are what clients see in their
	// stead, where a 1:1 NAT stands before the server. Not valid: the same.
	AdvertisedPrimary, AdvertisedSecondary netip.Addr
	// Port of both sockets; 0 means [teredo.Port].
	Port uint16
	// Prefixes are the service prefixes, each a /32; the first is announced to
	// clients. None means [teredo.Prefix].
	Prefixes []netip.Prefix
	// MTU is announced to clients and bounds the packets that are carried, in
	// bytes; 0 means [teredo.MTU].
	MTU int
	// Global decides which IPv4 addresses may be served.
	Global teredo.GlobalCheck
	// PerSource limits the packets accepted from one IPv4 address, Total those
	// accepted in all.
	PerSource, Total ratelimit.Limit
	// Keys are what clients are authenticated by (RFC 4380 section 5.2.2).
	Keys []Key
	// RequireAuth refuses clients that do not prove to have one of the keys.
	RequireAuth bool
	// Rand seeds the hash of the per-source limit; crypto/rand.Reader outside of
	// tests.
	Rand io.Reader
}

// checked returns the configuration with its defaults filled in.
func (c Config) checked() (Config, error) {
	if c.Rand == nil {
		return c, errors.New("the server has no source of randomness")
	}
	if c.Port == 0 {
		c.Port = teredo.Port
	}
	if c.MTU == 0 {
		c.MTU = teredo.MTU
	}
	if c.MTU < packet.MinMTU || c.MTU > 0xffff {
		return c, fmt.Errorf("MTU %d is out of range: use %d to 65535", c.MTU, packet.MinMTU)
	}
	if len(c.Prefixes) == 0 {
		c.Prefixes = []netip.Prefix{teredo.Prefix}
	}
	for _, p := range c.Prefixes {
		if !p.Addr().Is6() || p.Bits() != teredo.Prefix.Bits() {
			return c, fmt.Errorf("service prefix %v is no IPv6 prefix of 32 bits: write one like %v", p, teredo.Prefix)
		}
	}
	return c.checkedAddresses()
}

func (c Config) checkedAddresses() (Config, error) {
	if !c.Primary.Is4() {
		return c, errors.New("the server has no IPv4 address: name the one it listens on")
	}
	if !c.AdvertisedPrimary.IsValid() {
		c.AdvertisedPrimary = c.Primary
	}
	if err := c.checkAdvertised(c.AdvertisedPrimary); err != nil {
		return c, err
	}
	if !c.Secondary.IsValid() {
		if c.AdvertisedSecondary.IsValid() {
			return c, fmt.Errorf("secondary address %v is advertised but none is bound: name the bound one too, or neither", c.AdvertisedSecondary)
		}
		return c, nil
	}
	if !c.AdvertisedSecondary.IsValid() {
		c.AdvertisedSecondary = c.Secondary
	}
	if err := c.checkAdvertised(c.AdvertisedSecondary); err != nil {
		return c, err
	}
	if c.Primary == c.Secondary || c.AdvertisedPrimary == c.AdvertisedSecondary {
		return c, errors.New("primary and secondary address are the same: name two addresses, or only the primary one")
	}
	return c, nil
}

// checkAdvertised refuses addresses that clients and relays would refuse: they
// apply the same test before they send to a server (RFC 4380 section 5.2.4).
func (c *Config) checkAdvertised(a netip.Addr) error {
	if !c.Global.OK(a) {
		return fmt.Errorf("server address %v is not a global IPv4 address, so clients will not use it: "+
			"advertise the public address, or allow its private range in a closed network", a)
	}
	return nil
}

// prefixWords returns the first 32 bits of each service prefix.
func (c *Config) prefixWords() []uint32 {
	words := make([]uint32, len(c.Prefixes))
	for i, p := range c.Prefixes {
		b := p.Addr().As16()
		words[i] = prefixWord(&b)
	}
	return words
}

// ownAddresses returns the valid ones of all four addresses.
func (c *Config) ownAddresses() (own []netip.Addr) {
	for _, a := range []netip.Addr{c.Primary, c.Secondary, c.AdvertisedPrimary, c.AdvertisedSecondary} {
		if a.IsValid() {
			own = append(own, a)
		}
	}
	return own
}

// linkLocal returns the link-local address of the server at a: cone bit set (RFC
// 4380 section 5.3.2, RFC 5991 section 3.2). It is not valid where a is not.
func (c *Config) linkLocal(a netip.Addr) netip.Addr {
	if !a.IsValid() {
		return netip.Addr{}
	}
	return teredo.LinkLocal(teredo.FlagCone, netip.AddrPortFrom(a, c.Port))
}

func prefixWord(a *[16]byte) uint32 { return binary.BigEndian.Uint32(a[:4]) }
