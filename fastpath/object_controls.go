// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Controls tells where, in the settings of an object, lies what each is controlled by: life,
// next hops, samples, devices, secrets.
type Controls struct {
	Generation, AliveUntil *uint64
	TraceEvery, TraceLimit *uint32
	Devices                *[deviceSlots]DeviceSlot
	// Secrets are drawn when tables are made, so that no one outside can choose what
	// meets in them.
	Secrets []*uint64
}

// begin gives new settings their first contents.
func (c *Controls) begin() error {
	b := make([]byte, 8*len(c.Secrets))
	if _, err := rand.Read(b); err != nil {
		return fmt.Errorf("no random seed for the fast path: %w", err)
	}
	for i, secret := range c.Secrets {
		*secret = binary.NativeEndian.Uint64(b[8*i:])
	}
	*c.Generation = 1
	return nil
}

// DeviceSlot is struct device of bpf/base.h.
type DeviceSlot struct {
	Ifindex uint32
	Mac     [6]uint8
	Flags   uint16
	Mtu     uint32
}

// deviceSlots is a limit of the layout.
const deviceSlots = 256

// DeviceSlots lays the slots over those of settings as bpf2go has them.
func DeviceSlots[D any](devices *[deviceSlots]D) *[deviceSlots]DeviceSlot {
	return (*[deviceSlots]DeviceSlot)(unsafe.Pointer(devices))
}

// controls changes them. Its methods may be called from any goroutine.
type controls struct {
	mu sync.Mutex // held to change settings, but for generation and life
	at Controls
}

// Bump makes all cached next hops invalid.
func (c *controls) Bump() { atomic.AddUint64(c.at.Generation, 1) }

// Trace samples one packet in so many, 0 none, and no more than rate a second, 0
// as many as there are.
func (c *controls) Trace(every, rate int) {
	atomic.StoreUint32(c.at.TraceLimit, uint32(rate))
	atomic.StoreUint32(c.at.TraceEvery, uint32(every))
}

// Beat lets the programs go on for so long from now, by CLOCK_MONOTONIC. Then they
// pass everything. It wakes none while settings change.
func (c *controls) Beat(linger time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	atomic.StoreUint64(c.at.AliveUntil, uint64(Monotonic()+linger))
}

// Change has settings written while the programs pass all packets; then next hops are
// asked for again.
func (c *controls) Change(write func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	until := atomic.SwapUint64(c.at.AliveUntil, 0)
	write()
	c.Bump()
	// Not if another process that shares them has beaten meanwhile.
	atomic.CompareAndSwapUint64(c.at.AliveUntil, 0, until)
}

// Device is an interface that the programs serve. What comes in by others passes.
type Device struct {
	Index int
	MAC   net.HardwareAddr
	// Frames lets XDP redirect into it, Packets tc.
	Frames, Packets bool
	// Whole reports that it takes TCP segments out of a tunnel before they are cut:
	// a veth does. What is no tunnel any more would confuse a card that cuts
	// tunnels.
	Whole bool
	// Partial reports that its frames may come from a sender on this machine that
	// leaves checksums to hardware: a veth's do.
	Partial bool
	// MTU is the device's. A class of IPv4 destinations shares a next hop that has it, but not
	// one with the MTU of a path that a single destination has taught; 0 is not known, and
	// then it shares any.
	MTU int
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

// SetDevice adds a device, or changes it. Next hops are asked for again, unless all is
// as it was.
func (c *controls) SetDevice(d Device) error {
	if d.Index <= 0 || len(d.MAC) != 6 {
		return fmt.Errorf("interface %d has no Ethernet address and cannot be in the fast path", d.Index)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	slot := &c.at.Devices[d.Index%deviceSlots]
	if other := atomic.LoadUint32(&slot.Ifindex); other != 0 && other != uint32(d.Index) {
		return fmt.Errorf("interface %d cannot be in the fast path beside interface %d: their numbers differ by a multiple of %d, so leave one out of fast_path_devices", d.Index, other, deviceSlots)
	}
	flags := d.flags()
	if slot.Ifindex == uint32(d.Index) && slot.Mac == [6]uint8(d.MAC) && slot.Flags == flags && slot.Mtu == uint32(d.MTU) {
		return nil
	}
	atomic.StoreUint32(&slot.Ifindex, 0)
	slot.Mac, slot.Flags, slot.Mtu = [6]uint8(d.MAC), flags, uint32(d.MTU)
	atomic.StoreUint32(&slot.Ifindex, uint32(d.Index))
	c.Bump()
	return nil
}

// RemoveDevice takes a device out.
func (c *controls) RemoveDevice(index int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if index > 0 && atomic.CompareAndSwapUint32(&c.at.Devices[index%deviceSlots].Ifindex, uint32(index), 0) {
		c.Bump()
	}
}

// Devices lists the indices of the devices.
func (c *controls) Devices() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []int
	for i := range c.at.Devices {
		if index := c.at.Devices[i].Ifindex; index != 0 {
			list = append(list, int(index))
		}
	}
	return list
}
