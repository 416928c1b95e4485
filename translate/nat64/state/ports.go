// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"math/bits"
	"sync/atomic"
)

// Wish is what a port should be like (RFC 6146 section 3.5.1.1, RFC 4787 REQ-3, REQ-4).
type Wish struct {
	// Port is that of the client.
	Port uint16
	// System asks for a port below 1024; if there is none, any other will do.
	System bool
	// Parity asks for a port as even or odd as Port, if there is one.
	Parity bool
	// On, if it is set, is the address instead of the client's: what belongs to a static
	// binding has that of this. The port is of a block that no one has, and not below First.
	On    [4]byte
	First uint32
}

// ports in a word by parity.
const (
	evenPorts = 0x5555_5555_5555_5555
	oddPorts  = evenPorts << 1
)

// portWord returns the word of a port in ports_used.
func portWord(address uint32, transport Transport, port uint16) uint32 {
	return (address*uint32(Transports)+uint32(transport))*portWords + uint32(port)/64
}

// portBit returns the bit of T,t in ports_used.
func (t *Table) portBit(address uint32, o *Outside) uint32 {
	return portWord(address, o.Transport, o.Port)*64 + uint32(o.Port)%64
}

// takePort takes a port for a binding of a subscriber, whose lock is held.
func (t *Table) takePort(c *subscriber, transport Transport, wish Wish, random uint64) (port uint16, ok bool) {
	if wish.On != [4]byte{} {
		return t.takeUnleased(wish.On, transport, wish.First, random)
	}
	if wish.System {
		if port, ok := t.takeSystem(c, transport, random); ok {
			return port, true
		}
	}
	if wish.Parity {
		mask := uint64(evenPorts)
		if wish.Port%2 != 0 {
			mask = oddPorts
		}
		if port, ok := t.takeRandom(c, transport, mask, random); ok {
			return port, true
		}
	}
	return t.takeRandom(c, transport, ^uint64(0), random)
}

// takeSystem takes any port below 1024 of the subscriber's address.
func (t *Table) takeSystem(c *subscriber, transport Transport, random uint64) (port uint16, ok bool) {
	address, ok := t.numberOf(bytes4(atomic.LoadUint32(&c.pool)))
	if !ok {
		return 0, false
	}
	base := portWord(address, transport, 0)
	for i := range uint32(systemWords) {
		word := (i + uint32(random)) % systemWords
		if bit, ok := t.takeBit(base+word, ^uint64(0), uint32(random>>32)); ok {
			return uint16(word*64 + bit), true
		}
	}
	return 0, false
}

// takeRandom takes a port of the subscriber's blocks, of those in the mask: from a random
// word of a random block on.
func (t *Table) takeRandom(c *subscriber, transport Transport, mask, random uint64) (port uint16, ok bool) {
	blocks, words := min(atomic.LoadUint32(&c.blocks), MaxBlocks), uint32(t.sizes.BlockWords)
	if blocks == 0 {
		return 0, false
	}
	at := uint32((random & 0xffff_ffff) * uint64(blocks) >> 32)
	for range blocks {
		first := atomic.LoadUint32(&c.first[at])
		for i := range words {
			word := first + (i+uint32(random>>32))%words
			if word%portWords < systemWords {
				continue
			}
			bit, ok := t.takeBit(word+uint32(transport)*portWords, mask, uint32(random>>56))
			if ok {
				return uint16(word%portWords*64 + bit), true
			}
		}
		if at++; at == blocks {
			at = 0
		}
	}
	return 0, false
}

// takeUnleased takes a port of an address that is of no client's block, from first on.
func (t *Table) takeUnleased(pool [4]byte, transport Transport, first uint32, random uint64) (port uint16, ok bool) {
	address, ok := t.numberOf(pool)
	if !ok {
		return 0, false
	}
	n, words := t.blocksOf(), uint32(t.sizes.BlockWords)
	at := uint32((random & 0xffff_ffff) * uint64(n) >> 32)
	for range n {
		for word := at * words; word < (at+1)*words && t.leases[address*n+at] == 0; word++ {
			if word < max(systemWords, (first+63)/64) {
				continue
			}
			if bit, ok := t.takeBit(portWord(address, transport, 0)+word, ^uint64(0), uint32(random>>56)); ok {
				return uint16(word*64 + bit), true
			}
		}
		if at++; at == n {
			at = 0
		}
	}
	return 0, false
}

// takeBit takes a clear bit of a word of ports, of those in the mask, from a random one
// on.
func (t *Table) takeBit(word uint32, mask uint64, random uint32) (bit uint32, ok bool) {
	if int(word) >= len(t.ports.words) {
		return 0, false
	}
	start := int(random % 64)
	for {
		free := ^atomic.LoadUint64(&t.ports.words[word]) & mask
		if free == 0 {
			return 0, false
		}
		bit = uint32(bits.TrailingZeros64(bits.RotateLeft64(free, -start))+start) % 64
		if t.ports.set(word*64 + bit) {
			return bit, true
		}
	}
}

// givePort gives a binding's port back, unless it is no longer in the pool.
func (t *Table) givePort(o *Outside) {
	if address, ok := t.numberOf(o.Pool); ok && t.allowed(address, o.Transport, o.Port) {
		t.ports.give(t.portBit(address, o))
	}
}
