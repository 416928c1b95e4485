// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// stateFolder is where sessions are kept over a restart without a fast path. It is
// memory, which a reboot clears, as it does the clock of the stamps.
const stateFolder = "/run/isthmus"

// memory is where the state of a NAT64 lies, and how it is given back.
type memory struct {
	slabs state.Memory
	file  *os.File // nil: of this process alone, or of programs
	free  func() error
	// note and setNote keep a text beside the state; nil without a successor.
	note    func() string
	setNote func(string) error
	// used tells that a process before this one had the memory. What it left of another
	// version or with other sizes is replaced, which other tells.
	used, other bool
}

// noteSize is the room for the note in a file: for two, and a byte that says which of
// them is in force, so that one is replaced at once. Before that byte is the cookie of the
// network namespace.
const (
	noteSize      = 4096
	noteRoom      = noteSize/2 - 16
	noteNamespace = noteSize - 16
	noteInUse     = noteSize - 1
)

// fileMemory maps a file that outlives the process. It is locked, so that one process
// at a time uses it.
func fileMemory(path string, z state.Sizes) (*memory, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("sessions cannot be kept over a restart: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("sessions cannot be kept over a restart: %w", err)
	}
	m, err := mapFile(file, z)
	if err != nil {
		_ = file.Close()
	}
	return m, err
}

func mapFile(file *os.File, z state.Sizes) (*memory, error) {
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("the state in %s is in use by another process: stop that, or set another state_file", file.Name())
	}
	size, used, other := memoryBytes(z)+noteSize, true, false
	if info, err := file.Stat(); err != nil || info.Size() != int64(size) {
		used, other = false, err == nil && info.Size() > 0
		// Of another size, it is of another shape.
		if err := errors.Join(err, file.Truncate(0), file.Truncate(int64(size))); err != nil {
			return nil, fmt.Errorf("no room for the state in %s: %w", file.Name(), err)
		}
	}
	// What the file system cannot hold would end the process at the first touch.
	if err := unix.Fallocate(int(file.Fd()), 0, 0, int64(size)); err != nil {
		return nil, fmt.Errorf("no room for %d MiB of state in %s: lower max_sessions, or set keep_state = false: %w", size>>20, file.Name(), err)
	}
	whole, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("cannot map %s: %w", file.Name(), err)
	}
	m := &memory{slabs: divide(whole[noteSize:], z), file: file, used: used, other: other, free: func() error {
		return errors.Join(unix.Munmap(whole), file.Close())
	}}
	if here, err := fastpath.NamespaceCookie(); err == nil {
		binary.NativeEndian.PutUint64(whole[noteNamespace:], here)
	}
	m.note = func() string { return noteIn(whole[:noteSize]) }
	m.setNote = func(s string) error { return setNoteIn(whole[:noteSize], s) }
	return m, nil
}

// noteIn reads the note of a file.
func noteIn(b []byte) string {
	at := int(b[noteInUse]&1) * noteSize / 2
	return unix.ByteSliceToString(b[at : at+noteRoom])
}

// setNoteIn replaces it: whoever is killed meanwhile leaves the note of before or the new
// one.
func setNoteIn(b []byte, s string) error {
	if len(s) >= noteRoom {
		return fmt.Errorf("the note has %d octets, and there is room for %d", len(s), noteRoom-1)
	}
	if noteIn(b) == s {
		return nil
	}
	next := b[noteInUse]&1 ^ 1
	at := int(next) * noteSize / 2
	text := b[at : at+noteRoom]
	clear(text)
	copy(text, s)
	b[noteInUse] = next
	return nil
}

// drop gives the file back and ends it: its content lies elsewhere.
func (m *memory) drop() error { return errors.Join(os.Remove(m.file.Name()), m.free()) }

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
// adopted tells that sessions of an earlier process go on.
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
