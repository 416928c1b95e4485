// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"unsafe"
)

// foreignRecord is a foreign mapping in memory that outlives the process, 24 bytes. The word
// is written last and cleared first, so a record is whole or none at any time; its check
// keeps out what this package has not written.
//
//	63..32  IPv4 address, 31..16 port, 15..0 check; 0: the record is free
type foreignRecord struct {
	key  [2]uint64 // the IPv6 address as it lies in a packet
	word uint64
}

const foreignBytes = int(unsafe.Sizeof(foreignRecord{}))

// ForeignBytes returns the size of the memory for the foreign mappings of so many peers.
func ForeignBytes(peers int) int { return ForeignLimit(peers) * foreignBytes }

// ForeignTable is a [Foreign] in flat memory that outlives the process.
type ForeignTable struct {
	records []foreignRecord
	places  map[[16]byte]int
	free    []int // below the end of what was used
	end     int
}

// OpenForeign lays a table over memory of [ForeignBytes], with what an earlier process has
// left there. What it can not have written is cleared.
func OpenForeign(b []byte) (*ForeignTable, error) {
	if len(b) < foreignBytes || uintptr(unsafe.Pointer(&b[0]))%unsafe.Alignof(foreignRecord{}) != 0 {
		return nil, fmt.Errorf("%d bytes cannot be a table of mappings", len(b))
	}
	t := &ForeignTable{
		records: unsafe.Slice((*foreignRecord)(unsafe.Pointer(&b[0])), len(b)/foreignBytes),
		places:  make(map[[16]byte]int),
	}
	for i := range t.records {
		r := &t.records[i]
		if r.word == 0 {
			continue
		}
		key := r.address()
		if _, twice := t.places[key]; twice || r.word != wordOf(&r.key, r.mapped()) {
			r.word = 0
			continue
		}
		t.places[key] = i
		t.end = i + 1
	}
	for i := t.end - 1; i >= 0; i-- {
		if t.records[i].word == 0 {
			t.free = append(t.free, i)
		}
	}
	return t, nil
}

// Put implements [Foreign].
func (t *ForeignTable) Put(key [16]byte, mapped netip.AddrPort) bool {
	i, known := t.places[key]
	switch {
	case known:
	case len(t.free) > 0:
		i = t.free[len(t.free)-1]
		t.free = t.free[:len(t.free)-1]
	case t.end < len(t.records):
		i = t.end
		t.end++
	default:
		return false
	}
	t.places[key] = i
	r := &t.records[i]
	atomic.StoreUint64(&r.word, 0)
	r.key = [2]uint64{binary.NativeEndian.Uint64(key[:]), binary.NativeEndian.Uint64(key[8:])}
	atomic.StoreUint64(&r.word, wordOf(&r.key, mapped))
	return true
}

// Delete implements [Foreign].
func (t *ForeignTable) Delete(key [16]byte) {
	if i, ok := t.places[key]; ok {
		atomic.StoreUint64(&t.records[i].word, 0)
		delete(t.places, key)
		t.free = append(t.free, i)
	}
}

// Walk implements [Foreign].
func (t *ForeignTable) Walk(f func(key [16]byte, mapped netip.AddrPort)) {
	for key, i := range t.places {
		f(key, t.records[i].mapped())
	}
}

func (r *foreignRecord) address() (key [16]byte) {
	binary.NativeEndian.PutUint64(key[:], r.key[0])
	binary.NativeEndian.PutUint64(key[8:], r.key[1])
	return key
}

func (r *foreignRecord) mapped() netip.AddrPort {
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], uint32(r.word>>32))
	return netip.AddrPortFrom(netip.AddrFrom4(ip), uint16(r.word>>16))
}

// wordOf returns the word of a mapping of an address.
func wordOf(key *[2]uint64, mapped netip.AddrPort) uint64 {
	ip := mapped.Addr().As4()
	word := uint64(binary.BigEndian.Uint32(ip[:]))<<32 | uint64(mapped.Port())<<16
	h := (key[0] ^ word) * 0x9e3779b97f4a7c15
	h = (h ^ h>>32 ^ key[1]) * 0xd6e8feb86659fd93
	return word | h>>48
}
