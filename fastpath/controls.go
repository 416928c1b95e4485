// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
)

// controls are the part of the settings that every set of programs has: life, next hops,
// samples, devices. Its methods may be called from any goroutine.
type controls struct {
	mu sync.Mutex // held to change settings, but for generation and life

	generation, aliveUntil *uint64
	traceEvery, traceLimit *uint32
	devices                *[deviceSlots]teredoDevice
}

// overlay tells where they lie.
func (c *controls) overlay(generation, aliveUntil *uint64, every, limit *uint32, devices *[deviceSlots]teredoDevice) {
	c.generation, c.aliveUntil = generation, aliveUntil
	c.traceEvery, c.traceLimit = every, limit
	c.devices = devices
}

// Bump makes all cached next hops invalid.
func (c *controls) Bump() { atomic.AddUint64(c.generation, 1) }

// Trace samples one packet in so many, 0 none, and no more than rate a second, 0
// as many as there are.
func (c *controls) Trace(every, rate int) {
	atomic.StoreUint32(c.traceLimit, uint32(rate))
	atomic.StoreUint32(c.traceEvery, uint32(every))
}

// Beat lets the programs go on for so long from now, by CLOCK_MONOTONIC. Then they
// pass everything.
func (c *controls) Beat(linger time.Duration) {
	atomic.StoreUint64(c.aliveUntil, uint64(Monotonic()+linger))
}

// change has settings written while the programs pass all packets; then next hops are
// asked for anew. The lock is held.
func (c *controls) change(write func()) {
	until := atomic.SwapUint64(c.aliveUntil, 0)
	write()
	c.Bump()
	// Not if a beat has come meanwhile.
	atomic.CompareAndSwapUint64(c.aliveUntil, 0, until)
}

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
func (c *controls) SetDevice(d Device) error {
	if d.Index <= 0 || len(d.MAC) != 6 {
		return fmt.Errorf("interface %d has no Ethernet address and cannot be in the fast path", d.Index)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	slot := &c.devices[d.Index%deviceSlots]
	if other := atomic.LoadUint32(&slot.Ifindex); other != 0 && other != uint32(d.Index) {
		return fmt.Errorf("interface %d cannot be in the fast path beside interface %d: their numbers differ by a multiple of %d, so leave one out of fast_path_devices", d.Index, other, deviceSlots)
	}
	flags := d.flags()
	if slot.Ifindex == uint32(d.Index) && slot.Mac == [6]uint8(d.MAC) && slot.Flags == flags {
		return nil
	}
	atomic.StoreUint32(&slot.Ifindex, 0)
	slot.Mac, slot.Flags = [6]uint8(d.MAC), flags
	atomic.StoreUint32(&slot.Ifindex, uint32(d.Index))
	c.Bump()
	return nil
}

// RemoveDevice takes a device out.
func (c *controls) RemoveDevice(index int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if index > 0 {
		atomic.CompareAndSwapUint32(&c.devices[index%deviceSlots].Ifindex, uint32(index), 0)
		c.Bump()
	}
}

// Devices lists the indices of the devices.
func (c *controls) Devices() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []int
	for i := range c.devices {
		if index := c.devices[i].Ifindex; index != 0 {
			list = append(list, int(index))
		}
	}
	return list
}

const familyIPv4 = 2

// listNeighbours lists the next hops in a table of them.
func listNeighbours(table *ebpf.Map) ([]NextHop, error) {
	var list []NextHop
	var key teredoNeighbour
	var asked uint64
	all := table.Iterate()
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
