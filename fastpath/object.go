// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
)

// Maps that every object has, by their names in it.
const (
	settingsMap   = ".data.settings"
	sharedMap     = ".bss"
	countersMap   = "counters"
	neighboursMap = "neighbours"
	samplesMap    = "samples"
	constantsMap  = ".rodata" // of variables that are fixed when programs are loaded
)

// Slab is a table of records whose number is chosen when it is made.
type Slab struct {
	Name       string // of the map in the object
	RecordSize int
	Records    int
}

// Build says what an object is, and what it is loaded for.
type Build struct {
	// Spec reads the object, as bpf2go embeds it.
	Spec func() (*ebpf.CollectionSpec, error)
	// Constants are fixed when the programs are loaded, by the names of their variables.
	Constants map[string]any
	// Slabs are the tables whose sizes are chosen here. All others are as they were
	// compiled.
	Slabs []Slab
	// Reasons are those of the object's verdicts.
	Reasons *Reasons
	// Controls finds in the settings what every object is controlled by.
	Controls func(settings []byte) Controls
	// Begin is called once with the tables in memory, before anybody else sees them. Where
	// they are not adopted it gives them their first contents. May be nil.
	Begin func(*Object) error

	// Pins keep tables for a successor: the slabs, what the daemon has told, what was
	// counted, and the maps named in Kept. Nil: all end with the process.
	Pins *pinned.Folder
	Kept []string
	// Shape puts into words what the tables are made for. Those of another shape are not
	// taken over.
	Shape string
}

// Object is the programs of one data path with their tables. Its methods may be called
// from any goroutine, unless they say otherwise.
type Object struct {
	controls
	build    Build
	programs map[string]*ebpf.Program // by the names in the object, as what follows
	tables   map[string]*ebpf.Map
	memory   map[string][]byte // of tables that can be mapped
	adopted  bool
}

// Load loads the programs and makes their tables, or takes over those that a predecessor
// has pinned for the same shape. Nothing is attached, and programs that are run pass all
// packets, until [Object.Beat]. Programs of a predecessor that are still attached go on;
// [Object.Sleep] ends that.
func Load(b Build) (*Object, error) {
	spec, err := b.spec()
	if err != nil {
		return nil, err
	}
	o := &Object{build: b}
	old := o.openPinned(spec)
	defer closeMaps(old)
	if err := o.load(spec, old); err != nil {
		return nil, errors.Join(refused(err), o.Close())
	}
	o.adopted = old != nil
	if err := o.open(); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	if err := o.pin(old); err != nil {
		if !o.adopted { // or the next one may take them over
			err = errors.Join(err, o.Unpin())
		}
		return nil, errors.Join(err, o.Close())
	}
	o.Trace(0, 0) // a predecessor may have been killed in the middle of one
	return o, nil
}

// spec is the object with what is chosen before it is loaded.
func (b *Build) spec() (*ebpf.CollectionSpec, error) {
	spec, err := b.Spec()
	if err != nil {
		return nil, fmt.Errorf("the fast path in this program is damaged: %w", err)
	}
	for _, s := range b.Slabs {
		m := spec.Maps[s.Name]
		if m == nil || int(m.ValueSize) != s.RecordSize {
			return nil, fmt.Errorf("the fast path in this program and its state differ in the table %s", s.Name)
		}
		m.MaxEntries = uint32(s.Records)
	}
	if err := b.fix(spec); err != nil {
		return nil, fmt.Errorf("cannot prepare the fast path: %w", err)
	}
	b.dropUnused(spec)
	return spec, nil
}

// fix writes the constants.
func (b *Build) fix(spec *ebpf.CollectionSpec) error {
	for name, value := range b.Constants {
		if err := spec.Variables[name].Set(value); err != nil {
			return err
		}
	}
	return nil
}

// dropUnused leaves out what shared headers declare and no one uses.
func (b *Build) dropUnused(spec *ebpf.CollectionSpec) {
	used := map[string]bool{}
	for _, s := range b.Slabs {
		used[s.Name] = true
	}
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			used[p.Instructions[i].Reference()] = true
		}
	}
	for name := range spec.Maps {
		if !used[name] {
			delete(spec.Maps, name)
		}
	}
	for name, v := range spec.Variables {
		if !used[v.SectionName] {
			delete(spec.Variables, name)
		}
	}
}

