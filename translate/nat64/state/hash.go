// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// hash ends the hash of a key: the sum is strongly universal, so whoever does not know
// the seed cannot choose keys that meet; the rest spreads what is regular.
func hash(h uint64) uint64 {
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	return h ^ h>>29
}

func (t *Table) hashAddress(a *[16]byte) uint64 {
	a0, a1 := addressWords6(a)
	return t.seed[0] + t.seed[1]*uint64(uint32(a0)) + t.seed[2]*(a0>>32) +
		t.seed[3]*uint64(uint32(a1)) + t.seed[4]*(a1>>32)
}

func (t *Table) hashSession6(k *Key6) uint64 {
	return hash(t.hashAddress(&k.Client) + t.seed[5]*uint64(wire32(k.Peer)) +
		t.seed[6]*uint64(pair(k.ClientPort, k.PeerPort)) +
		t.seed[7]*(uint64(k.Transport)|uint64(k.Prefix)<<8))
}

func (t *Table) hashSession4(k *Key4) uint64 {
	return hash(t.seed[0] + t.seed[1]*uint64(wire32(k.Pool)) + t.seed[2]*uint64(wire32(k.Peer)) +
		t.seed[3]*uint64(pair(k.PoolPort, k.PeerPort)) + t.seed[4]*uint64(k.Transport))
}

func (t *Table) hashBinding6(k *Inside) uint64 {
	return hash(t.hashAddress(&k.Client) + t.seed[5]*(uint64(wire16(k.Port))|uint64(k.Transport)<<16))
}

func (t *Table) hashBinding4(k *Outside) uint64 {
	return hash(t.seed[0] + t.seed[1]*uint64(wire32(k.Pool)) +
		t.seed[2]*(uint64(wire16(k.Port))|uint64(k.Transport)<<16))
}

func (t *Table) hashPrefix(prefix *[16]byte) uint64 { return hash(t.hashAddress(prefix)) }

// wire16 turns a port into a 16-bit word as it is loaded from a packet, and back.
func wire16(port uint16) uint16 { return bits.ReverseBytes16(port) }

// wire32 loads an IPv4 address from a packet.
func wire32(a [4]byte) uint32 { return binary.LittleEndian.Uint32(a[:]) }

// bytes4 is the reverse of wire32.
func bytes4(w uint32) (a [4]byte) {
	binary.LittleEndian.PutUint32(a[:], w)
	return a
}

// pair puts two ports into one word of a key.
func pair(low, high uint16) uint32 { return uint32(wire16(low)) | uint32(wire16(high))<<16 }

// addressWords6 loads an IPv6 address from a packet. The layout is that of
// little-endian machines, as are all that the programs are made for.
func addressWords6(a *[16]byte) (low, high uint64) {
	return binary.LittleEndian.Uint64(a[:8]), binary.LittleEndian.Uint64(a[8:])
}

func putAddress6(a *[16]byte, low, high uint64) {
	binary.LittleEndian.PutUint64(a[:8], low)
	binary.LittleEndian.PutUint64(a[8:], high)
}

// session returns the words of a record.
func (t *Table) session(i uint32) *sessionRecord {
	return (*sessionRecord)(unsafe.Pointer(&t.sessions[i]))
}

// binding returns the words of a record.
func (t *Table) binding(i uint32) *bindingRecord {
	return (*bindingRecord)(unsafe.Pointer(&t.bindings[i]))
}
