// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Journal is a file of records by their keys, of each of which the last one counts. What has been
// flushed outlives the process, however that ends; what has been synced outlives the machine. It is
// locked, so that one process at a time has it. Its methods may be called by several goroutines.
type Journal struct {
	// Fresh reports that there was none, and Clean that the last process has closed it and written all.
	Fresh, Clean bool
	// Cut is how many octets were left out when it was opened: behind a record that is not whole, which a machine
	// that loses its power may leave at the end, and a damaged disk anywhere.
	Cut int64

	path string

	mu      sync.Mutex // guards what follows
	file    *os.File
	pending []byte // not written yet
	size    int64  // of the file
	base    int64  // its size when each record was in it once
	synced  int64
	lacks   bool // something that was put could not be written
	named   bool // its folder has reached the disk since it was made, or written anew
}

// A record has a checksum of what follows it, two lengths, its key and its value. A key without a
// value is gone. The empty one is the mark of a process that has closed the journal.
const (
	journalMark  = "isthmus journal\x01"
	recordHeader = 12
	gone         = 1<<32 - 1

	maxRecord  = 1 << 20
	maxJournal = 1 << 32
	// spare is what a journal may grow by before it is written anew, beside its own size.
	spare = 1 << 20
)

// OpenJournal opens a journal, and makes it if there is none. It returns the records in it: those
// before the first that is not whole.
func OpenJournal(path string) (j *Journal, records map[string][]byte, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, nil, fmt.Errorf("nothing can be kept over a restart: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("nothing can be kept over a restart: %w", err)
	}
	j = &Journal{path: path, file: file}
	if err = j.lock(); err == nil {
		records, err = j.read()
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return j, records, nil
}

// lock takes the file, which must still be the one of that name: its owner may just have written it
// anew.
func (j *Journal) lock() error {
	var opened, named unix.Stat_t
	if unix.Flock(int(j.file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil ||
		unix.Fstat(int(j.file.Fd()), &opened) != nil || unix.Lstat(j.path, &named) != nil || opened.Ino != named.Ino {
		return fmt.Errorf("the state in %s is in use by another process: stop that, or set another state_file", j.path)
	}
	return nil
}

// read reads what is there, and cuts off what is not whole.
func (j *Journal) read() (map[string][]byte, error) {
	info, err := j.file.Stat()
	if err != nil {
		return nil, j.unreadable(err)
	}
	size := min(info.Size(), maxJournal)
	if j.Fresh = size == 0; j.Fresh {
		size = int64(len(journalMark))
		if _, err := j.file.WriteAt([]byte(journalMark), 0); err != nil {
			return nil, j.problem(err)
		}
	}
	mark := make([]byte, len(journalMark))
	if _, err := j.file.ReadAt(mark, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, j.unreadable(err)
	} else if string(mark) != journalMark {
		return nil, fmt.Errorf("%s is no state of isthmus: name another file for it, or remove it", j.path)
	}
	records := map[string][]byte{}
	j.size, j.Clean, err = replay(j.file, size, func(key string, value []byte, _ place) {
		if delete(records, key); value != nil {
			records[key] = bytes.Clone(value)
		}
	})
	if err != nil {
		return nil, j.unreadable(err)
	}
	j.base, j.Cut = lengthOf(records), size-j.size
	if j.Clean {
		j.size -= recordHeader
	}
	if err = j.file.Truncate(j.size); err == nil && j.Clean {
		// The mark of the last process is not that of this one, also when the machine loses its power now.
		err, j.synced = j.file.Sync(), j.size
	}
	return records, j.problem(err)
}

func (j *Journal) unreadable(err error) error {
	return fmt.Errorf("the state in %s cannot be read: %w", j.path, err)
}

// lengthOf is that of a journal which has each record once.
func lengthOf(records map[string][]byte) int64 {
	n := len(journalMark)
	for key, value := range records {
		n += recordHeader + len(key) + len(value)
	}
	return int64(n)
}

func appendRecord(b []byte, key string, value []byte) []byte {
	at := len(b)
	length := uint32(len(value))
	if value == nil {
		length = gone
	}
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(key)))
	b = binary.BigEndian.AppendUint32(b, length)
	b = append(append(b, key...), value...)
	binary.BigEndian.PutUint32(b[at:], crc32.ChecksumIEEE(b[at+4:]))
	return b
}

// Put sets a record, or with nil removes it; [Journal.Flush] writes it.
func (j *Journal) Put(key string, value []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = appendRecord(j.pending, key, value)
}

// Flush writes what was put. After an error it is tried again by the next one.
func (j *Journal) Flush() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.flush()
}

func (j *Journal) flush() error {
	if len(j.pending) == 0 {
		return nil
	}
	if _, err := j.file.WriteAt(j.pending, j.size); err != nil {
		if len(j.pending) > maxRecord { // a disk that is full must not fill the memory, too
			j.pending, j.lacks = nil, true
		}
		return j.problem(err)
	}
	j.size += int64(len(j.pending))
	j.pending = j.pending[:0]
	return nil
}

// discard forgets what was put and not written.
func (j *Journal) discard() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = nil
}

// Sync has what was flushed reach the disk, and writes a journal anew in which more is out of date
// than not. Others go on putting and flushing meanwhile.
func (j *Journal) Sync() error {
	j.mu.Lock()
	file, size, synced, grown := j.file, j.size, j.synced, j.size > 2*j.base+spare
	j.mu.Unlock()
	var err error
	switch {
	case grown:
		err = j.rewrite(size)
	case size != synced:
		if err = file.Sync(); err == nil {
			j.reached(file, size)
		}
	}
	return j.problem(errors.Join(err, j.syncName()))
}

// reached notes that a file is on the disk up to size.
func (j *Journal) reached(file *os.File, size int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if file == j.file {
		j.synced = size
	}
}

// syncName has the name of the file reach the disk, if that may still be the one of another, or of none: fsync(2) of a file
// does not do that.
func (j *Journal) syncName() error {
	j.mu.Lock()
	file, named := j.file, j.named
	j.mu.Unlock()
	if named {
		return nil
	}
	if err := syncFolder(filepath.Dir(j.path)); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.named = file == j.file
	return nil
}

// replace goes on in another file, which has what the old one had up to size.
func (j *Journal) replace(file *os.File, size, base int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	since := make([]byte, j.size-size)
	if _, err := j.file.ReadAt(since, size); err != nil && len(since) > 0 {
		return err
	}
	if _, err := file.WriteAt(since, base); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), j.path); err != nil {
		return err
	}
	j.file, j.base, j.size, j.synced, j.named = file, base, base+int64(len(since)), base, false
	return nil
}

// Close flushes and syncs, marks that the process has ended in good order, with all written, and gives the file back.
func (j *Journal) Close() error {
	unnamed := j.problem(j.syncName())
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.lacks {
		j.pending = appendRecord(j.pending, "", nil)
	}
	return errors.Join(unnamed, j.flush(), j.problem(j.file.Sync()), j.file.Close())
}

func (j *Journal) problem(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the state cannot be kept in %s: %w", j.path, err)
}
