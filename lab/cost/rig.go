// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"errors"
	"fmt"
	"io"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
)

// rig is where programs are run: a namespace, the tables of a role, and the count of
// turns.
type rig struct {
	ns     netns.NsHandle
	tables *fastpath.Object
	loaded io.Closer // the programs
	memory []byte    // of what depends on the peer
	turn   *ebpf.Variable
	oneCPU bool // or each has its own place where it looks for free records
}

// load loads programs over the tables. They have records in a map, one for each of n peers,
// which is a power of two.
func (r *rig) load(spec *ebpf.CollectionSpec, err error, records, mask string, n int, into io.Closer) error {
	if err != nil {
		return err
	}
	spec.Maps[records].MaxEntries = uint32(n)
	if err := spec.Variables[mask].Set(uint32(n - 1)); err != nil {
		return err
	}
	r.loaded = into
	if err := r.tables.LoadBeside(spec, into); err != nil {
		return fmt.Errorf("cannot load the programs to be measured: %w", err)
	}
	return nil
}

// forwarded counts what the programs have forwarded.
func (r *rig) forwarded() (n uint64, err error) {
	list, err := r.tables.Counters()
	for _, c := range list {
		if c.Verdict == fastpath.Forward {
			n += c.Packets
		}
	}
	return n, err
}

// enter makes the namespace, with a device and a tunnel.
func (r *rig) enter() (device, tunnel int, err error) {
	err = onThread(func() error {
		if r.ns, err = netns.New(); err != nil {
			return fmt.Errorf("cannot make a network namespace: %w", err)
		}
		device, tunnel, err = makeHost()
		return err
	})
	return device, tunnel, err
}

// close gives back what the rig has.
func (r *rig) close() {
	if r.loaded != nil {
		_ = r.loaded.Close()
	}
	if r.tables != nil {
		_ = r.tables.Close()
	}
	if r.memory != nil {
		// Nothing can be done about memory that stays.
		_ = unix.Munmap(r.memory)
	}
	if r.ns.IsOpen() {
		r.ns.Close()
	}
}

// serve tells programs of the devices. Test runs come in by the loopback device.
func serve(set func(fastpath.Device) error, device int) error {
	return errors.Join(
		set(fastpath.Device{Index: 1, MAC: inMAC}),
		set(fastpath.Device{Index: device, MAC: inMAC, Frames: true}),
	)
}

// mapRecords maps an array of so many records into the rig's memory.
func mapRecords[T any](r *rig, m *ebpf.Map, n int) (records []T, err error) {
	var one T
	if r.memory, err = unix.Mmap(m.FD(), 0, n*int(unsafe.Sizeof(one)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("cannot map the templates into memory: %w", err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(r.memory))), n), nil
}
