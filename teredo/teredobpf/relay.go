// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredobpf

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/fastpath/probe"
)

// RelayConfig says what a relay's programs and tables are made for.
type RelayConfig struct {
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
	Pins *pinned.Folder
}

// Relay is the programs and tables of one relay. Its methods may be called from any
// goroutine, unless they say otherwise.
type Relay struct {
	*fastpath.Object
	settings *teredoRelaySettings // mapped
	current  atomic.Pointer[Settings]
}

// Slabs of the object.
const (
	peersSlab   = "peers"
	foreignSlab = "foreign"
)

// layoutVersion is that of bpf/layout.h; a test compares.
const layoutVersion = 1

// LoadRelay loads the programs and makes their tables, or takes over those that a
// predecessor of the same configuration has pinned, as [fastpath.Load] does.
func LoadRelay(cfg RelayConfig) (*Relay, error) {
	if cfg.Buckets < 1 || cfg.Buckets&(cfg.Buckets-1) != 0 || cfg.Buckets > 1<<25 {
		return nil, fmt.Errorf("a peer table of %d buckets cannot be: it needs a power of two, at most 2^25", cfg.Buckets)
	}
	cores, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("cannot tell the number of cores: %w", err)
	}
	t := &Relay{}
	t.Object, err = fastpath.Load(fastpath.Build{
		Spec: loadTeredo, Reasons: &teredoReasons, Controls: teredoControls, Begin: t.begin,
		Constants: map[string]any{"fixed": teredoFeatures{
			BucketMask: uint32(cfg.Buckets - 1),
			CoreBits:   uint8(bits.Len(uint(cores - 1))),
			FibSource:  fastpath.Byte(probe.FibSource()),
			DecapFlag:  fastpath.Byte(probe.DecapFlag()),
		}},
		Slabs: []fastpath.Slab{
			{Name: peersSlab, RecordSize: int(unsafe.Sizeof(teredoBucket{})), Records: cfg.Buckets},
			{Name: foreignSlab, RecordSize: int(unsafe.Sizeof(teredoMapping{})), Records: max(cfg.Foreign, 1)},
		},
		Pins:  cfg.Pins,
		Shape: fmt.Sprintf("layout %d, %d buckets, %d foreign, %s", layoutVersion, cfg.Buckets, cfg.Foreign, cfg.Shape),
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// teredoControls are the parts of the settings that are every object's.
func teredoControls(settings []byte) fastpath.Controls {
	s := fastpath.Over[teredoRelaySettings](settings)
	return fastpath.Controls{
		Generation: &s.Generation, AliveUntil: &s.AliveUntil, TraceEvery: &s.TraceEvery, TraceLimit: &s.TraceLimit,
		Devices: fastpath.DeviceSlots(&s.Devices), Secrets: []*uint64{&s.HopSeed, &s.FilterSeed[0], &s.FilterSeed[1]},
	}
}

// begin finds the settings in memory.
func (t *Relay) begin(o *fastpath.Object) error {
	t.settings = fastpath.Over[teredoRelaySettings](o.Settings())
	t.current.Store(&Settings{Seed: t.settings.PeerSeed})
	return nil
}

// Peers is the memory of the peer table, which the engine writes. It is gone after
// Close.
func (t *Relay) Peers() []byte { return t.Memory(peersSlab) }

// Programs returns what is to be attached.
func (t *Relay) Programs() fastpath.Programs {
	return fastpath.Programs{
		XDP: t.Program("isthmus_xdp"), Ingress: t.Program("isthmus_ingress"),
		Egress: t.Program("isthmus_egress"), HostIngress: t.Program("isthmus_host_ingress"),
	}
}
