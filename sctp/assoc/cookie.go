// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// cookie is all that an endpoint has to know of an association that it has answered the INIT of (RFC 9260
// section 5.1.3). The peer carries it:
//
//	| MAC (32) | made at, ns (8) | life, ms (4) | tie-tags (8) | tag (4) | first TSN (4) | streams out (2) |
//	| peer's port (2) | UDP port (2) | edition (4) | our random number (32) | local address parameter |
//	| peer's address parameter | peer's INIT |
//
// It is signed, not hidden: nothing in it is secret.
type cookie struct {
	made    int64
	life    time.Duration
	tie     [2]uint32 // of an association that there was already, ours and the peer's; 0 if there was none
	tag     uint32
	tsn     uint32
	out     uint16
	port    uint16
	udp     uint16
	edition uint32 // of our addresses that the peer was told of
	random  []byte // of our INIT ACK, for keys (RFC 4895 section 6.1)
	local   netip.Addr
	from    netip.Addr
	init    chunk.Init
}

// cookieFixed is the size of what stands between the MAC and the addresses.
const cookieFixed = 8 + 4 + 8 + 4 + 4 + 2 + 2 + 2 + 4 + chunk.RandomSize

// append writes the cookie behind room for its MAC.
func (c *cookie) append(b []byte) []byte {
	b = append(b, make([]byte, sha256.Size)...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.made))
	b = binary.BigEndian.AppendUint32(b, uint32(c.life.Milliseconds()))
	b = binary.BigEndian.AppendUint32(b, c.tie[0])
	b = binary.BigEndian.AppendUint32(b, c.tie[1])
	b = binary.BigEndian.AppendUint32(b, c.tag)
	b = binary.BigEndian.AppendUint32(b, c.tsn)
	b = binary.BigEndian.AppendUint16(b, c.out)
	b = binary.BigEndian.AppendUint16(b, c.port)
	b = binary.BigEndian.AppendUint16(b, c.udp)
	b = binary.BigEndian.AppendUint32(b, c.edition)
	b = append(b, c.random...)
	b = chunk.AppendAddress(b, c.local.WithZone(""))
	b = chunk.AppendAddress(b, c.from.WithZone(""))
	return c.init.Append(b, chunk.TypeInit)
}

// parseCookie reads what append has written, once the MAC is known to be right.
func parseCookie(b []byte) (c cookie, err error) {
	if len(b) < sha256.Size+cookieFixed {
		return c, chunk.ErrLength
	}
	b = b[sha256.Size:]
	c.made = int64(binary.BigEndian.Uint64(b))
	c.life = time.Duration(binary.BigEndian.Uint32(b[8:])) * time.Millisecond
	c.tie = [2]uint32{binary.BigEndian.Uint32(b[12:]), binary.BigEndian.Uint32(b[16:])}
	c.tag, c.tsn = binary.BigEndian.Uint32(b[20:]), binary.BigEndian.Uint32(b[24:])
	c.out, c.port, c.udp = binary.BigEndian.Uint16(b[28:]), binary.BigEndian.Uint16(b[30:]), binary.BigEndian.Uint16(b[32:])
	c.edition = binary.BigEndian.Uint32(b[34:])
	c.random, b = b[cookieFixed-chunk.RandomSize:cookieFixed], b[cookieFixed:]
	for _, address := range []*netip.Addr{&c.local, &c.from} {
		p, rest, err := chunk.NextParameter(b)
		if err != nil {
			return c, err
		}
		*address, _ = p.Address()
		b = rest
	}
	whole, _, err := chunk.Next(b)
	if err != nil {
		return c, err
	}
	c.init, err = chunk.ParseInit(whole.Body)
	return c, err
}

// secrets sign cookies. They change from time to time, and the one before stays good for a while (RFC 9260
// section 5.1.3).
type secrets struct {
	random  func([]byte)
	keys    [2][sha256.Size]byte // now, and before
	changed time.Time
}

// secretLife is how long a secret signs.
const secretLife = time.Hour

// sign writes the MAC of a cookie into it.
func (s *secrets) sign(c []byte, now time.Time) {
	if s.changed.IsZero() || now.Sub(s.changed) > secretLife {
		if s.keys[1] = s.keys[0]; s.changed.IsZero() {
			s.random(s.keys[1][:])
		}
		s.random(s.keys[0][:])
		s.changed = now
	}
	copy(c, mac(s.keys[0][:], c[sha256.Size:]))
}

// signed reports whether a cookie is one of ours.
func (s *secrets) signed(c []byte) bool {
	if len(c) < sha256.Size || s.changed.IsZero() {
		return false
	}
	for _, key := range s.keys {
		if hmac.Equal(c[:sha256.Size], mac(key[:], c[sha256.Size:])) {
			return true
		}
	}
	return false
}

func mac(key, b []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(b)
	return h.Sum(nil)
}
