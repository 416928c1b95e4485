// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
)

// shapeNote is the note that says what pinned tables were made for.
const shapeNote = "shape"

// kept are the maps that outlive the process, by their names in the object. Next hops are
// not among them: whatever comes next asks the kernel.
func (b *Build) kept() []string {
	kept := append([]string{settingsMap, sharedMap, countersMap, neighboursMap}, b.Kept...)
	for _, s := range b.Slabs {
		kept = append(kept, s.Name)
	}
	return kept
}

// pinOf is the name that a map is pinned under.
func pinOf(name string) string {
	if name == sharedMap {
		return "shared"
	}
	return strings.TrimPrefix(name, ".data.")
}

// openPinned opens the tables that a predecessor of the same shape has left, all of them;
// nil if there is anything else. What was counted does not decide: a program with a further
// reason counts from the beginning, and goes on with the rest.
func (o *Object) openPinned(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	if o.build.Pins == nil || o.build.Pins.Note(shapeNote) != o.build.Shape {
		return nil
	}
	old := make(map[string]*ebpf.Map)
	for _, name := range o.build.kept() {
		m, err := ebpf.LoadPinnedMap(o.build.Pins.Path(pinOf(name)), nil)
		if err == nil && fits(m, spec.Maps[name]) {
			old[name] = m
			continue
		}
		m.Close()
		if name != countersMap {
			closeMaps(old)
			return nil
		}
	}
	return old
}

// fits reports whether a map is what the object wants.
func fits(m *ebpf.Map, s *ebpf.MapSpec) bool {
	return m.Type() == s.Type && m.KeySize() == s.KeySize && m.ValueSize() == s.ValueSize && m.MaxEntries() == s.MaxEntries
}

func closeMaps(maps map[string]*ebpf.Map) {
	for _, m := range maps {
		m.Close()
	}
}

// pin keeps the tables for a successor, but for the old ones, which are kept already. The
// note comes last: without it no one takes anything over.
func (o *Object) pin(old map[string]*ebpf.Map) error {
	pins := o.build.Pins
	if pins == nil {
		return nil
	}
	if !o.adopted {
		if err := o.Unpin(); err != nil {
			return err
		}
	}
	for _, name := range o.build.kept() {
		if old[name] != nil {
			continue
		}
		err := o.unpin(name)
		if err == nil {
			err = o.tables[name].Pin(pins.Path(pinOf(name)))
		}
		if err != nil {
			return fmt.Errorf("cannot keep the table %s for a restart: %w", pinOf(name), err)
		}
	}
	return pins.SetNote(shapeNote, o.build.Shape)
}

// unpin takes one table from the file system.
func (o *Object) unpin(name string) error {
	if err := os.Remove(o.build.Pins.Path(pinOf(name))); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Unpin takes the tables from the file system: they end with the programs that use them.
func (o *Object) Unpin() error {
	pins := o.build.Pins
	if pins == nil {
		return nil
	}
	errs := []error{pins.SetNote(shapeNote, "")}
	for _, name := range o.build.kept() {
		if err := o.unpin(name); err != nil {
			errs = append(errs, fmt.Errorf("cannot remove a table that was kept for a restart: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Peek copies tables of this shape that an instance has pinned in this network namespace,
// be it alive or not, into memory of their size, by their names in the object. It returns a
// note beside them; ok is false if there are none.
func Peek(instance, shape string, into map[string][]byte, note string) (text string, ok bool) {
	for _, pins := range pinned.Peek(instance) {
		if pins.Note(shapeNote) == shape && copyPinned(pins, into) == nil {
			return pins.Note(note), true
		}
	}
	return "", false
}

func copyPinned(pins *pinned.Folder, into map[string][]byte) error {
	for name, to := range into {
		m, err := ebpf.LoadPinnedMap(pins.Path(pinOf(name)), nil)
		if err != nil {
			return err
		}
		size := int(m.MaxEntries()) * int(m.ValueSize())
		b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ, unix.MAP_SHARED)
		m.Close()
		if err != nil {
			return err
		}
		copy(to, b)
		if err := unix.Munmap(b); err != nil {
			return err
		}
	}
	return nil
}
