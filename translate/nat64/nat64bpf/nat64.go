// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/translate/ipid"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// Config says what the programs and tables of a NAT64 are made for.
type Config struct {
	// Name is the instance's.
	Name string
	// Sizes are those of the state.
	Sizes state.Sizes
	// Shape is whatever else of the configuration the tables depend on. Tables of
	// another shape are not taken over.
	Shape string
	// Pins keep the tables for a successor; nil: they end with the process.
	Pins *pinned.Folder
}

// Path is the programs and tables of one NAT64. Its methods may be called from any
// goroutine, unless they say otherwise.
type Path struct {
	*fastpath.Object
	config   Config
	memory   state.Memory // mapped, as what follows
	ids      ipid.IDs
	settings *nat64Nat64Settings
	current  atomic.Pointer[Settings]
}

// Load loads the programs and makes their tables, or takes over those that a
// predecessor of the same configuration has pinned, as [fastpath.Load] does.
func Load(cfg Config) (*Path, error) {
	if err := cfg.Sizes.Check(); err != nil {
		return nil, err
	}
	n := &Path{config: cfg}
	var err error
	n.Object, err = fastpath.Load(fastpath.Build{
		Spec: loadNat64, Constants: map[string]any{"fixed": nat64Nat64Features{ClientMask: fastpath.IPv6Mask(cfg.Sizes.SubscriberLength)}},
		Slabs: slabs(cfg.Sizes), Reasons: &nat64Reasons, Controls: nat64Controls, Begin: n.begin,
		Pins: cfg.Pins, Kept: []string{"cursors"}, Shape: cfg.shape(),
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// slabMap returns the name, in the object, of the map that a slab of the state lies in.
func slabMap(slab string) string {
	if slab == state.SlabHead {
		return ".data.head"
	}
	return slab
}

// slabs are those of the state, as the object names them.
func slabs(z state.Sizes) (list []fastpath.Slab) {
	for _, s := range z.Slabs() {
		list = append(list, fastpath.Slab{Name: slabMap(s.Name), RecordSize: s.RecordSize, Records: s.Records})
	}
	return list
}

// nat64Version is NAT64_SETTINGS_VERSION of bpf/nat64_settings.h; a test compares.
const nat64Version = 3

// shape puts into words what tables are made for.
func (cfg *Config) shape() string {
	z := cfg.Sizes
	return fmt.Sprintf("nat64 %d, state %d, %d sessions, %d clients of %d bits, %d addresses in blocks of %d, %s",
		nat64Version, state.LayoutVersion, z.Sessions, z.Subscribers, z.SubscriberLength, z.Addresses, z.BlockWords*state.BlockPorts,
		strings.TrimSpace(cfg.Shape))
}

// nat64Controls are the parts of the settings that are every object's.
func nat64Controls(settings []byte) fastpath.Controls {
	s := fastpath.Over[nat64Nat64Settings](settings)
	return fastpath.Controls{
		Generation: &s.Generation, AliveUntil: &s.AliveUntil, TraceEvery: &s.TraceEvery, TraceLimit: &s.TraceLimit,
		Devices: fastpath.DeviceSlots(&s.Devices),
		Secrets: []*uint64{&s.HopSeed, &s.WaitingSeed[0], &s.WaitingSeed[1], &s.PortKey[0], &s.PortKey[1]},
	}
}

// begin finds the tables in memory, and gives new ones their first contents.
func (n *Path) begin(o *fastpath.Object) error {
	n.memory = make(state.Memory)
	for _, slab := range n.config.Sizes.Slabs() {
		n.memory[slab.Name] = o.Memory(slabMap(slab.Name))[:slab.Bytes()]
	}
	n.settings = fastpath.Over[nat64Nat64Settings](o.Settings())
	var err error
	if n.ids, err = ipid.Over(o.Shared()[fastpath.TallySlots:], rand.Reader); err != nil || o.Adopted() {
		return err
	}
	return n.placeCursors(o.Map("cursors"))
}

// placeCursors has each core look for free records in a part of the tables of its own.
func (n *Path) placeCursors(m *ebpf.Map) error {
	cores, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("cannot tell the number of cores: %w", err)
	}
	cursors := make([]nat64Nat64Cursor, cores)
	words := (n.config.Sizes.Sessions + 63) / 64
	for i := range cursors {
		at := uint32(words * i / cores)
		cursors[i] = nat64Nat64Cursor{Session: at, Session4: at, Binding: at}
	}
	if err := m.Put(uint32(0), cursors); err != nil {
		return fmt.Errorf("cannot prepare the fast path: %w", err)
	}
	return nil
}

// Peek copies the state of tables of these sizes that an instance has pinned in this
// network namespace, be it alive or not, with a note beside them; nil if there is none.
func Peek(instance string, z state.Sizes, note string) (state.Memory, string) {
	copied, into := state.HeapMemory(z), make(map[string][]byte)
	for name, slab := range copied {
		into[slabMap(name)] = slab
	}
	cfg := Config{Sizes: z}
	text, ok := fastpath.Peek(instance, cfg.shape(), into, note)
	if !ok {
		return nil, ""
	}
	return copied, text
}

// Memory is that of the state, for [state.Open]. It is gone after Close. Programs must
// not run on it while it is opened: see [fastpath.Object.Sleep].
func (n *Path) Memory() state.Memory { return n.memory }

// IDs makes identifications as the programs do, of the same memory. It is gone after Close.
func (n *Path) IDs() ipid.IDs { return n.ids }

// Programs returns what is to be attached.
func (n *Path) Programs() fastpath.Programs {
	return fastpath.Programs{XDP: n.Program("isthmus_nat64_xdp"), Ingress: n.Program("isthmus_nat64_ingress")}
}

// SteerPrograms returns what brings packets to the pool's addresses of this host to the
// engine, in every mode: it is attached by tc, behind [Path.Programs], as an instance of
// a name and pins of its own.
func (n *Path) SteerPrograms() fastpath.Programs {
	return fastpath.Programs{Ingress: n.Program("isthmus_nat64_steer")}
}

// Steer returns the program that steers.
func (n *Path) Steer() *ebpf.Program { return n.Program("isthmus_nat64_steer") }
