// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"errors"
	"time"

	"github.com/cilium/ebpf"
)

// settle is how long is waited where the kernel cannot be asked to. A core may be taken
// away from this machine for longer than a program runs.
const settle = 100 * time.Millisecond

// AwaitPrograms returns when each program that runs at the moment of the call has ended: no
// packet is then handled by what was read before.
func AwaitPrograms() {
	if awaitGrace() != nil {
		time.Sleep(settle)
	}
}

// awaitGrace waits for a grace period. The kernel (maybe_wait_bpf_programs) promises one to
// whoever changes a map of maps, so that none of the programs still uses the inner map of
// before.
func awaitGrace() error {
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: inner})
	if err != nil {
		return err
	}
	defer outer.Close()
	m, err := ebpf.NewMap(inner)
	if err != nil {
		return err
	}
	return errors.Join(outer.Put(uint32(0), m), m.Close())
}
