// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/special"
)

// pool holds the addresses that stand for routers without a form in the other family
// (RFC 6791). Its zero value is empty.
type pool struct {
	prefixes []poolPrefix
	size     uint64
}

type poolPrefix struct {
	base [16]byte // an IPv4 address fills the first four octets
	size uint64
}

// maxPoolBits bounds the host bits of a pool prefix.
const maxPoolBits = 32

// newPool makes a pool of prefixes with addresses of the given number of octets.
func newPool(prefixes []netip.Prefix, octets int) (pool, error) {
	var p pool
	for _, prefix := range prefixes {
		a := prefix.Addr()
		hostBits := octets*8 - prefix.Bits()
		switch {
		case !prefix.IsValid() || a.BitLen() != octets*8 || a.Is4In6():
			return pool{}, fmt.Errorf("pool %s is no IPv%d prefix", prefix, map[int]int{4: 4, 16: 6}[octets])
		case prefix.Masked() != prefix:
			return pool{}, fmt.Errorf("pool %s has bits set behind its length; write %s", prefix, prefix.Masked())
		case hostBits > maxPoolBits:
			return pool{}, fmt.Errorf("pool %s is larger than 2^%d addresses; a handful is enough", prefix, maxPoolBits)
		case !special.ForwardedPrefix(prefix):
			return pool{}, fmt.Errorf("pool %s holds no addresses that packets are forwarded from", prefix)
		}
		entry := poolPrefix{size: 1 << hostBits}
		copy(entry.base[:], a.AsSlice())
		p.prefixes = append(p.prefixes, entry)
		p.size += entry.size
	}
	return p, nil
}

// at returns the address of that number, which is less than the size, of so many octets.
func (p *pool) at(n uint64, octets int) (a [16]byte) {
	e := p.prefixes
	for n >= e[0].size {
		n -= e[0].size
		e = e[1:]
	}
	a = e[0].base
	low := a[octets-4 : octets]
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)|uint32(n))
	return a
}
