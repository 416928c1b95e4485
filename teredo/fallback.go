// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import (
	"encoding/binary"
	"net/netip"
)

// What clients and relays say to each other about carrying packets from client
// to client, an extension of this project that both sides opt into; see
// docs/decisions/0006-fallback-relay.md. A client binds itself to a relay:
//
//	client -> relay   bubble to all routers, with a nonce: a request
//	relay  -> client  bubble from a challenge address, with the nonce
//	client -> relay   bubble to the challenge address, with the nonce
//	relay  -> server -> client   bubble from a proof address
//	client -> relay   bubble to the proof address, with the nonce
//	relay  -> client  origin indication and bubble from a challenge address,
//	                  with the nonce: the client is bound at that origin
//
// The two steps by way of the server fall away while a binding is refreshed.

// BindingStep says which step of a binding a link-local address belongs to.
type BindingStep byte

// Steps of a binding.
const (
	NoBindingStep    BindingStep = iota
	BindingChallenge             // shows that the client receives where it sends from
	BindingProof                 // shows that it is the owner of its Teredo address
)

// BindingAddress makes the link-local address of a step: fe80:0:0:STEP::/64 with
// a 64-bit key. The third group of 16 bits keeps it apart from fe80::/64, where
// relays have the sources of their other bubbles.
func BindingAddress(s BindingStep, key uint64) netip.Addr {
	b := [16]byte{0: 0xfe, 1: 0x80, 7: byte(s)}
	binary.BigEndian.PutUint64(b[8:], key)
	return netip.AddrFrom16(b)
}

// BindingStepOf returns the step and key of a binding address; NoBindingStep for
// any other address.
func BindingStepOf(a *[16]byte) (s BindingStep, key uint64) {
	s = BindingStep(a[7])
	if [7]byte(a[:7]) != [7]byte{0: 0xfe, 1: 0x80} || s != BindingChallenge && s != BindingProof {
		return NoBindingStep, 0
	}
	return s, binary.BigEndian.Uint64(a[8:])
}

// Fallback is what a client tells of itself in its indirect bubbles, so that
// another one finds it by the relay that it is bound to. The trailer is
//
//	| type 0xc1 | length 8 | relay's IPv4 (4) | relay's port (2) | flags (1) | 0 (1) |
//
// with nothing inverted. The upper bits of the type make clients that do not know
// it pass over it (RFC 6081 section 4).
type Fallback struct {
	Relay          netip.AddrPort // not valid: the trailer is absent
	Symmetric      bool           // flag 0x01: behind a NAT with endpoint-dependent mapping
	PortPreserving bool           // flag 0x02: that preserves the port of a first mapping
}

const (
	trailerFallback    = 0xc1
	fallbackTrailerLen = 8

	fallbackSymmetric      = 0x01
	fallbackPortPreserving = 0x02
)

// parseFallback reads the value of the trailer; one without a port says nothing.
func parseFallback(value []byte) (f Fallback) {
	port := binary.BigEndian.Uint16(value[4:])
	if port == 0 {
		return f
	}
	return Fallback{
		Relay:          netip.AddrPortFrom(netip.AddrFrom4([4]byte(value)), port),
		Symmetric:      value[6]&fallbackSymmetric != 0,
		PortPreserving: value[6]&fallbackPortPreserving != 0,
	}
}

// appendTo appends the trailer, if there is one.
func (f *Fallback) appendTo(b []byte) []byte {
	if !f.Relay.IsValid() {
		return b
	}
	var flags byte
	if f.Symmetric {
		flags |= fallbackSymmetric
	}
	if f.PortPreserving {
		flags |= fallbackPortPreserving
	}
	ip := f.Relay.Addr().As4()
	b = append(b, trailerFallback, fallbackTrailerLen)
	b = append(b, ip[:]...)
	b = binary.BigEndian.AppendUint16(b, f.Relay.Port())
	return append(b, flags, 0)
}