// load loads everything, with the old maps in their places.
func (o *Object) load(spec *ebpf.CollectionSpec, old map[string]*ebpf.Map) error {
	all, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: old})
	if err != nil {
		return err
	}
	o.programs, o.tables = all.Programs, all.Maps
	return nil
}

// refused says in words why the kernel does not load programs.
func refused(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("no permission to load the fast path: run as root or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN: %w", err)
	}
	return fmt.Errorf("cannot load the fast path: %w", err)
}

// open maps the tables into memory, and has new ones begin.
func (o *Object) open() error {
	o.memory = make(map[string][]byte)
	for name, m := range o.tables {
		if m.Flags()&unix.BPF_F_MMAPABLE == 0 || name == constantsMap {
			continue
		}
		size := int(m.MaxEntries()) * int(m.ValueSize())
		b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("cannot map the table %s into memory: %w", name, err)
		}
		o.memory[name] = b
	}
	o.at = o.build.Controls(o.memory[settingsMap])
	if !o.adopted {
		if err := o.at.begin(); err != nil {
			return err
		}
	}
	if o.build.Begin == nil {
		return nil
	}
	return o.build.Begin(o)
}

// Over lays a record over mapped memory.
func Over[R any](memory []byte) *R { return (*R)(unsafe.Pointer(unsafe.SliceData(memory))) }

// LoadBeside loads another object that was built of the same headers, over these tables
// and with the same constants, into a structure that names its programs and maps. It is
// how the cost of the programs is measured.
func (o *Object) LoadBeside(spec *ebpf.CollectionSpec, into any) error {
	if err := o.build.fix(spec); err != nil {
		return err
	}
	tables := make(map[string]*ebpf.Map)
	for name, m := range o.tables {
		if spec.Maps[name] == nil || name == constantsMap { // which are each object's own
			continue
		}
		tables[name] = m
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	return spec.LoadAndAssign(into, &ebpf.CollectionOptions{MapReplacements: tables})
}

// Adopted reports whether the tables are those of a predecessor: state and settings are in
// them.
func (o *Object) Adopted() bool { return o.adopted }

// Program returns the program of a name in the object.
func (o *Object) Program(name string) *ebpf.Program { return o.programs[name] }

// Map returns the map of a name in the object.
func (o *Object) Map(name string) *ebpf.Map { return o.tables[name] }

// Memory is the memory of the map of a name in the object, until Close; nil if it has none.
func (o *Object) Memory(name string) []byte { return o.memory[name] }

// Settings is the memory of the settings, until Close.
func (o *Object) Settings() []byte { return o.memory[settingsMap] }

// Shared is the memory of the tables that all objects of a kind have beside the settings,
// but for the routes of [Object.Routes4], until Close.
func (o *Object) Shared() []byte { return o.memory[sharedMap][routes4Size:] }

// Routes4 has one byte for the upper half of each IPv4 address: 0, or the class of a
// next hop that surely is that of all destinations there.
func (o *Object) Routes4() []byte { return o.memory[sharedMap][:routes4Size:routes4Size] }

// Sleep has the programs pass everything, those of a predecessor too, until the next
// [Object.Beat]. When it returns, none is still at work on what it found before.
func (o *Object) Sleep() {
	atomic.StoreUint64(o.at.AliveUntil, 0)
	AwaitPrograms()
}

// Silence returns for how long the programs have passed everything, for want of a daemon;
// 0: they have not, or a daemon was killed while it changed settings.
func (o *Object) Silence() time.Duration {
	until := atomic.LoadUint64(o.at.AliveUntil)
	if until == 0 {
		return 0
	}
	return max(Monotonic()-time.Duration(until), 0)
}

// Close gives everything back that is not pinned or attached.
func (o *Object) Close() error {
	var errs []error
	for _, b := range o.memory {
		errs = append(errs, unix.Munmap(b))
	}
	o.memory, o.at = nil, Controls{}
	for _, p := range o.programs {
		errs = append(errs, p.Close())
	}
	for _, m := range o.tables {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
