// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/special"
)

// WellKnownPrefix is the prefix of RFC 6052 section 2.1.
var WellKnownPrefix = netip.MustParsePrefix("64:ff9b::/96")

// uOctet is the octet of an address, bits 64 to 71, that is always zero (RFC 6052
// section 2.2).
const uOctet = 8

// Prefix makes IPv4-embedded IPv6 addresses (RFC 6052 section 2.2). Make one with
// [NewPrefix].
type Prefix struct {
	prefix    netip.Prefix
	base      [16]byte
	octets    int // whole octets of the prefix
	wellKnown bool
}

// NewPrefix checks a prefix: its length is 32, 40, 48, 56, 64 or 96, no bit is set
// behind it, bits 64 to 71 are zero, and the well-known prefix is used whole.
func NewPrefix(p netip.Prefix) (Prefix, error) {
	switch {
	case !p.IsValid() || !p.Addr().Is6() || p.Addr().Is4In6() || p.Addr().Zone() != "":
		return Prefix{}, fmt.Errorf("%s is no IPv6 prefix; write one as 2001:db8:64::/96", p)
	case p.Bits() != 96 && (p.Bits() < 32 || p.Bits() > 64 || p.Bits()%8 != 0):
		return Prefix{}, fmt.Errorf("prefix %s has length %d; RFC 6052 knows 32, 40, 48, 56, 64 and 96 only", p, p.Bits())
	case p.Masked() != p:
		return Prefix{}, fmt.Errorf("prefix %s has bits set behind its length; write %s", p, p.Masked())
	case p.Addr().As16()[uOctet] != 0:
		return Prefix{}, fmt.Errorf("prefix %s has bits set between 64 and 71, which RFC 6052 keeps zero; choose another", p)
	case p != WellKnownPrefix && p.Overlaps(WellKnownPrefix):
		return Prefix{}, fmt.Errorf("prefix %s covers the well-known prefix, which is used as %s only", p, WellKnownPrefix)
	case !special.ForwardedPrefix(p):
		return Prefix{}, fmt.Errorf("prefix %s holds no addresses that packets are forwarded to; choose a global one", p)
	}
	return Prefix{prefix: p, base: p.Addr().As16(), octets: p.Bits() / 8, wellKnown: p == WellKnownPrefix}, nil
}

// Prefix returns the prefix as it was given.
func (p *Prefix) Prefix() netip.Prefix { return p.prefix }

// Embed returns the IPv6 form of an IPv4 address, with a zero suffix (RFC 6052
// section 2.3).
func (p *Prefix) Embed(a netip.Addr) netip.Addr { return netip.AddrFrom16(p.embed(a.As4())) }

// Extract returns the IPv4 address in a, whatever the suffix and the octet of bits
// 64 to 71 hold (RFC 6052 section 2.2: ignored). ok is false when a has another
// prefix.
func (p *Prefix) Extract(a netip.Addr) (v4 netip.Addr, ok bool) {
	raw := a.As16()
	if !p.contains(&raw) {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4(p.extract(&raw)), true
}

func (p *Prefix) contains(a *[16]byte) bool {
	return string(a[:p.octets]) == string(p.base[:p.octets])
}

// positions returns where the four octets of the IPv4 address stand.
func (p *Prefix) positions() (at [4]int) {
	next := p.octets
	for i := range at {
		if next == uOctet {
			next++
		}
		at[i] = next
		next++
	}
	return at
}

func (p *Prefix) embed(a [4]byte) [16]byte {
	out := p.base
	for i, at := range p.positions() {
		out[at] = a[i]
	}
	return out
}

func (p *Prefix) extract(a *[16]byte) (out [4]byte) {
	for i, at := range p.positions() {
		out[i] = a[at]
	}
	return out
}
