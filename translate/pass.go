// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Path is what the caller knows of the way of one packet, and the randomness that it
// lends.
type Path struct {
	// MTU4 and MTU6 are the MTUs of the next hops on either side; 0 is unknown and
	// never too small.
	MTU4, MTU6 int
	// Link4 and Link6 are what the links on either side take at most; 0 is unknown. They
	// bound what a translated error reports, where MTU4 and MTU6 are not known: whether
	// packets fit is left to the host then.
	Link4, Link6 int
	// IDs identifies IPv4 packets that are made of IPv6 packets without a Fragment
	// Header, and errors to IPv4 (RFC 7915 section 5.1); without, all have 0.
	IDs Identifier
	// FragmentID is the identification of the packet that a bound fragment to IPv4 is of:
	// hosts that share an address choose theirs apart (RFC 6864 section 5.3).
	FragmentID uint16
	// Routers distinguishes routers that a pool stands for (RFC 6791 section 5); without,
	// all have its first address.
	Routers *Routers
	// HopTaken says that this is not the first translation of the packet here, so
	// that its hop limit stays.
	HopTaken bool
	// Message is the length of the ICMP message that the packet is a fragment of, for its
	// checksum; 0 is unknown, and the fragment is refused (RFC 7915 section 1.2).
	Message int
	// Reassembled says that the packet came in fragments, which fitted: it is cut
	// to MTU4 again, whatever its size.
	Reassembled bool
}

// Identifier returns the identification of the next packet from one address to another. It
// is no interface: calling one would move whatever a pass points to, bindings too, to the
// heap.
type Identifier func(src, dst [4]byte) uint16

// nextID returns the identification of the next packet from one address to another.
func (p *Path) nextID(src, dst [4]byte) uint16 {
	if p.IDs == nil {
		return 0
	}
	return p.IDs(src, dst)
}

// Endpoints are what a stateful translator gives one header: the addresses of the
// other family, and, with Ports, the new ports. The identifier of an ICMP query is
// SrcPort, in either direction.
type Endpoints struct {
	Src, Dst         netip.Addr
	Ports            bool
	SrcPort, DstPort uint16
}

// are4 and are6 report whether both addresses are of that family, as they must be.
func (e *Endpoints) are4() bool { return e.Src.Is4() && e.Dst.Is4() }
func (e *Endpoints) are6() bool { return e.Src.Is6() && e.Dst.Is6() }

// Binding is what a stateful translator has decided for a packet. Inner is for the
// packet that an ICMP error quotes.
type Binding struct {
	Outer, Inner Endpoints
	// Router says that an ICMP error comes from a router that the source does not stand for:
	// an address of [Settings.Pool4] or Pool6 takes its place, where there is one (RFC 6791).
	Router bool
}

// outer and inner are nil where a binding is: no ports change then.
func (b *Binding) outer() *Endpoints {
	if b == nil {
		return nil
	}
	return &b.Outer
}

func (b *Binding) inner() *Endpoints {
	if b == nil {
		return nil
	}
	return &b.Inner
}

// pass is one packet on its way through the translator.
type pass struct {
	t     *Translator
	path  Path
	bound *Binding
	out   *packet.Batch

	// id identifies the IPv4 packet, and one that it quotes.
	id         uint16
	identified bool
	// turned is set for the way back of a hairpinned packet: the rules of RFC 7757
	// section 4.2.1 hold and no hop is taken.
	turned bool
	// hairpin holds what decides about hairpinning after the way to IPv4.
	hairpin hairpinKey
}

// hairpinKey is the address whose mapping decides about intrinsic hairpinning: the
// destination, or in an ICMP error the source of the quoted packet (RFC 7757 section
// 4.2.2).
type hairpinKey struct {
	by   origin
	addr [4]byte
}

// IPv4 translates an IPv4 packet to IPv6 (RFC 7915 section 4) and appends what comes
// out to the batch. The packet is neither changed nor kept; bytes behind its total
// length are ignored.
func (t *Translator) IPv4(ip []byte, path Path, out *packet.Batch) Result {
	return t.IPv4Bound(ip, nil, path, out)
}

// IPv6 translates an IPv6 packet to IPv4 (RFC 7915 section 5) and appends what comes
// out to the batch: IPv4 packets, or IPv6 packets where it was hairpinned. The packet
// is neither changed nor kept; bytes behind its payload are ignored.
func (t *Translator) IPv6(ip []byte, path Path, out *packet.Batch) Result {
	return t.IPv6Bound(ip, nil, path, out)
}

// IPv4Bound is [Translator.IPv4] with the addresses and ports of a binding instead of
// the stateless mapping.
func (t *Translator) IPv4Bound(ip []byte, b *Binding, path Path, out *packet.Batch) Result {
	h, r := parseIPv4(ip)
	if r != ReasonNone {
		return Result{Verdict: Drop, Reason: r}
	}
	p := pass{t: t, path: path, bound: b, out: out}
	if f := p.toIPv6(&h); f.reason != ReasonNone {
		return t.reject4(&h, f, path, out)
	}
	return Result{}
}

// IPv6Bound is [Translator.IPv6] with the addresses and ports of a binding. It never
// hairpins; the caller does, by the addresses it has chosen.
func (t *Translator) IPv6Bound(ip []byte, b *Binding, path Path, out *packet.Batch) Result {
	h, r := parseIPv6(ip)
	if r != ReasonNone {
		return t.reject6(&h, refuse(r), out)
	}
	p := pass{t: t, path: path, bound: b, out: out}
	if f := p.toIPv4(&h); f.reason != ReasonNone {
		return t.reject6(&h, f, out)
	}
	return Result{}
}
