// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// TeredoConfig says what a relay's programs and tables are made for.
type TeredoConfig struct {
	// Name is the instance's.
	Name string
	// Buckets is the number of 64-byte buckets of the peer table, a power of two.
	Buckets int
	// Foreign bounds the peers whose mapping is not in their address.
	Foreign int
	// Shape is whatever else of the configuration the tables depend on, such as
	// the prefixes. Tables of another shape are not taken over.
	Shape string
	// Pins keep the tables for a successor; nil: they end with the process.
	Pins *Pins
}

// Teredo is the programs and tables of one relay or host. Its methods may be called
// from any goroutine, unless they say otherwise.
type Teredo struct {
	config   TeredoConfig
	maps     teredoMaps
	data     dataMaps
	programs teredoPrograms
	pins     *Pins
	adopted  bool

	peers    []byte // mapped memory
	shared   []byte
	settings *teredoRelaySettings

	controls
	current Settings
	mapped  [][]byte
}

// dataMaps are the sections that are maps.
type dataMaps struct {
	Settings *ebpf.Map `ebpf:".data.settings"`
	Shared   *ebpf.Map `ebpf:".bss"`
}

// LoadTeredo loads the programs and makes their tables, or takes over those that a
// predecessor of the same configuration has pinned. Nothing is attached, and
// programs that are run pass all packets, until [Teredo.Set] and [Teredo.Beat].
func LoadTeredo(cfg TeredoConfig) (*Teredo, error) {
	if cfg.Buckets < 1 || cfg.Buckets&(cfg.Buckets-1) != 0 || cfg.Buckets > 1<<25 {
		return nil, fmt.Errorf("a peer table of %d buckets cannot be: it needs a power of two, at most 2^25", cfg.Buckets)
	}
	spec, err := teredoSpec(cfg)
	if err != nil {
		return nil, err
	}
	t := &Teredo{config: cfg, pins: cfg.Pins}
	old := t.openPinned(cfg, spec)
	defer closeMaps(old)
	if err := t.load(spec, old); err != nil {
		t.Close()
		return nil, fmt.Errorf("cannot load the fast path: %w", err)
	}
	t.adopted = old != nil
	if err := t.open(); err != nil {
		t.Close()
		return nil, err
	}
	if err := t.pin(cfg); err != nil {
		return nil, errors.Join(err, t.Unpin(), t.Close())
	}
	t.Trace(0, 0) // a predecessor may have been killed in the middle of one
	return t, nil
}

// teredoSpec is the object with what is fixed when it is loaded.
func teredoSpec(cfg TeredoConfig) (*ebpf.CollectionSpec, error) {
	spec, err := loadTeredo()
	if err != nil {
		return nil, fmt.Errorf("the fast path in this program is damaged: %w", err)
	}
	spec.Maps["peers"].MaxEntries = uint32(cfg.Buckets)
	spec.Maps["foreign"].MaxEntries = uint32(max(cfg.Foreign, 1))
	cores, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("cannot tell the number of cores: %w", err)
	}
	fixed := teredoFeatures{
		BucketMask: uint32(cfg.Buckets - 1),
		CoreBits:   uint8(bits.Len(uint(cores - 1))),
		FibSource:  toByte(tryFib(fibSource) == nil),
		DecapFlag:  toByte(tryDecapFlag() == nil),
	}
	if err := spec.Variables["fixed"].Set(fixed); err != nil {
		return nil, fmt.Errorf("cannot prepare the fast path: %w", err)
	}
	return spec, nil
}

