// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clat

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Claim is how far an address is ours.
type Claim uint8

// The states of a claim (RFC 4862 section 5.4).
const (
	Tentative Claim = iota // asked for: no one has answered yet
	Owned
	Taken // someone else has it: choose another
)

// String returns the state in words.
func (c Claim) String() string {
	switch c {
	case Tentative:
		return "tentative"
	case Owned:
		return "owned"
	case Taken:
		return "taken"
	}
	return "unknown"
}

// detectionTime is how long others have to answer, RetransTimer (RFC 4861 section 10).
const detectionTime = time.Second

// Flags of a Neighbor Advertisement (RFC 4861 section 4.4).
const (
	flagSolicited = 0x40
	flagOverride  = 0x20
)

// ndNonce is the option that tells our solicitations from others (RFC 3971 section 5.3.2).
const ndNonce = 14

// claimed is one address on a link that the host's own stack does not have: we claim it
// by duplicate address detection, and answer for it.
type claimed struct {
	addr  netip.Addr
	mac   []byte // empty: the link has no link-layer addresses
	nonce [6]byte
	state Claim
	until time.Time // end of detection; zero before it has begun
}

// tick begins and ends detection.
func (c *claimed) tick(now time.Time, out *packet.Batch) {
	if c.state != Tentative {
		return
	}
	switch {
	case c.until.IsZero():
		c.until = now.Add(detectionTime)
		target := c.addr.As16()
		out.SendIP(packet.AppendICMPv6(out.Alloc(80), netip.IPv6Unspecified(), packet.SolicitedNode(c.addr), packet.NDHopLimit,
			packet.ICMPv6NeighborSolicitation, 0, []byte{0, 0, 0, 0}, target[:], []byte{ndNonce, 1}, c.nonce[:]))
	case !now.Before(c.until):
		c.state = Owned
	}
}

// next is when tick has something to do; zero is never.
func (c *claimed) next() time.Time {
	if c.state != Tentative {
		return time.Time{}
	}
	return c.until
}

// handle takes a Neighbor Discovery message. It returns false for any other packet.
func (c *claimed) handle(p packet.IPv6, out *packet.Batch) bool {
	m, ok := p.ICMPv6()
	if !ok || m[0] != packet.ICMPv6NeighborSolicitation && m[0] != packet.ICMPv6NeighborAdvert {
		return false
	}
	// RFC 4861 sections 7.1.1 and 7.1.2: else someone beyond the link could speak.
	if p.HopLimit() != packet.NDHopLimit || m[1] != 0 || len(m) < 24 || netip.AddrFrom16([16]byte(m[8:24])) != c.addr {
		return true
	}
	switch {
	case m[0] == packet.ICMPv6NeighborAdvert:
		// While we ask, someone has it (RFC 4862 section 5.4.4). Later it is ours, and
		// we keep it by answering those who ask.
		if c.state == Tentative {
			c.state = Taken
		}
	case c.state == Owned:
		c.answer(p.Src(), out)
	case p.Src().IsUnspecified() && c.state == Tentative && !c.until.IsZero() && !c.asked(m[24:]):
		c.state = Taken // two ask for it at once: neither may have it (RFC 4862 section 5.4.3)
	}
	return true
}

// asked reports whether options of a solicitation are those of ours, which the link has brought
// back (RFC 7527 section 4.2).
func (c *claimed) asked(options []byte) bool {
	return bytes.HasPrefix(options, append([]byte{ndNonce, 1}, c.nonce[:]...))
}

// answer tells who has the address, and defends it against one that wants it (RFC 4861
// section 7.2.4).
func (c *claimed) answer(to netip.Addr, out *packet.Batch) {
	flags := byte(flagSolicited | flagOverride)
	if to.IsUnspecified() {
		to, flags = packet.AllNodes, flagOverride
	}
	target := c.addr.As16()
	option := []byte{}
	if len(c.mac) == 6 {
		option = append([]byte{packet.NDTargetLinkLayer, 1}, c.mac...)
	}
	out.SendIP(packet.AppendICMPv6(out.Alloc(80), c.addr, to, packet.NDHopLimit,
		packet.ICMPv6NeighborAdvert, 0, []byte{flags, 0, 0, 0}, target[:], option))
}
