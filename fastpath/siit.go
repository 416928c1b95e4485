// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/translate/ipid"
)

// SIITConfig says what the programs and tables of a stateless translator are made for.
type SIITConfig struct {
	// Name is the instance's.
	Name string
	// Mappings is how many explicit mappings there are at the start. There is room for
	// four times as many, and for 65,536 at least, but not for more than [MaxMappings].
	Mappings int
}

// MaxMappings is the greatest number of mappings that the programs take.
const MaxMappings = 1 << 20

// Room for mappings that is made in any case.
const (
	leastMappings  = 1 << 16
	mappingsGrowth = 4
)

// SIIT is the programs and tables of one stateless translator. Nothing of it outlives the
// process. Its methods may be called from any goroutine, unless they say otherwise.
type SIIT struct {
	programs siitPrograms
	tables   map[string]*ebpf.Map // by the name in the object

	settings *siitSiitSettings // mapped, as what follows
	shared   []byte
	ids      ipid.IDs // in shared
	controls
	mapped   [][]byte
	mappings siitMappings // under mu of controls
}

// Sections that are maps.
const (
	siitSettingsMap = ".data.settings"
	siitSharedMap   = ".bss"

	siitConstantsMap = ".rodata"
)

// LoadSIIT loads the programs and makes their tables. Nothing is attached, and programs
// that are run pass all packets, until [SIIT.Set] and [SIIT.Beat].
func LoadSIIT(cfg SIITConfig) (*SIIT, error) {
	spec, err := loadSiit()
	if err != nil {
		return nil, fmt.Errorf("the fast path in this program is damaged: %w", err)
	}
	room := min(max(cfg.Mappings*mappingsGrowth, leastMappings), MaxMappings)
	for _, name := range []string{siitMappings4, siitMappings6} {
		spec.Maps[name].MaxEntries = uint32(room)
	}
	s := &SIIT{}
	if err := s.load(spec); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot load the fast path: %w", err), s.Close())
	}
	s.mappings.four, s.mappings.six, s.mappings.room = s.tables[siitMappings4], s.tables[siitMappings6], room
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// load loads everything.
func (s *SIIT) load(spec *ebpf.CollectionSpec) error {
	all, err := ebpf.NewCollection(spec)
	if err != nil {
		return err
	}
	defer all.Close()
	s.tables = make(map[string]*ebpf.Map)
	for name := range all.Maps {
		s.tables[name] = all.DetachMap(name)
	}
	return all.Assign(&s.programs)
}

// open maps settings and shared tables into memory, and draws the programs' secret, so
// that nobody outside can choose what meets in their tables.
func (s *SIIT) open() error {
	settings, err := s.mmap(siitSettingsMap)
	if err != nil {
		return err
	}
	if s.shared, err = s.mmap(siitSharedMap); err != nil {
		return err
	}
	if s.ids, err = ipid.Over(s.shared[routes4Size:], rand.Reader); err != nil {
		return err
	}
	c := (*siitSiitSettings)(unsafe.Pointer(unsafe.SliceData(settings)))
	s.settings = c
	s.controls.overlay(&c.Generation, &c.AliveUntil, &c.TraceEvery, &c.TraceLimit,
		(*[deviceSlots]teredoDevice)(unsafe.Pointer(&c.Devices)))
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return fmt.Errorf("no random seed for the fast path: %w", err)
	}
	c.HopSeed = binary.NativeEndian.Uint64(seed[:])
	c.Generation, c.Closed = 1, 1
	return nil
}

// mmap maps an array into memory, until Close.
func (s *SIIT) mmap(name string) ([]byte, error) {
	m := s.tables[name]
	b, err := unix.Mmap(m.FD(), 0, int(m.MaxEntries())*int(m.ValueSize()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("cannot map the table %s into memory: %w", name, err)
	}
	s.mapped = append(s.mapped, b)
	return b, nil
}

// LoadBeside loads another object that was built of the same headers, over these tables,
// into a structure that names its programs and maps. It is how the cost of the programs
// is measured.
func (s *SIIT) LoadBeside(spec *ebpf.CollectionSpec, into any) error {
	tables := maps.Clone(s.tables)
	for name, m := range s.tables {
		if spec.Maps[name] == nil || name == siitConstantsMap { // which are each object's own
			delete(tables, name)
			continue
		}
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	return spec.LoadAndAssign(into, &ebpf.CollectionOptions{MapReplacements: tables})
}

// Programs returns what is to be attached.
func (s *SIIT) Programs() Programs {
	return Programs{XDP: s.programs.IsthmusSiitXdp, Ingress: s.programs.IsthmusSiitIngress}
}

// Adopted tells whether a process before this one has left the tables: it never has.
func (s *SIIT) Adopted() bool { return false }

// Unpin has nothing to do: nothing is kept for a successor.
func (s *SIIT) Unpin() error { return nil }

// IDs makes identifications as the programs do, of the same memory. It is gone after Close.
func (s *SIIT) IDs() ipid.IDs { return s.ids }

// Routes4 is as [Teredo.Routes4].
func (s *SIIT) Routes4() []byte { return s.shared[:routes4Size:routes4Size] }

// Neighbours lists next hops that were asked for lately.
func (s *SIIT) Neighbours() ([]NextHop, error) { return listNeighbours(s.tables["neighbours"]) }

// Pause has the programs pass all packets, until [SIIT.Set] succeeds: for the time that
// they and the engine have other mappings. When it returns, no packet is still handled by
// those of before.
func (s *SIIT) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause()
}

// pause is Pause with the lock held.
func (s *SIIT) pause() {
	if atomic.SwapUint32(&s.settings.Closed, 1) == 0 {
		awaitPrograms()
	}
}

// resume ends pause. A program that began before and has read something that was changed
// meanwhile still finds the tables closed.
func (s *SIIT) resume() {
	awaitPrograms()
	atomic.StoreUint32(&s.settings.Closed, 0)
}

// Close gives everything back that is not attached.
func (s *SIIT) Close() error {
	var errs []error
	for _, b := range s.mapped {
		errs = append(errs, unix.Munmap(b))
	}
	s.mapped, s.shared, s.settings = nil, nil, nil
	s.controls.overlay(nil, nil, nil, nil, nil)
	errs = append(errs, s.programs.Close())
	for _, m := range s.tables {
		errs = append(errs, m.Close())
	}
	s.tables = nil
	return errors.Join(errs...)
}
