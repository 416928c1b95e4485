// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// Of how many arrivals on a CPU one is timed, and how many times of a CPU are on record:
// those of bpf/arrivals.h.
const (
	arrivalEach  = 16
	arrivalTimes = 1 << 14
)

// arrivals tells what arrived by when, to some packets of each CPU.
type arrivals struct {
	counts *ebpf.Map
	memory []byte
	times  []uint64 // [CPU][arrivalTimes]nanoseconds of CLOCK_MONOTONIC
}

// roomForArrivals has the times of all CPUs find room.
func roomForArrivals(spec *ebpf.CollectionSpec) error {
	cpus, err := ebpf.PossibleCPU()
	if err == nil {
		spec.Maps["times"].MaxEntries = uint32(cpus * arrivalTimes)
	}
	return err
}

// openArrivals maps those of a loaded object.
func openArrivals(counts, times *ebpf.Map) (a arrivals, err error) {
	n := int(times.MaxEntries())
	if a.memory, err = mapped(times, 8*n); err == nil {
		a.counts, a.times = counts, words(a.memory, n)
	}
	return a, err
}

func (a *arrivals) close() error {
	if a.memory == nil {
		return nil
	}
	return unmap(a.memory)
}

// Arrived is how many packets have arrived so far, by CPU.
func (a *arrivals) Arrived() (perCPU []uint64, err error) {
	if err := a.counts.Lookup(uint32(0), &perCPU); err != nil {
		return nil, fmt.Errorf("what has arrived cannot be read: %w", err)
	}
	return perCPU, nil
}

// ArrivedUntil is how many packets have arrived since a call of Arrived until the kernel's
// clock (CLOCK_MONOTONIC) had that time. Of more than 262,144 on a CPU that is not known any
// more, and all of those count.
func (a *arrivals) ArrivedUntil(since []uint64, end time.Duration) (n uint64, err error) {
	now, err := a.Arrived()
	if err != nil {
		return 0, err
	}
	for cpu := range now {
		n += arrivedUntil(a.times[cpu*arrivalTimes:][:arrivalTimes], since[cpu], now[cpu], uint64(end))
	}
	return n, nil
}

// arrivedUntil is how many of the arrivals from first on, before last, had come by a time.
func arrivedUntil(times []uint64, first, last, end uint64) uint64 {
	if last-first > arrivalTimes*arrivalEach {
		return last - first
	}
	reached, timed := first, uint64(0)
	for k := (first + arrivalEach - 1) / arrivalEach; k*arrivalEach < last; k++ {
		at := times[k%arrivalTimes]
		if at <= end {
			reached, timed = k*arrivalEach, at
			continue
		}
		if timed > 0 { // those between two times come evenly
			reached += arrivalEach * (end - timed) / (at - timed)
		}
		return reached - first
	}
	return last - first
}
