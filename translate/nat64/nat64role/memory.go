// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// memory is where the state of a NAT64 lies, and how it is given back.
type memory struct {
	slabs state.Memory
	file  *kept.File // nil: of this process alone, or of programs
	free  func() error
	// note and setNote keep a text beside the state; nil without a successor.
	note    func() string
	setNote func(string) error
	// used reports that a process before this one had the memory. What it left of another
	// version or with other sizes is replaced, which other tells.
	used, other bool
}

// fileMemory maps a file that outlives the process, or only one that exists.
func fileMemory(path string, z state.Sizes, existing bool) (*memory, error) {
	namespace, _ := pinned.NamespaceCookie() // 0 where the kernel does not say
	file, err := kept.Open(kept.Config{Path: path, Size: memoryBytes(z), Namespace: namespace, Limit: "max_sessions", Existing: existing})
	if err != nil {
		return nil, err
	}
	return &memory{
		slabs: divide(file.Memory, z), file: file, used: file.Used, other: file.Other,
		free: file.Close, note: file.Note, setNote: file.SetNote,
	}, nil
}

// copyTo copies the state into other memory of the same sizes. The note goes first: sessions
// without it would answer from wrong addresses.
func (m *memory) copyTo(other *memory) error {
	if m.note != nil && other.setNote != nil {
		if err := other.setNote(m.note()); err != nil {
			return err
		}
	}
	m.slabs.CopyTo(other.slabs)
	return nil
}

// ownMemory is memory of this process alone.
func ownMemory(z state.Sizes) (*memory, error) {
	whole, free, err := port.Memory(memoryBytes(z))
	if err != nil {
		return nil, fmt.Errorf("%w: lower max_sessions", err)
	}
	return &memory{slabs: divide(whole, z), free: func() error { free(); return nil }}, nil
}

// slabAlign keeps records from sharing cache lines with those of another slab.
const slabAlign = 4096

func memoryBytes(z state.Sizes) (n int) {
	for _, s := range z.Slabs() {
		n += (s.Bytes() + slabAlign - 1) &^ (slabAlign - 1)
	}
	return n
}

func divide(whole []byte, z state.Sizes) state.Memory {
	m := state.Memory{}
	for _, s := range z.Slabs() {
		m[s.Name] = whole[:s.Bytes():s.Bytes()]
		whole = whole[(s.Bytes()+slabAlign-1)&^(slabAlign-1):]
	}
	return m
}

// openTable lays the state over memory. What is of another shape, or not whole, is cleared;
// adopted reports that sessions of an earlier process go on.
func openTable(z state.Sizes, m *memory) (t *state.Table, adopted bool, err error) {
	var seed [state.Seeds]uint64
	if err := binary.Read(rand.Reader, binary.NativeEndian, &seed); err != nil {
		return nil, false, fmt.Errorf("no random seed for the state: %w", err)
	}
	if m.used && !m.slabs.Holds() {
		m.slabs.Clear() // of one who was killed while he filled it
	}
	t, adopted, err = state.Open(z, m.slabs, seed)
	if errors.Is(err, state.ErrOther) {
		m.other = true
		m.slabs.Clear()
		t, adopted, err = state.Open(z, m.slabs, seed)
	}
	return t, adopted, err
}
