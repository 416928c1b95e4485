// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// StateFolder is where files are that outlive a reboot, as the service has it.
const StateFolder = "/var/lib/isthmus"

// Saved is a file with a counter, which is never lost, and with the state that a process wrote
// at its end, if it came to that. It is locked, so that one process at a time has it.
type Saved struct {
	// Fresh reports that no one has written a counter before.
	Fresh bool
	// Counter is what the last process had. Of a fresh file it is random: whoever knew a counter
	// before that was lost shall see another one.
	Counter uint8
	// Whole reports that it has left State, Damaged that something is there that cannot be read.
	Whole, Damaged bool
	State          []byte

	file *os.File
}

// The header: a mark with a version, the counter, whether the state is whole, its length and
// its checksum.
const (
	savedMark   = "isthmus\x01"
	savedHeader = 24
	maxSaved    = 1 << 32
)

// SavedPath returns the file of an instance of a role: the one that the configuration names,
// or the usual one.
func SavedPath(own, name, role string) string {
	if own != "" {
		return own
	}
	return filepath.Join(StateFolder, name+suffix(role))
}

// OpenSaved opens a file, and makes it if there is none.
func OpenSaved(path string) (*Saved, error) {
	_, err := os.Stat(path)
	there := err == nil
	file, err := openLocked(path)
	if err != nil {
		return nil, err
	}
	s := &Saved{file: file, Fresh: true, Damaged: there}
	if err := s.read(); err != nil {
		_ = file.Close()
		return nil, err
	}
	return s, nil
}

// openLocked opens a file, makes it if there is none, and locks it.
func openLocked(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, unusable(path, err)
	}
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, unusable(path, err)
		}
		if err := lock(file); err != nil {
			return nil, err
		}
		if StillThere(file) {
			return file, nil
		}
		_ = file.Close() // who cleans has just removed it
	}
}

// StillThere reports whether an open file is the one of its name, and was not removed before it was locked.
func StillThere(file *os.File) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(file.Name())
	return err == nil && os.SameFile(opened, named)
}

// lock locks a file, or closes it.
func lock(file *os.File) error {
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		return nil
	}
	_ = file.Close()
	return fmt.Errorf("the state in %s is in use by another process: stop that, or set another state_file", file.Name())
}

func unusable(path string, err error) error {
	if info, is := os.Stat(path); is == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder: name a file in it as state_file", path)
	}
	return fmt.Errorf("nothing can be kept over a restart in %s (%w): name another file as state_file", path, err)
}

// CheckSaved tells why [OpenSaved] could not open a file that is there, without changing
// anything.
func CheckSaved(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return unusable(path, err)
	}
	if err := lock(file); err != nil {
		return err
	}
	return file.Close()
}

// read reads what is there. What is no such file, or was cut short, is as none.
func (s *Saved) read() error {
	var first [1]byte
	if _, err := rand.Read(first[:]); err != nil {
		return fmt.Errorf("no random counter: %w", err)
	}
	s.Counter = first[0]
	all, err := io.ReadAll(io.LimitReader(s.file, maxSaved))
	if err != nil {
		return fmt.Errorf("the state in %s cannot be read: %w", s.file.Name(), err)
	}
	if len(all) < savedHeader || string(all[:len(savedMark)]) != savedMark {
		return nil
	}
	s.Fresh, s.Damaged, s.Counter = false, false, all[8]
	state := all[savedHeader:]
	if all[9] != 1 {
		return nil
	}
	if binary.BigEndian.Uint64(all[12:]) == uint64(len(state)) && binary.BigEndian.Uint32(all[20:]) == crc32.ChecksumIEEE(state) {
		s.Whole, s.State = true, state
	} else {
		s.Damaged = true
	}
	return nil
}

// Next is the counter of a process that has nothing left of what the last one had.
func (s *Saved) Next() uint8 {
	if s.Fresh {
		return s.Counter
	}
	return s.Counter + 1
}

// Begin writes a counter, so that a process that is killed has used it, and lets go of the
// state, which is used up. It has reached the disk when it returns.
func (s *Saved) Begin(counter uint8) error {
	s.Whole, s.State = false, nil
	return s.write(counter, nil, false)
}

// End leaves a counter and a state for a successor, which finds them although somebody has
// removed the file meanwhile.
func (s *Saved) End(counter uint8, state []byte) error {
	if err := s.putBack(); err != nil {
		return err
	}
	if err := s.put(state, savedHeader); err != nil {
		return err
	}
	return s.write(counter, state, true)
}

// putBack makes the file again if it is no longer where it was.
func (s *Saved) putBack() error {
	ours, err := s.file.Stat()
	if err != nil {
		return s.problem(err)
	}
	if there, err := os.Stat(s.file.Name()); err == nil && os.SameFile(ours, there) {
		return nil
	}
	file, err := openLocked(s.file.Name())
	if err != nil {
		return err
	}
	_ = s.file.Close()
	s.file = file
	return nil
}

// Close gives the file back.
func (s *Saved) Close() error { return s.file.Close() }

// write writes the header last: before it, what is there is not whole.
func (s *Saved) write(counter uint8, state []byte, whole bool) error {
	header := append([]byte(savedMark), counter, 0, 0, 0)
	if whole {
		header[9] = 1
	}
	header = binary.BigEndian.AppendUint64(header, uint64(len(state)))
	header = binary.BigEndian.AppendUint32(header, crc32.ChecksumIEEE(state))
	return errors.Join(s.put(header, 0), s.problem(s.file.Truncate(int64(savedHeader+len(state)))),
		s.problem(syncFolder(filepath.Dir(s.file.Name())))) // it may have been made just now
}

// put writes something, which has reached the disk when it returns.
func (s *Saved) put(b []byte, at int64) error {
	_, err := s.file.WriteAt(b, at)
	return s.problem(errors.Join(err, s.file.Sync()))
}

func (s *Saved) problem(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the state cannot be kept in %s: %w", s.file.Name(), err)
}
