// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// Sizes in bytes.
const (
	originLen       = 8  // origin indication (RFC 4380 section 5.1.1)
	authLen         = 13 // authentication without identifier and value
	solicitationLen = 48 // router solicitation without options
	advertLen       = 96 // advertisement with prefix and MTU option
)

// keyUnknown is a confirmation byte that tells the client to get a new key.
const keyUnknown = 1

// advertise answers a router solicitation (RFC 4380 section 5.3.2).
func (e *Engine) advertise(from netip.AddrPort, local int, p *teredo.Packet, out *packet.Batch) Reason {
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
	b := out.Alloc(authLen + len(p.Auth.ClientID) + originLen + advertLen)
	if p.HasAuth {
		b = appendAuth(b, &p.Auth)
	}
	b = teredo.AppendOrigin(b, from)
	b = e.appendAdvert(b, p.IPv6.SrcBytes())
	out.SendUDP(socket, from, b)
	e.counters.Advertisements++
	return accepted
}

// appendAuth appends the answer to the authentication of a solicitation: its
// nonce, and so the proof that the sender saw the solicitation. This server holds
// no keys. A client that names one, by an identifier or by a value, gets its
// identifier back with the word that the key is not valid (RFC 4380 section
// 5.3.2: "a non-null value otherwise") and no value, as there is no secret to
// compute one with.
func appendAuth(b []byte, request *teredo.Auth) []byte {
	answer := teredo.Auth{ClientID: request.ClientID, Nonce: request.Nonce}
	if len(request.ClientID) > 0 || len(request.Value) > 0 {
		answer.Confirmation = keyUnknown
	}
	return answer.AppendTo(b)
}

// appendAdvert appends the router advertisement for the client whose link-local
// address is dst.
func (e *Engine) appendAdvert(b []byte, dst *[16]byte) []byte {
	start := len(b)
	b = append(b, e.advert[:]...)
	ra := packet.IPv6(b[start:])
	*ra.DstBytes() = *dst
	packet.FillICMPv6Checksum(ra)
	return b
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
