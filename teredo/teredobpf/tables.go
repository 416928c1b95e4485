// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredobpf

import (
	"math/bits"
	"net/netip"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/fastpath"
)

// Filter counts clients under test by a hash of their address, saturating: what
// comes from a client that it does not know is from a stranger.
type Filter struct {
	seed  [2]uint64
	tally fastpath.Tally
}

// UnderTest returns the filter, which the engine alone may write.
func (t *Relay) UnderTest() *Filter {
	return &Filter{seed: t.settings.FilterSeed, tally: fastpath.TallyOver(t.Shared())}
}

// slot returns the counter of an address, as bpf/peers.h finds it.
func (f *Filter) slot(key *[16]byte) uint64 {
	lo := *(*uint64)(unsafe.Pointer(&key[0]))
	hi := *(*uint64)(unsafe.Pointer(&key[8]))
	h := (lo ^ f.seed[0]) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h = (h + (hi ^ f.seed[1])) * 0xd6e8feb86659fd93
	return h >> 48
}

// Add counts an address.
func (f *Filter) Add(key [16]byte) { f.tally.Add(f.slot(&key)) }

// Remove takes back one Add of the address.
func (f *Filter) Remove(key [16]byte) { f.tally.Remove(f.slot(&key)) }

// Clear forgets all addresses.
func (f *Filter) Clear() { f.tally.Clear() }

// Foreign is the table of mappings that are not in their peer's address.
type Foreign struct{ table *ebpf.Map }

// Foreign returns the table, which the engine alone may write.
func (t *Relay) Foreign() *Foreign { return &Foreign{t.Map(foreignSlab)} }

// Get returns the mapping of a peer.
func (f *Foreign) Get(key [16]byte) (mapped netip.AddrPort, ok bool) {
	var m teredoMapping
	if f.table.Lookup(&key, &m) != nil {
		return mapped, false
	}
	return m.addrPort(), true
}

// Put records the mapping of a peer; false when it cannot.
func (f *Foreign) Put(key [16]byte, mapped netip.AddrPort) bool {
	m := teredoMapping{Ip: fastpath.IPv4Word(mapped.Addr()), Port: bits.ReverseBytes16(mapped.Port())}
	return f.table.Update(&key, &m, ebpf.UpdateAny) == nil
}

// Delete forgets it.
func (f *Foreign) Delete(key [16]byte) {
	// One that is not there is as good as deleted.
	_ = f.table.Delete(&key)
}

// Walk calls visit for all of them. It deletes nothing meanwhile.
func (f *Foreign) Walk(visit func(key [16]byte, mapped netip.AddrPort)) {
	var key [16]byte
	var m teredoMapping
	for all := f.table.Iterate(); all.Next(&key, &m); {
		visit(key, m.addrPort())
	}
}

// Len returns how many there are.
func (f *Foreign) Len() (n int) {
	f.Walk(func([16]byte, netip.AddrPort) { n++ })
	return n
}

func (m *teredoMapping) addrPort() netip.AddrPort {
	return netip.AddrPortFrom(fastpath.WordIPv4(m.Ip), bits.ReverseBytes16(m.Port))
}
