// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
)

// layoutVersion is that of bpf/layout.h; a test compares.
const layoutVersion = 1

// shapeNote is the note that says what pinned tables were made for.
const shapeNote = "shape"

// kept are the maps that outlive the process, by the name in the object and by that
// of the pin. Next hops are not among them: whatever comes next asks the kernel.
var kept = []struct{ name, pin string }{
	{"peers", "peers"},
	{"foreign", "foreign"},
	{"counters", "counters"},
	{"neighbours", "neighbours"},
	{".data.settings", "settings"},
	{".bss", "shared"},
}

// shapeOf puts into words what tables are made for.
func shapeOf(cfg TeredoConfig) string {
	return fmt.Sprintf("layout %d, %d buckets, %d foreign, %s", layoutVersion, cfg.Buckets, cfg.Foreign, cfg.Shape)
}

// openPinned opens the tables that a predecessor of the same configuration has
// left, all of them; nil if there is anything else.
func (t *Teredo) openPinned(cfg TeredoConfig, spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	if t.pins == nil || t.pins.Note(shapeNote) != shapeOf(cfg) {
		return nil
	}
	old := make(map[string]*ebpf.Map)
	for _, k := range kept {
		m, err := ebpf.LoadPinnedMap(t.pins.Path(k.pin), nil)
		if err != nil {
			closeMaps(old)
			return nil
		}
		old[k.name] = m
		if s := spec.Maps[k.name]; m.Type() != s.Type || m.KeySize() != s.KeySize ||
			m.ValueSize() != s.ValueSize || m.MaxEntries() != s.MaxEntries {
			closeMaps(old)
			return nil
		}
	}
	return old
}

func closeMaps(maps map[string]*ebpf.Map) {
	for _, m := range maps {
		m.Close()
	}
}

// pin keeps the tables for a successor. The note comes last: without it nobody
// takes anything over.
func (t *Teredo) pin(cfg TeredoConfig) error {
	if t.pins == nil || t.adopted {
		return nil
	}
	if err := t.Unpin(); err != nil {
		return err
	}
	for _, k := range kept {
		if err := t.table(k.name).Pin(t.pins.Path(k.pin)); err != nil {
			return fmt.Errorf("cannot keep the table %s for a restart: %w", k.pin, err)
		}
	}
	return t.pins.SetNote(shapeNote, shapeOf(cfg))
}

// table returns the map of a name in the object.
func (t *Teredo) table(name string) *ebpf.Map {
	return map[string]*ebpf.Map{
		"peers": t.maps.Peers, "foreign": t.maps.Foreign, "counters": t.maps.Counters,
		"neighbours": t.maps.Neighbours, ".data.settings": t.data.Settings, ".bss": t.data.Shared,
	}[name]
}

// Unpin takes the tables from the file system: they end with the programs that use
// them.
func (t *Teredo) Unpin() error {
	if t.pins == nil {
		return nil
	}
	errs := []error{t.pins.SetNote(shapeNote, "")}
	for _, k := range kept {
		if err := os.Remove(t.pins.Path(k.pin)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("cannot remove a table that was kept for a restart: %w", err))
		}
	}
	return errors.Join(errs...)
}
