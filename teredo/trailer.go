// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import (
	"encoding/binary"
	"net/netip"
)

// Trailer types (RFC 6081 section 4; section 9 lists the Random Port as 0x02 but
// section 4.5, which defines it, says 0x05).
const (
	trailerNonce      = 0x01
	trailerRandomOld  = 0x02
	trailerAlternate  = 0x03
	trailerDiscovery  = 0x04
	trailerRandomPort = 0x05

	nonceTrailerLen = 4
	alternateEntry  = 6
)

// MaxAlternates is the most entries of one Alternate Address trailer: its length
// is 8, 14, 20 or 26 (RFC 6081 section 4.3).
const MaxAlternates = 4

// MaxTrailersLen is the size of one trailer of each type.
const MaxTrailersLen = 6 + 4 + MaxAlternates*alternateEntry + 6 + 4 + 2 + fallbackTrailerLen

// Discovery is the kind of a Neighbor Discovery Option trailer (RFC 6081 section
// 4.4).
type Discovery uint8

// Kinds of Discovery; the values on the wire are one less.
const (
	NoDiscovery Discovery = iota
	DiscoverySolicitation
	DiscoveryAdvertisement
)

// Trailers are the trailers of one packet. The zero value is "none".
type Trailers struct {
	HasNonce   bool
	Nonce      uint32 // never generated as 0: 0 means "none received" (RFC 6081 section 5.2.4.3)
	Alternates [MaxAlternates]netip.AddrPort
	NumAlt     int // entries of Alternates in use
	Discovery  Discovery
	RandomPort uint16 // predicted external port; 0 when absent
	Fallback   Fallback

	Skipped   int  // trailers of unknown type or of a wrong length, passed over
	Malformed bool // reading stopped at a malformed trailer
}

// AlternateList returns the alternate addresses.
func (t *Trailers) AlternateList() []netip.AddrPort { return t.Alternates[:t.NumAlt] }

// ParseTrailers reads trailers in order (RFC 6081 section 5.1.2): a malformed one
// ends the list and keeps what came before; an unknown type is skipped, unless
// its top bits are 01, which drops the packet (FaultUnknownTrailer). A known type
// with a wrong length is skipped, but a malformed Alternate Address drops the
// bubble (FaultBadAlternate, RFC 6081 section 5.6.4.2).
func ParseTrailers(b []byte) (t Trailers, err error) {
	for len(b) > 0 {
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			t.Malformed = true
			return t, nil
		}
		typ, value := b[0], b[2:2+int(b[1])]
		b = b[2+len(value):]
		if err := t.parseOne(typ, value); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (t *Trailers) parseOne(typ byte, value []byte) error {
	switch {
	case typ == trailerNonce && len(value) == nonceTrailerLen:
		t.HasNonce, t.Nonce = true, binary.BigEndian.Uint32(value)
	case typ == trailerAlternate:
		return t.parseAlternates(value)
	case typ == trailerDiscovery && len(value) == 4 && value[0] <= 1:
		t.Discovery = Discovery(value[0]) + DiscoverySolicitation
	case (typ == trailerRandomPort || typ == trailerRandomOld) && len(value) == 2:
		t.RandomPort = binary.BigEndian.Uint16(value)
	case typ == trailerFallback && len(value) == fallbackTrailerLen:
		t.Fallback = parseFallback(value)
	case typ>>6 == 0b01:
		return FaultUnknownTrailer
	default:
		t.Skipped++
	}
	return nil
}

// parseAlternates reads reserved (2), then 1 to 4 of { IPv4 (4), port (2) }, which
// are not inverted (RFC 6081 section 4.3).
func (t *Trailers) parseAlternates(value []byte) error {
	if len(value) < 2 {
		return FaultBadAlternate
	}
	entries := value[2:]
	n := len(entries) / alternateEntry
	if n < 1 || n > MaxAlternates || len(entries)%alternateEntry != 0 {
		return FaultBadAlternate
	}
	t.Alternates = [MaxAlternates]netip.AddrPort{}
	for i := range n {
		e := entries[i*alternateEntry:]
		ip, port := netip.AddrFrom4([4]byte(e[:4])), binary.BigEndian.Uint16(e[4:])
		if port == 0 || within(neverUnicast, ip) {
			return FaultBadAlternate
		}
		t.Alternates[i] = netip.AddrPortFrom(ip, port)
	}
	t.NumAlt = n
	return nil
}

// AppendTo appends the trailers that are present, in order of their type.
func (t *Trailers) AppendTo(b []byte) []byte {
	if t.HasNonce {
		b = append(b, trailerNonce, nonceTrailerLen)
		b = binary.BigEndian.AppendUint32(b, t.Nonce)
	}
	if t.NumAlt > 0 {
		b = append(b, trailerAlternate, byte(2+t.NumAlt*alternateEntry), 0, 0)
		for _, a := range t.AlternateList() {
			ip := a.Addr().As4()
			b = append(b, ip[:]...)
			b = binary.BigEndian.AppendUint16(b, a.Port())
		}
	}
	if t.Discovery != NoDiscovery {
		b = append(b, trailerDiscovery, 4, byte(t.Discovery-DiscoverySolicitation), 0, 0, 0)
	}
	if t.RandomPort != 0 {
		b = append(b, trailerRandomPort, 2)
		b = binary.BigEndian.AppendUint16(b, t.RandomPort)
	}
	return t.Fallback.appendTo(b)
}
