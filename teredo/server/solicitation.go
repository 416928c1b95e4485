// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// Sizes in bytes.
const (
	originLen       = 8  // origin indication (RFC 4380 section 5.1.1)
	authLen         = 13 // authentication without identifier and value
	solicitationLen = 48 // router solicitation without options
	maxAuthValue    = 32 // authentication value of the longest algorithm
	advertLen       = 96 // advertisement with prefix and MTU option
)

// advertise answers a router solicitation (RFC 4380 section 5.3.2).
func (e *Engine) advertise(from netip.AddrPort, local int, p *teredo.Packet, now time.Time, out *packet.Batch) Reason {
	socket := local
	// A client that sets the cone bit asks whether its NAT lets strangers in, so
	// the answer must come from a stranger. RFC 5991 section 3.2 forbids to
	// ignore the bit: without a second address silence is the only honest answer,
	// upon which the client asks again with the bit clear.
	if teredo.FlagsOf(p.IPv6.SrcBytes()).Cone() {
		if !e.cfg.Secondary.IsValid() {
			return ConeUnanswerable
		}
		socket = Primary + Secondary - local
	}
	c, r := e.authenticate(p, now)
	if r != accepted {
		return r
	}
	ra := e.advertFor(p.IPv6.SrcBytes())
	b := out.Alloc(authLen + len(p.Auth.ClientID) + maxAuthValue + originLen + advertLen)
	if p.HasAuth {
		b = c.answer(b, &p.Auth, from, ra)
	}
	b = teredo.AppendOrigin(b, from)
	b = append(b, ra...)
	out.SendUDP(socket, from, b)
	e.counters.Advertisements++
	return accepted
}

// answer appends the answer to the authentication of a solicitation: the same
// identifier and nonce, and so the proof that the sender saw the solicitation,
// and the value under the client's key (RFC 4380 section 5.3.2).
func (c confirmation) answer(b []byte, request *teredo.Auth, origin netip.AddrPort, ra packet.IPv6) []byte {
	answer := teredo.Auth{ClientID: request.ClientID, Nonce: request.Nonce, Confirmation: c.byte}
	if c.key != nil {
		answer.Value = c.key.Value(request.Nonce, c.byte, origin, ra)
	}
	return answer.AppendTo(b)
}

// advertFor returns the router advertisement for the client whose link-local
// address is dst; it is good until the next call.
func (e *Engine) advertFor(dst *[16]byte) packet.IPv6 {
	e.scratch = e.advert
	ra := packet.IPv6(e.scratch[:])
	*ra.DstBytes() = *dst
	packet.FillICMPv6Checksum(ra)
	return ra
}

// advertTemplate is the advertisement with everything that is the same for all
// clients. Both sockets announce the primary address: a client compares what the
// two see of it, but has one prefix (RFC 4380 section 5.2.1).
func (e *Engine) advertTemplate() (t [advertLen]byte) {
	prefix := e.cfg.Prefixes[0].Masked().Addr().As16()
	server := e.cfg.AdvertisedPrimary.As4()
	copy(prefix[4:8], server[:])
	ra := teredo.RouterAdvertisement{
		Src:    e.linkIPv6[Primary],
		Dst:    netip.IPv6Unspecified(),
		Prefix: netip.PrefixFrom(netip.AddrFrom16(prefix), 64),
		MTU:    uint32(e.cfg.MTU),
	}
	ra.AppendTo(t[:0])
	return t
}
