// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitbpf

import (
	"crypto/rand"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/translate/ipid"
)

// Config says what the programs and tables of a stateless translator are made for.
type Config struct {
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

// Path is the programs and tables of one stateless translator. Nothing of it outlives the
// process. Its methods may be called from any goroutine, unless they say otherwise.
type Path struct {
	*fastpath.Object
	settings *siitSiitSettings // mapped, as what follows
	ids      ipid.IDs

	mu       sync.Mutex   // held to change settings
	mappings siitMappings // under mu
}

// Load loads the programs and makes their tables, as [fastpath.Load] does.
func Load(cfg Config) (*Path, error) {
	room := min(max(cfg.Mappings*mappingsGrowth, leastMappings), MaxMappings)
	s := &Path{}
	var err error
	s.Object, err = fastpath.Load(fastpath.Build{
		Spec: loadSiit, Reasons: &siitReasons, Controls: siitControls, Begin: s.begin,
		Slabs: []fastpath.Slab{
			{Name: siitMappings4, RecordSize: int(unsafe.Sizeof(siitMapped6{})), Records: room},
			{Name: siitMappings6, RecordSize: int(unsafe.Sizeof(siitMapped4{})), Records: room},
		},
	})
	if err != nil {
		return nil, err
	}
	s.mappings.four, s.mappings.six, s.mappings.room = s.Map(siitMappings4), s.Map(siitMappings6), room
	return s, nil
}

// siitControls are the parts of the settings that are every object's.
func siitControls(settings []byte) fastpath.Controls {
	s := fastpath.Over[siitSiitSettings](settings)
	return fastpath.Controls{
		Generation: &s.Generation, AliveUntil: &s.AliveUntil, TraceEvery: &s.TraceEvery, TraceLimit: &s.TraceLimit,
		Devices: fastpath.DeviceSlots(&s.Devices), Secrets: []*uint64{&s.HopSeed},
	}
}

// begin finds the tables in memory.
func (s *Path) begin(o *fastpath.Object) (err error) {
	s.settings = fastpath.Over[siitSiitSettings](o.Settings())
	s.settings.Closed = 1
	s.ids, err = ipid.Over(o.Shared(), rand.Reader)
	return err
}

// Programs returns what is to be attached.
func (s *Path) Programs() fastpath.Programs {
	return fastpath.Programs{XDP: s.Program("isthmus_siit_xdp"), Ingress: s.Program("isthmus_siit_ingress")}
}

// IDs makes identifications as the programs do, of the same memory. It is gone after Close.
func (s *Path) IDs() ipid.IDs { return s.ids }

// Pause has the programs pass all packets, until [Path.Set] succeeds: for the time that
// they and the engine have other mappings. When it returns, no packet is still handled by
// those of before.
func (s *Path) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause()
}

// pause is Pause with the lock held.
func (s *Path) pause() {
	if atomic.SwapUint32(&s.settings.Closed, 1) == 0 {
		fastpath.AwaitPrograms()
	}
}

// resume ends pause. A program that began before and has read something that was changed
// meanwhile still finds the tables closed.
func (s *Path) resume() {
	fastpath.AwaitPrograms()
	atomic.StoreUint32(&s.settings.Closed, 0)
}
