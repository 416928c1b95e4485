// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package kept has memory that outlives the process which writes it: a file that is mapped
// and locked, with a note for a successor. What lies in it is the role's, and so is the
// judgement of what an earlier process has left there.
package kept

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Folder is where files are unless the configuration says otherwise. It is memory, which a
// reboot clears.
const Folder = "/run/isthmus"

// Config says what a file is for.
type Config struct {
	Path string
	// Size is that of the memory, in bytes.
	Size int
	// Namespace is the cookie of the network namespace; 0: it is not known.
	Namespace uint64
	// Limit is the key of the configuration that makes the memory smaller.
	Limit string
	// Existing makes no file: without one Open fails with [os.ErrNotExist].
	Existing bool
}

// File is memory that outlives the process.
type File struct {
	// Memory begins with a page.
	Memory []byte
	// Used reports that a process of this boot has left memory of the same size. Other tells
	// that it was of another size, which is replaced.
	Used, Other bool
	// Elsewhere reports that that process ran in another network namespace.
	Elsewhere bool

	file  *os.File
	whole []byte
}

// The first page of a file is a header: two places for the note with room for other things
// behind each.
const (
	headerSize  = 4096
	noteRoom    = headerSize/2 - 16
	atBoot      = noteRoom        // the boot in which the memory was written, 16 bytes
	atNamespace = headerSize - 16 // the cookie of the network namespace, 8 bytes
	atInUse     = headerSize - 1  // which note is in force
)

// MaxNote is the length of the longest note, in octets.
const MaxNote = noteRoom - 1

// Path returns the file of an instance of a role: the one that the configuration names, or
// the usual one.
func Path(own, name, role string) string {
	if own != "" {
		return own
	}
	return filepath.Join(Folder, name+suffix(role))
}

func suffix(role string) string { return "." + role + ".state" }

// Open maps a file, and makes it if there is none. It is locked, so that one process at a
// time uses it.
func Open(cfg Config) (*File, error) {
	file, err := openFile(&cfg)
	if err != nil {
		return nil, fmt.Errorf("nothing can be kept over a restart: %w", err)
	}
	if err := lock(file); err != nil {
		return nil, err
	}
	if !StillThere(file) { // who cleans has just removed it
		_ = file.Close()
		return Open(cfg)
	}
	f := &File{file: file}
	if err := f.open(&cfg); err != nil {
		_ = file.Close()
		return nil, err
	}
	return f, nil
}

func openFile(cfg *Config) (*os.File, error) {
	flags := os.O_RDWR | unix.O_NOFOLLOW
	if !cfg.Existing {
		if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o755); err != nil {
			return nil, err
		}
		flags |= os.O_CREATE
	}
	return os.OpenFile(cfg.Path, flags, 0o600)
}

func (f *File) open(cfg *Config) error {
	name := f.file.Name()
	size, boot := cfg.Size+headerSize, bootID()
	if err := f.judge(size, boot); err != nil {
		return fmt.Errorf("no room for the state in %s: %w", name, err)
	}
	// What the file system cannot hold would end the process at the first touch.
	if err := unix.Fallocate(int(f.file.Fd()), 0, 0, int64(size)); err != nil {
		return fmt.Errorf("no room for %d MiB of state in %s: lower %s, or set keep_state = false: %w", size>>20, name, cfg.Limit, err)
	}
	// No packet waits for a page that is touched for the first time.
	whole, err := unix.Mmap(int(f.file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("cannot map %s: %w", name, err)
	}
	f.whole, f.Memory = whole, whole[headerSize:]
	copy(whole[atBoot:], boot[:])
	if cfg.Namespace != 0 {
		before := binary.NativeEndian.Uint64(whole[atNamespace:])
		f.Elsewhere = f.Used && before != 0 && before != cfg.Namespace
		binary.NativeEndian.PutUint64(whole[atNamespace:], cfg.Namespace)
	}
	return nil
}

// judge finds out what an earlier process has left, and empties the file if that cannot be
// used: of another size it is of another shape, and stamps of another boot are of another
// clock.
func (f *File) judge(size int, boot [16]byte) error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	f.Other = info.Size() > 0 && info.Size() != int64(size)
	var then [16]byte
	if _, err := f.file.ReadAt(then[:], atBoot); err == nil && then != boot && then != [16]byte{} && boot != [16]byte{} {
		f.Other = false // it would have ended in any case
	} else if info.Size() == int64(size) {
		f.Used = true
		return nil
	}
	return errors.Join(f.file.Truncate(0), f.file.Truncate(int64(size)))
}

// bootID is the kernel's number of this boot; zero if it does not say.
func bootID() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil {
		_, _ = hex.Decode(id[:], bytes.ReplaceAll(bytes.TrimSpace(text), []byte("-"), nil))
	}
	return id
}

// Close gives the file back and leaves its content to a successor.
func (f *File) Close() error { return errors.Join(unix.Munmap(f.whole), f.file.Close()) }

// Drop gives the file back and ends it: its content lies elsewhere.
func (f *File) Drop() error { return errors.Join(os.Remove(f.file.Name()), f.Close()) }

// Note returns what [File.SetNote] has left, empty if nothing.
func (f *File) Note() string { return noteIn(f.whole) }

// SetNote replaces the note: whoever is killed meanwhile leaves the note of before or the
// new one.
func (f *File) SetNote(text string) error { return setNoteIn(f.whole, text) }

func noteIn(b []byte) string {
	at := int(b[atInUse]&1) * headerSize / 2
	return unix.ByteSliceToString(b[at : at+noteRoom])
}

func setNoteIn(b []byte, s string) error {
	if len(s) > MaxNote {
		return fmt.Errorf("the note has %d octets, and there is room for %d", len(s), MaxNote)
	}
	if noteIn(b) == s {
		return nil
	}
	next := b[atInUse]&1 ^ 1
	at := int(next) * headerSize / 2
	text := b[at : at+noteRoom]
	clear(text)
	copy(text, s)
	b[atInUse] = next
	return nil
}

// Peek copies the memory of a file that may be in use, with its note; nil: there is none of
// this size, or this process may not read it.
func Peek(path string, size int) (memory []byte, note string) {
	b, err := os.ReadFile(path)
	if err != nil || len(b) != size+headerSize {
		return nil, ""
	}
	return b[headerSize:], noteIn(b)
}

// PeekNote returns the note of a file that may be in use; empty if there is none, or this
// process may not read it.
func PeekNote(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	var header [headerSize]byte
	if _, err := io.ReadFull(file, header[:]); err != nil {
		return ""
	}
	return noteIn(header[:])
}
