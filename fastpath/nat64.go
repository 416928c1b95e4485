// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/translate/ipid"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// NAT64Config says what the programs and tables of a NAT64 are made for.
type NAT64Config struct {
	// Name is the instance's.
	Name string
	// Sizes are those of the state.
	Sizes state.Sizes
	// Shape is whatever else of the configuration the tables depend on. Tables of
	// another shape are not taken over.
	Shape string
	// Pins keep the tables for a successor; nil: they end with the process.
	Pins *Pins
}

// NAT64 is the programs and tables of one NAT64. Its methods may be called from any
// goroutine, unless they say otherwise.
type NAT64 struct {
	config   NAT64Config
	programs nat64Programs
	tables   map[string]*ebpf.Map // by the name in the object
	pins     *Pins
	adopted  bool

	memory   state.Memory // mapped, as what follows
	shared   []byte
	ids      ipid.IDs // in shared
	settings *nat64Nat64Settings
	controls
	current NAT64Settings
	mapped  [][]byte
}

// Sections that are maps.
const (
	nat64SettingsMap = ".data.settings"
	nat64HeadMap     = ".data.head"
	nat64SharedMap   = ".bss"
)

// slabMap returns the name, in the object, of the map that a slab of the state lies in.
func slabMap(slab string) string {
	if slab == state.SlabHead {
		return nat64HeadMap
	}
	return slab
}

// LoadNAT64 loads the programs and makes their tables, or takes over those that a
// predecessor of the same configuration has pinned. Nothing is attached, and programs
// that are run pass all packets, until [NAT64.Set] and [NAT64.Beat]. Programs of a
// predecessor that are still attached go on; [NAT64.Sleep] ends that.
func LoadNAT64(cfg NAT64Config) (*NAT64, error) {
	if err := cfg.Sizes.Check(); err != nil {
		return nil, err
	}
	spec, err := nat64Spec(cfg)
	if err != nil {
		return nil, err
	}
	n := &NAT64{config: cfg, pins: cfg.Pins}
	old := n.openPinned(spec)
	defer closeMaps(old)
	if err := n.load(spec, old); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot load the fast path: %w", err), n.Close())
	}
	n.adopted = old != nil
	if err := n.open(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	if err := n.pin(); err != nil {
		return nil, errors.Join(err, n.Unpin(), n.Close())
	}
	n.Trace(0, 0) // a predecessor may have been killed in the middle of one
	return n, nil
}

// nat64Spec is the object with what is fixed when it is loaded.
func nat64Spec(cfg NAT64Config) (*ebpf.CollectionSpec, error) {
	spec, err := loadNat64()
	if err != nil {
		return nil, fmt.Errorf("the fast path in this program is damaged: %w", err)
	}
	var fixed nat64Nat64Features
	mask := mask6(cfg.Sizes.SubscriberLength)
	for i := range fixed.ClientMask {
		fixed.ClientMask[i] = binary.NativeEndian.Uint64(mask[8*i:])
	}
	for _, slab := range cfg.Sizes.Slabs() {
		m := spec.Maps[slabMap(slab.Name)]
		if m == nil || int(m.ValueSize) != slab.RecordSize {
			return nil, fmt.Errorf("the fast path in this program and its state differ in the table %s", slab.Name)
		}
		m.MaxEntries = uint32(slab.Records)
	}
	if err := spec.Variables["fixed"].Set(fixed); err != nil {
		return nil, fmt.Errorf("cannot prepare the fast path: %w", err)
	}
	return spec, nil
}

// load loads everything, with the old maps in their places.
func (n *NAT64) load(spec *ebpf.CollectionSpec, old map[string]*ebpf.Map) error {
	all, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: old})
	if err != nil {
		return err
	}
	defer all.Close()
	n.tables = make(map[string]*ebpf.Map)
	for name := range all.Maps {
		n.tables[name] = all.DetachMap(name)
	}
	return all.Assign(&n.programs)
}

// open maps the tables into memory and gives them their first contents.
func (n *NAT64) open() error {
	n.memory = make(state.Memory)
	for _, slab := range n.config.Sizes.Slabs() {
		b, err := n.mmap(slabMap(slab.Name))
		if err != nil {
			return err
		}
		n.memory[slab.Name] = b[:slab.Bytes()]
	}
	settings, err := n.mmap(nat64SettingsMap)
	if err != nil {
		return err
	}
	if n.shared, err = n.mmap(nat64SharedMap); err != nil {
		return err
	}
	s := (*nat64Nat64Settings)(unsafe.Pointer(unsafe.SliceData(settings)))
	n.settings = s
	n.controls.overlay(&s.Generation, &s.AliveUntil, &s.TraceEvery, &s.TraceLimit,
		(*[deviceSlots]teredoDevice)(unsafe.Pointer(&s.Devices)))
	if n.ids, err = ipid.Over(n.shared[routes4Size+filterSlots:], rand.Reader); err != nil || n.adopted {
		return err
	}
	if err := n.seed(); err != nil {
		return err
	}
	return n.placeCursors()
}

