// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/gprs/link"
)

// addr4 and addr6 make addresses of the numbers that records have.
func addr4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func addr6(prefix, id uint64) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], prefix)
	binary.BigEndian.PutUint64(b[8:], id)
	return netip.AddrFrom16(b)
}

func number4(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func prefix6(a netip.Addr) uint64 {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:])
}

// prefixAt is that of a link, of the upper half of its addresses.
func prefixAt(n uint64) netip.Prefix { return netip.PrefixFrom(addr6(n, 0), prefixBits) }

// numberOf is the number of a lease within its family, of which IPv4 is the first.
func numberOf(p netip.Prefix) (family int, n uint64) {
	if p.Addr().Is4() {
		return 0, uint64(number4(p.Addr()))
	}
	return 1, prefix6(p.Addr())
}

// linkLocal is the upper half of link-local addresses (RFC 4291 section 2.5.6).
const linkLocal uint64 = 0xfe80 << 48

// newInterfaceID draws one that neither the node itself nor a group of nodes has.
func (e *Engine) newInterfaceID() uint64 {
	for {
		if id := e.random.Uint64(); link.ValidID(id) {
			return id
		}
	}
}
