// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package ipid makes the identifications of translated IPv4 packets: hard to foretell, no
// two of the same two addresses alike for long, and successive for successive packets, so
// that these can be merged (RFC 6864, RFC 7739 section 5.3). Programs of a fast path make
// them of the same memory: translate/translatebpf/bpf/identify.h.
//
//house:codec
package ipid

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"
	"unsafe"
)

// Counters is how many counters there are: two addresses have one by a hash.
const Counters = 1 << 16

// memory is struct identifications of translate/translatebpf/bpf/translate_settings.h.
type memory struct {
	key  [3]uint64
	_    uint64
	next [Counters]uint32 // only the lower half counts
}

// Size is how many bytes of memory identifications take.
const Size = int(unsafe.Sizeof(memory{}))

// IDs makes identifications. Others may do so in the same memory meanwhile.
type IDs struct{ *memory }

// New makes identifications of their own, whose secrets come from random.
func New(random io.Reader) (IDs, error) {
	return IDs{new(memory)}.seeded(random)
}

// Over makes identifications in memory that a fast path shares, of [Size] bytes that
// begin at a multiple of 8. If it is fresh, all zero, its secrets come from random.
func Over(b []byte, random io.Reader) (IDs, error) {
	if len(b) < Size || uintptr(unsafe.Pointer(&b[0]))%8 != 0 {
		return IDs{}, fmt.Errorf("identifications need %d bytes that begin at a multiple of 8, not %d", Size, len(b))
	}
	d := IDs{(*memory)(unsafe.Pointer(&b[0]))}
	if d.key != [3]uint64{} {
		return d, nil
	}
	return d.seeded(random)
}

// seeded draws key and beginnings.
func (d IDs) seeded(random io.Reader) (IDs, error) {
	for _, secret := range []any{d.next[:], d.key[:]} {
		if err := binary.Read(random, binary.NativeEndian, secret); err != nil {
			return IDs{}, fmt.Errorf("no random seed for identifications: %w", err)
		}
	}
	return d, nil
}

// Next returns the identification of the next packet from one address to another.
func (d IDs) Next(src, dst [4]byte) uint16 {
	h := d.hash(src, dst)
	return uint16(h) + uint16(atomic.AddUint32(&d.next[h>>48], 1)-1)
}

// hash reports which counter two addresses have, in the upper 16 bits, and what is added to
// it, in the lower.
func (d IDs) hash(src, dst [4]byte) uint64 {
	h := uint64(binary.LittleEndian.Uint32(src[:])) | uint64(binary.LittleEndian.Uint32(dst[:]))<<32
	h = (h ^ d.key[0]) * 0x9e3779b97f4a7c15
	h = ((h ^ h>>32) + d.key[1]) * 0xd6e8feb86659fd93
	h = ((h ^ h>>29) + d.key[2]) * 0x9e3779b97f4a7c15
	return h ^ h>>32
}