// mmap maps an array into memory, until Close.
func (n *NAT64) mmap(name string) ([]byte, error) {
	m := n.tables[name]
	size := int(m.MaxEntries()) * int(m.ValueSize())
	b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("cannot map the table %s into memory: %w", name, err)
	}
	n.mapped = append(n.mapped, b)
	return b, nil
}

// seed draws the secrets of new tables, so that nobody outside can choose what meets in
// them.
func (n *NAT64) seed() error {
	var b [5 * 8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return fmt.Errorf("no random seed for the fast path: %w", err)
	}
	n.settings.HopSeed = binary.NativeEndian.Uint64(b[:])
	n.settings.WaitingSeed[0] = binary.NativeEndian.Uint64(b[8:])
	n.settings.WaitingSeed[1] = binary.NativeEndian.Uint64(b[16:])
	n.settings.PortKey[0] = binary.NativeEndian.Uint64(b[24:])
	n.settings.PortKey[1] = binary.NativeEndian.Uint64(b[32:])
	n.settings.Generation = 1
	return nil
}

// placeCursors has each core look for free records in a part of the tables of its own.
func (n *NAT64) placeCursors() error {
	cores, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("cannot tell the number of cores: %w", err)
	}
	cursors := make([]nat64Nat64Cursor, cores)
	words := (n.config.Sizes.Sessions + 63) / 64
	for i := range cursors {
		at := uint32(words * i / cores)
		cursors[i] = nat64Nat64Cursor{Session: at, Binding: at}
	}
	if err := n.tables["cursors"].Put(uint32(0), cursors); err != nil {
		return fmt.Errorf("cannot prepare the fast path: %w", err)
	}
	return nil
}

// LoadBeside loads another object that was built of the same headers, over these tables,
// into a structure that names its programs and maps. It is how the cost of the programs
// is measured.
func (n *NAT64) LoadBeside(spec *ebpf.CollectionSpec, into any) error {
	own, err := nat64Spec(n.config)
	if err != nil {
		return err
	}
	var fixed nat64Nat64Features
	if err := own.Variables["fixed"].Get(&fixed); err != nil {
		return err
	}
	if err := spec.Variables["fixed"].Set(fixed); err != nil {
		return err
	}
	tables := make(map[string]*ebpf.Map)
	for name := range nat64Kept(n.config.Sizes) {
		tables[name] = n.tables[name]
		spec.Maps[name].MaxEntries = own.Maps[name].MaxEntries
	}
	return spec.LoadAndAssign(into, &ebpf.CollectionOptions{MapReplacements: tables})
}

// Adopted tells whether the tables are those of a predecessor: state and settings are in
// them.
func (n *NAT64) Adopted() bool { return n.adopted }

// Memory is that of the state, for [state.Open]. It is gone after Close. Programs must
// not run on it while it is opened: see [NAT64.Sleep].
func (n *NAT64) Memory() state.Memory { return n.memory }

// IDs makes identifications as the programs do, of the same memory. It is gone after Close.
func (n *NAT64) IDs() ipid.IDs { return n.ids }

// Sleep has the programs pass everything, those of a predecessor too, until the next
// [NAT64.Beat]. When it returns, none is still at work on what it found before.
func (n *NAT64) Sleep() {
	atomic.StoreUint64(n.aliveUntil, 0)
	awaitPrograms()
}

// Programs returns what is to be attached.
func (n *NAT64) Programs() Programs {
	return Programs{XDP: n.programs.IsthmusNat64Xdp, Ingress: n.programs.IsthmusNat64Ingress}
}

// SteerPrograms returns what brings packets to the pool's addresses of this host to the
// engine, in every mode: it is attached by tc, behind [NAT64.Programs], as an instance of
// a name and pins of its own.
func (n *NAT64) SteerPrograms() Programs { return Programs{Ingress: n.programs.IsthmusNat64Steer} }

// Steer returns the program that steers.
func (n *NAT64) Steer() *ebpf.Program { return n.programs.IsthmusNat64Steer }

// Close gives everything back that is not pinned or attached.
func (n *NAT64) Close() error {
	var errs []error
	for _, b := range n.mapped {
		errs = append(errs, unix.Munmap(b))
	}
	n.mapped, n.memory, n.shared, n.settings = nil, nil, nil, nil
	n.controls.overlay(nil, nil, nil, nil, nil)
	errs = append(errs, n.programs.Close())
	for _, m := range n.tables {
		errs = append(errs, m.Close())
	}
	n.tables = nil
	return errors.Join(errs...)
}
