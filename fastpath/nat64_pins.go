// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// nat64Version is NAT64_SETTINGS_VERSION of bpf/nat64_settings.h; a test compares.
const nat64Version = 2

// nat64Kept are the maps that outlive the process, by the name in the object and by that
// of the pin: the state, and what the daemon has told. Next hops are not among them:
// whatever comes next asks the kernel.
func nat64Kept(z state.Sizes) map[string]string {
	kept := map[string]string{
		"counters": "counters", "neighbours": "neighbours", "cursors": "cursors",
		nat64SettingsMap: "settings", nat64SharedMap: "shared",
	}
	for _, slab := range z.Slabs() {
		kept[slabMap(slab.Name)] = slab.Name
	}
	return kept
}

// shape puts into words what tables are made for.
func (n *NAT64) shape() string {
	z := n.config.Sizes
	return fmt.Sprintf("nat64 %d, state %d, %d sessions, %d clients of %d bits, %d addresses in blocks of %d, %s",
		nat64Version, state.LayoutVersion, z.Sessions, z.Subscribers, z.SubscriberLength, z.Addresses, z.BlockWords*state.BlockPorts,
		strings.TrimSpace(n.config.Shape))
}

// openPinned opens the tables that a predecessor of the same configuration has left, all
// of them; nil if there is anything else.
func (n *NAT64) openPinned(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	if n.pins == nil || n.pins.Note(shapeNote) != n.shape() {
		return nil
	}
	old := make(map[string]*ebpf.Map)
	for name, pin := range nat64Kept(n.config.Sizes) {
		m, err := ebpf.LoadPinnedMap(n.pins.Path(pin), nil)
		if err != nil {
			closeMaps(old)
			return nil
		}
		old[name] = m
		if !fits(m, spec.Maps[name]) {
			closeMaps(old)
			return nil
		}
	}
	return old
}

// PeekNAT64 copies the state of tables of these sizes that an instance has pinned in this
// network namespace, be it alive or not, with a note beside them; nil if there is none.
func PeekNAT64(instance string, z state.Sizes, note string) (state.Memory, string) {
	for _, pins := range peekPins(instance) {
		n := &NAT64{config: NAT64Config{Sizes: z}, pins: pins}
		if pins.Note(shapeNote) != n.shape() {
			continue
		}
		if m, err := n.peek(); err == nil {
			return m, pins.Note(note)
		}
	}
	return nil, ""
}

// peekPins are the folders in which an instance may have left something in this network
// namespace, to be read alone.
func peekPins(instance string) (list []*Pins) {
	name, err := folderName(instance)
	if err != nil {
		return nil
	}
	for _, root := range []string{systemRoot, ownRoot} {
		list = append(list, &Pins{dir: filepath.Join(root, pinsFolder, name)})
	}
	return list
}

// peek copies the pinned state.
func (n *NAT64) peek() (state.Memory, error) {
	copied := state.HeapMemory(n.config.Sizes)
	for _, slab := range n.config.Sizes.Slabs() {
		m, err := ebpf.LoadPinnedMap(n.pins.Path(slab.Name), nil)
		if err != nil {
			return nil, err
		}
		size := int(m.MaxEntries()) * int(m.ValueSize())
		b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ, unix.MAP_SHARED)
		m.Close()
		if err != nil {
			return nil, err
		}
		copy(copied[slab.Name], b)
		if err := unix.Munmap(b); err != nil {
			return nil, err
		}
	}
	return copied, nil
}

// fits tells whether a map is what the object wants.
func fits(m *ebpf.Map, s *ebpf.MapSpec) bool {
	return m.Type() == s.Type && m.KeySize() == s.KeySize && m.ValueSize() == s.ValueSize && m.MaxEntries() == s.MaxEntries
}

// pin keeps the tables for a successor. The note comes last: without it nobody takes
// anything over.
func (n *NAT64) pin() error {
	if n.pins == nil || n.adopted {
		return nil
	}
	if err := n.Unpin(); err != nil {
		return err
	}
	for name, pin := range nat64Kept(n.config.Sizes) {
		if err := n.tables[name].Pin(n.pins.Path(pin)); err != nil {
			return fmt.Errorf("cannot keep the table %s for a restart: %w", pin, err)
		}
	}
	return n.pins.SetNote(shapeNote, n.shape())
}

// Unpin takes the tables from the file system: they end with the programs that use them.
func (n *NAT64) Unpin() error {
	if n.pins == nil {
		return nil
	}
	errs := []error{n.pins.SetNote(shapeNote, "")}
	for _, pin := range nat64Kept(n.config.Sizes) {
		if err := os.Remove(n.pins.Path(pin)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("cannot remove a table that was kept for a restart: %w", err))
		}
	}
	return errors.Join(errs...)
}
