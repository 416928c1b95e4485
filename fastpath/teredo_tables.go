// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// Device is an interface that the programs serve. What comes in by others passes.
type Device struct {
	Index int
	MAC   net.HardwareAddr
	// Frames lets XDP redirect into it, Packets tc.
	Frames, Packets bool
	// Whole tells that it takes TCP segments out of a tunnel before they are cut:
	// a veth does. What is no tunnel any more would confuse a card that cuts
	// tunnels.
	Whole bool
	// Partial tells that its frames may come from a sender on this machine that
	// leaves checksums to hardware: a veth's do.
	Partial bool
}

// Flags of a device.
const (
	deviceFrames = 1 << iota
	devicePackets
	deviceWhole
	devicePartial
)

func (d *Device) flags() (flags uint16) {
	for flag, set := range map[uint16]bool{
		deviceFrames: d.Frames, devicePackets: d.Packets, deviceWhole: d.Whole, devicePartial: d.Partial,
	} {
		if set {
			flags |= flag
		}
	}
	return flags
}

// SetDevice adds a device, or changes it. Next hops are asked for anew, unless all is
// as it was.
func (t *Teredo) SetDevice(d Device) error {
	if d.Index <= 0 || len(d.MAC) != 6 {
		return fmt.Errorf("interface %d has no Ethernet address and cannot be in the fast path", d.Index)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := &t.settings.Devices[d.Index%deviceSlots]
	if other := atomic.LoadUint32(&slot.Ifindex); other != 0 && other != uint32(d.Index) {
		return fmt.Errorf("interface %d cannot be in the fast path beside interface %d: their numbers differ by a multiple of %d, so leave one out of fast_path_devices", d.Index, other, deviceSlots)
	}
	var flags uint16
	for i, set := range []bool{d.Frames, d.Packets, d.Whole, d.Partial} {
		if set {
			flags |= 1 << i
		}
	}
	if slot.Ifindex == uint32(d.Index) && slot.Mac == [6]uint8(d.MAC) && slot.Flags == flags {
		return nil
	}
	atomic.StoreUint32(&slot.Ifindex, 0)
	slot.Mac, slot.Flags = [6]uint8(d.MAC), d.flags()
	atomic.StoreUint32(&slot.Ifindex, uint32(d.Index))
	t.Bump()
	return nil
}

// RemoveDevice takes a device out.
func (t *Teredo) RemoveDevice(index int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if index > 0 {
		atomic.CompareAndSwapUint32(&t.settings.Devices[index%deviceSlots].Ifindex, uint32(index), 0)
		t.Bump()
	}
}

// Devices lists the indices of the devices.
func (t *Teredo) Devices() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []int
	for i := range t.settings.Devices {
		if index := t.settings.Devices[i].Ifindex; index != 0 {
			list = append(list, int(index))
		}
	}
	return list
}

// Routes4 has one byte for the upper half of each IPv4 address: 0, or the class of a
// next hop that surely is that of all destinations there.
func (t *Teredo) Routes4() []byte { return t.shared[:routes4Size:routes4Size] }

// Neighbours lists next hops that were asked for lately.
func (t *Teredo) Neighbours() ([]NextHop, error) {
	var list []NextHop
	var key teredoNeighbour
	var asked uint64
	all := t.maps.Neighbours.Iterate()
	for all.Next(&key, &asked) {
		hop := NextHop{Family: 4, Ifindex: int(key.Ifindex), Addr: netip.AddrFrom4([4]byte(key.Address[:4]))}
		if key.Family != familyIPv4 {
			hop.Family, hop.Addr = 6, netip.AddrFrom16(key.Address)
		}
		list = append(list, hop)
	}
	// Programs may push entries out meanwhile, and more than once.
	if err := all.Err(); err != nil && err != ebpf.ErrIterationAborted {
		return list, fmt.Errorf("cannot read the next hops of the fast path: %w", err)
	}
	return list, nil
}

const familyIPv4 = 2

// Filter counts clients under test by a hash of their address, saturating: what
// comes from a client that it does not know is from a stranger.
type Filter struct {
	seed  [2]uint64
	words []uint32
}

// UnderTest returns the filter, which the engine alone may write.
func (t *Teredo) UnderTest() *Filter {
	b := t.shared[routes4Size:][:filterSlots]
	return &Filter{
		seed:  t.settings.FilterSeed,
		words: unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), filterSlots/4),
	}
}

// slot returns the counter of an address, as bpf/peers.h finds it.
func (f *Filter) slot(key *[16]byte) (word *uint32, shift int) {
	lo := *(*uint64)(unsafe.Pointer(&key[0]))
	hi := *(*uint64)(unsafe.Pointer(&key[8]))
	h := (lo ^ f.seed[0]) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h = (h + (hi ^ f.seed[1])) * 0xd6e8feb86659fd93
	slot := h >> 48
	return &f.words[slot/4], int(slot%4) * 8
}

// full is where a counter stays: what has met so often is never forgotten, until
// Clear.
const full = 255

// Add counts an address.
func (f *Filter) Add(key [16]byte) {
	word, shift := f.slot(&key)
	if n := *word >> shift & full; n < full {
		atomic.StoreUint32(word, *word+1<<shift)
	}
}

// Remove takes back one Add of the address.
func (f *Filter) Remove(key [16]byte) {
	word, shift := f.slot(&key)
	if n := *word >> shift & full; n > 0 && n < full {
		atomic.StoreUint32(word, *word-1<<shift)
	}
}

// Clear forgets all addresses.
func (f *Filter) Clear() {
	for i := range f.words {
		atomic.StoreUint32(&f.words[i], 0)
	}
}

// Foreign is the table of mappings that are not in their peer's address.
type Foreign struct{ table *ebpf.Map }

// Foreign returns the table, which the engine alone may write.
func (t *Teredo) Foreign() *Foreign { return &Foreign{t.maps.Foreign} }

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
	m := teredoMapping{Ip: ipv4Word(mapped.Addr()), Port: bits.ReverseBytes16(mapped.Port())}
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
	return netip.AddrPortFrom(wordIPv4(m.Ip), bits.ReverseBytes16(m.Port))
}

// Samples returns a reader of the sampled packets; [ParseSample] takes its records
// apart.
func (t *Teredo) Samples() (*ringbuf.Reader, error) { return sampleReader(t.maps.Samples) }

func sampleReader(m *ebpf.Map) (*ringbuf.Reader, error) {
	r, err := ringbuf.NewReader(m)
	if err != nil {
		return nil, fmt.Errorf("cannot read samples of the fast path: %w", err)
	}
	return r, nil
}
