// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnbpf

import (
	"fmt"
	"math/bits"
	"net/netip"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/probe"
	"github.com/isthmus-net/isthmus/gprs/ggsn"
)

// Config says what the programs and tables of a GGSN are made for.
type Config struct {
	// Name is the instance's.
	Name string
	// Contexts is how many there may be: so many have room.
	Contexts int
}

// Path is the programs and tables of one GGSN. Nothing of it outlives the process. Its
// methods may be called from any goroutine, unless they say otherwise.
type Path struct {
	*fastpath.Object
	settings *ggsnGgsnSettings // mapped
	change   sync.Mutex        // held to change settings and what follows
	inside   map[netip.Prefix]bool
}

// Slabs of the object.
const (
	contextsSlab   = "contexts"
	aggregatesSlab = "aggregates"
	byTEIDSlab     = "by_teid"
	byAddressSlab  = "by_address"
	byPrefixSlab   = "by_prefix"
	insides4Slab   = "insides4"
	insides6Slab   = "insides6"
)

// Load loads the programs and makes their tables, as [fastpath.Load] does.
func Load(cfg Config) (*Path, error) {
	if cfg.Contexts < 1 {
		return nil, fmt.Errorf("a fast path for %d contexts cannot be: it needs 1 or more", cfg.Contexts)
	}
	cores, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("cannot tell the number of cores: %w", err)
	}
	p := &Path{inside: map[netip.Prefix]bool{}}
	number := int(unsafe.Sizeof(uint32(0)))
	p.Object, err = fastpath.Load(fastpath.Build{
		Spec: loadGgsn, Reasons: &reasons, Controls: controls, Begin: p.begin,
		Constants: map[string]any{"fixed": ggsnGgsnFeatures{
			CoreBits: uint8(bits.Len(uint(cores - 1))), DecapFlag: fastpath.Byte(probe.DecapFlag()),
		}},
		Slabs: []fastpath.Slab{
			{Name: contextsSlab, RecordSize: int(unsafe.Sizeof(ggsnContext{})), Records: cfg.Contexts + 1},
			{Name: aggregatesSlab, RecordSize: int(unsafe.Sizeof(ggsnAggregate{})), Records: cfg.Contexts + 1},
			{Name: byTEIDSlab, RecordSize: number, Records: cfg.Contexts},
			{Name: byAddressSlab, RecordSize: number, Records: cfg.Contexts},
			{Name: byPrefixSlab, RecordSize: number, Records: cfg.Contexts},
			{Name: insides4Slab, RecordSize: number, Records: MaxInside},
			{Name: insides6Slab, RecordSize: number, Records: MaxInside},
		},
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// controls are the parts of the settings that are every object's.
func controls(settings []byte) fastpath.Controls {
	s := fastpath.Over[ggsnGgsnSettings](settings)
	return fastpath.Controls{
		Generation: &s.Generation, AliveUntil: &s.AliveUntil, TraceEvery: &s.TraceEvery, TraceLimit: &s.TraceLimit,
		Devices: fastpath.DeviceSlots(&s.Devices), Secrets: []*uint64{&s.HopSeed},
	}
}

// begin finds the settings in memory.
func (p *Path) begin(o *fastpath.Object) error {
	p.settings = fastpath.Over[ggsnGgsnSettings](o.Settings())
	return nil
}

// Programs returns what is to be attached.
func (p *Path) Programs() fastpath.Programs {
	return fastpath.Programs{XDP: p.Program("isthmus_ggsn_xdp"), Ingress: p.Program("isthmus_ggsn_ingress")}
}

// Shared is the memory in which an engine of that epoch describes its contexts. It is gone after
// Close.
func (p *Path) Shared(epoch time.Time) *ggsn.Shared {
	p.settings.Epoch = uint64(fastpath.Monotonic() - time.Since(epoch))
	return &ggsn.Shared{
		Contexts:   records[ggsn.SharedContext](p, contextsSlab),
		Aggregates: records[ggsn.SharedAggregate](p, aggregatesSlab),
		Index:      &index{p.Map(byTEIDSlab), p.Map(byAddressSlab), p.Map(byPrefixSlab)},
	}
}

// records are the memory of a table of them.
func records[R any](p *Path, slab string) []R {
	memory := p.Memory(slab)
	return unsafe.Slice(fastpath.Over[R](memory), len(memory)/int(unsafe.Sizeof(*new(R))))
}