func toByte(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// load loads everything, with the old maps in their places.
func (t *Teredo) load(spec *ebpf.CollectionSpec, old map[string]*ebpf.Map) error {
	var all struct {
		teredoPrograms
		teredoMaps
		dataMaps
	}
	err := spec.LoadAndAssign(&all, &ebpf.CollectionOptions{MapReplacements: old})
	if err != nil {
		return err
	}
	t.programs, t.maps, t.data = all.teredoPrograms, all.teredoMaps, all.dataMaps
	return nil
}

// open maps the tables into memory and gives them their first contents.
func (t *Teredo) open() error {
	peers := int(t.maps.Peers.MaxEntries()) * int(t.maps.Peers.ValueSize())
	settings, err := t.mmap(t.data.Settings, int(t.data.Settings.ValueSize()))
	if err != nil {
		return err
	}
	if t.shared, err = t.mmap(t.data.Shared, int(t.data.Shared.ValueSize())); err != nil {
		return err
	}
	if t.peers, err = t.mmap(t.maps.Peers, peers); err != nil {
		return err
	}
	t.settings = overlaySettings(settings)
	t.controls.overlay(&t.settings.Generation, &t.settings.AliveUntil, &t.settings.TraceEvery, &t.settings.TraceLimit, &t.settings.Devices)
	if !t.adopted {
		return t.seed()
	}
	t.current.Seed = t.settings.PeerSeed
	return nil
}

// mmap maps an array into memory, until Close.
func (t *Teredo) mmap(m *ebpf.Map, size int) ([]byte, error) {
	b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("cannot map the table %s into memory: %w", m, err)
	}
	t.mapped = append(t.mapped, b)
	return b, nil
}

// seed draws the secrets of new tables, so that nobody outside can choose what
// meets in them.
func (t *Teredo) seed() error {
	var b [3 * 8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return fmt.Errorf("no random seed for the fast path: %w", err)
	}
	t.settings.HopSeed = binary.NativeEndian.Uint64(b[:])
	t.settings.FilterSeed[0] = binary.NativeEndian.Uint64(b[8:])
	t.settings.FilterSeed[1] = binary.NativeEndian.Uint64(b[16:])
	t.settings.Generation = 1
	return nil
}

// LoadBeside loads another object that was built of the same headers, over these
// tables, into a structure that names its programs and maps. It is how the cost of
// the programs is measured.
func (t *Teredo) LoadBeside(spec *ebpf.CollectionSpec, into any) error {
	own, err := teredoSpec(t.config)
	if err != nil {
		return err
	}
	var fixed teredoFeatures
	if err := own.Variables["fixed"].Get(&fixed); err != nil {
		return err
	}
	if err := spec.Variables["fixed"].Set(fixed); err != nil {
		return err
	}
	spec.Maps["peers"].MaxEntries = own.Maps["peers"].MaxEntries
	spec.Maps["foreign"].MaxEntries = own.Maps["foreign"].MaxEntries
	tables := make(map[string]*ebpf.Map)
	for _, k := range kept {
		tables[k.name] = t.table(k.name)
	}
	return spec.LoadAndAssign(into, &ebpf.CollectionOptions{MapReplacements: tables})
}

// Adopted tells whether the tables are those of a predecessor: peers and settings
// are in them.
func (t *Teredo) Adopted() bool { return t.adopted }

// Silence returns for how long the programs have passed everything, for want of a daemon;
// 0: they have not, or a daemon was killed while it changed settings.
func (t *Teredo) Silence() time.Duration {
	until := atomic.LoadUint64(t.aliveUntil)
	if until == 0 {
		return 0
	}
	return max(Monotonic()-time.Duration(until), 0)
}

// Peers is the memory of the peer table, which the engine writes. It is gone after
// Close.
func (t *Teredo) Peers() []byte { return t.peers }

// Programs returns what is to be attached.
func (t *Teredo) Programs() Programs {
	return Programs{
		XDP: t.programs.IsthmusXdp, Ingress: t.programs.IsthmusIngress,
		Egress: t.programs.IsthmusEgress, HostIngress: t.programs.IsthmusHostIngress,
	}
}

// Close gives everything back that is not pinned or attached.
func (t *Teredo) Close() error {
	var errs []error
	for _, b := range t.mapped {
		errs = append(errs, unix.Munmap(b))
	}
	t.mapped, t.peers, t.shared, t.settings = nil, nil, nil, nil
	t.controls.overlay(nil, nil, nil, nil, nil)
	errs = append(errs, t.programs.Close(), t.maps.Close(), t.data.Settings.Close(), t.data.Shared.Close())
	return errors.Join(errs...)
}
