// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// MaxStamps is how many sequence numbers a [Meter] has on record at once: it
// counts them modulo this.
const MaxStamps = 1 << 16

// Meter measures one direction of a way through the network, by eBPF programs at
// its ends. It counts test packets as they arrive and drops them, before any
// host answers; and stamps those with sequence numbers at both ends by one clock.
type Meter struct {
	arrivals
	objects           meterObjects
	departed, arrived []uint64
	memory            [2][]byte
	links             []io.Closer
}

// Hook is where the receiving end of a meter sits.
type Hook string

// Frames that were redirected by XDP arrive as frames, which only XDP sees without
// a detour; all else arrives as socket buffers.
const (
	HookXDP Hook = "xdp"
	HookTC  Hook = "tc"
)

// NewMeter loads a meter. It needs root.
func NewMeter() (*Meter, error) {
	spec, err := loadMeter()
	if err == nil {
		err = roomForArrivals(spec)
	}
	m := &Meter{}
	if err == nil {
		err = spec.LoadAndAssign(&m.objects, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("the meter cannot be loaded, which needs root: %w", err)
	}
	if m.arrivals, err = openArrivals(m.objects.Arrivals, m.objects.Times); err != nil {
		m.Close()
		return nil, err
	}
	for i, array := range []*ebpf.Map{m.objects.Departed, m.objects.Arrived} {
		b, err := mapped(array, MaxStamps*8)
		if err != nil {
			m.Close()
			return nil, err
		}
		m.memory[i] = b
	}
	m.departed = words(m.memory[0], MaxStamps)
	m.arrived = words(m.memory[1], MaxStamps)
	return m, nil
}

// words are the values of a mapped array.
func words(b []byte, n int) []uint64 { return unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), n) }

// Close takes the meter away.
func (m *Meter) Close() error {
	var errs []error
	for _, l := range m.links {
		errs = append(errs, l.Close())
	}
	for _, b := range m.memory {
		if b != nil {
			errs = append(errs, unmap(b))
		}
	}
	return errors.Join(append(errs, m.arrivals.close(), m.objects.Close())...)
}

// Departure stamps what leaves by an interface of the calling thread's network
// namespace, after its queueing discipline: a [Sender] that goes past that goes
// past the meter.
func (m *Meter) Departure(iface string) error {
	return m.classify(iface, m.objects.MeterDepart, ebpf.AttachTCXEgress)
}

// Arrival stamps, counts and drops what arrives at an interface of the calling
// thread's network namespace.
func (m *Meter) Arrival(iface string, hook Hook) error {
	if hook == HookTC {
		return m.classify(iface, m.objects.MeterArriveTc, ebpf.AttachTCXIngress)
	}
	l, err := attachXDP(m.objects.MeterArriveXdp, iface)
	if err != nil {
		return err
	}
	m.links = append(m.links, l)
	return nil
}

// DepartBy has the meter time packets from their leaving by a prober on.
func (m *Meter) DepartBy(p *Prober) { m.departed = p.departed }

func (m *Meter) classify(iface string, program *ebpf.Program, attach ebpf.AttachType) error {
	device, err := net.InterfaceByName(iface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", iface, err)
	}
	l, err := link.AttachTCX(link.TCXOptions{Program: program, Interface: device.Index, Attach: attach})
	if err != nil {
		return fmt.Errorf("the meter cannot be attached to %s, which needs Linux 6.6: %w", iface, err)
	}
	m.links = append(m.links, l)
	return nil
}

// Count is how many test packets of a class have arrived so far; see [Classify].
func (m *Meter) Count(class int) (uint64, error) {
	var perCPU []uint64
	if err := m.objects.Counts.Lookup(uint32(class), &perCPU); err != nil {
		return 0, fmt.Errorf("the count of the meter cannot be read: %w", err)
	}
	return sum(perCPU), nil
}

// Total is how many test packets of all classes have arrived so far. Behind a
// translator, which chooses ports, classes mean nothing.
func (m *Meter) Total() (uint64, error) {
	perCPU, err := m.Arrived()
	return sum(perCPU), err
}

func sum(perCPU []uint64) (n uint64) {
	for _, of := range perCPU {
		n += of
	}
	return n
}

// SettleAll waits until nothing arrives any more, at most for patience, and returns
// the total.
func (m *Meter) SettleAll(patience time.Duration) (uint64, error) {
	return settle(m.Total, patience)
}

// Settle waits until nothing of a class arrives any more, at most for patience,
// and returns its count.
func (m *Meter) Settle(class int, patience time.Duration) (uint64, error) {
	return settle(func() (uint64, error) { return m.Count(class) }, patience)
}

func settle(count func() (uint64, error), patience time.Duration) (uint64, error) {
	const calm = 2 * time.Millisecond
	last, err := count()
	for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); {
		time.Sleep(calm)
		var n uint64
		if n, err = count(); n == last {
			break
		}
		last = n
	}
	return last, err
}

// Forget clears the stamps of n sequence numbers from first on.
func (m *Meter) Forget(first uint64, n int) {
	for i := range uint64(n) {
		at := (first + i) % MaxStamps
		atomic.StoreUint64(&m.departed[at], 0)
		atomic.StoreUint64(&m.arrived[at], 0)
	}
}

// Await waits until n sequence numbers from first on have arrived, at most for
// patience, and returns how many have.
func (m *Meter) Await(ctx context.Context, first uint64, n int, patience time.Duration) (came int) {
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Microsecond) {
		came = 0
		for i := range uint64(n) {
			if atomic.LoadUint64(&m.arrived[(first+i)%MaxStamps]) != 0 {
				came++
			}
		}
		if came == n || time.Now().After(deadline) || ctx.Err() != nil {
			return came
		}
	}
}

// Latencies are the times under way of those of n sequence numbers from first on
// that both ends have seen, in their order.
func (m *Meter) Latencies(first uint64, n int) []time.Duration {
	var times []time.Duration
	for i := range uint64(n) {
		at := (first + i) % MaxStamps
		out, in := atomic.LoadUint64(&m.departed[at]), atomic.LoadUint64(&m.arrived[at])
		if out != 0 && in > out {
			times = append(times, time.Duration(in-out))
		}
	}
	return times
}
