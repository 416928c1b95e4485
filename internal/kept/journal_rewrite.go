// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// place is where in a journal a record lies.
type place struct{ at, length int64 }

// journalBuffer is how much of a journal is in memory at a time while it is read or written anew: what has its records
// holds them once already.
const journalBuffer = 64 << 10

// replay reads the records of a file of so many octets, up to the first that is not whole, and returns where that
// begins. The value of one that is gone is nil; it is valid during the call. Clean tells that the last record is the mark.
func replay(file io.ReaderAt, size int64, each func(key string, value []byte, at place)) (end int64, clean bool, err error) {
	end = int64(len(journalMark))
	r := bufio.NewReaderSize(io.NewSectionReader(file, end, size-end), journalBuffer)
	var one []byte
	for {
		var keyLen uint32
		one, keyLen, err = nextRecord(r, one)
		if err != nil || one == nil {
			return end, clean, err
		}
		at := place{end, int64(len(one))}
		end += at.length
		key, value := string(one[recordHeader:recordHeader+keyLen]), one[recordHeader+keyLen:]
		if binary.BigEndian.Uint32(one[8:]) == gone {
			value = nil
		}
		if clean = key == ""; clean {
			continue
		}
		each(key, value, at)
	}
}

// nextRecord reads a record into memory that may be used again; nil: there is none that is whole.
func nextRecord(r *bufio.Reader, one []byte) (record []byte, keyLen uint32, err error) {
	header, err := r.Peek(recordHeader)
	if err != nil {
		return nil, 0, notEnd(err)
	}
	keyLen, length := binary.BigEndian.Uint32(header[4:]), binary.BigEndian.Uint32(header[8:])
	if length == gone {
		length = 0
	}
	if keyLen > maxRecord || length > maxRecord {
		return nil, 0, nil
	}
	n := recordHeader + int(keyLen+length)
	one = slices.Grow(one[:0], n)[:n]
	if _, err := io.ReadFull(r, one); err != nil {
		return nil, 0, notEnd(err)
	}
	if crc32.ChecksumIEEE(one[4:]) != binary.BigEndian.Uint32(one) {
		return nil, 0, nil
	}
	return one, keyLen, nil
}

// notEnd is an error of reading that is not the end of the file.
func notEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// rewrite replaces the file by one that has each record of its first part once, and behind these
// what has come since.
func (j *Journal) rewrite(size int64) error {
	old := j.file // which no one else replaces
	records := map[string]place{}
	_, _, err := replay(old, size, func(key string, value []byte, at place) {
		if delete(records, key); value != nil {
			records[key] = at
		}
	})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(j.path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	base, err := copyRecords(file, old, records)
	if err = errors.Join(err, unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB), file.Sync()); err == nil {
		err = j.replace(file, size, base)
	}
	if err != nil {
		_ = file.Close()
		_ = os.Remove(file.Name())
		return err
	}
	return old.Close()
}

// copyRecords begins a journal with some records of another, in their order there, and returns its length.
func copyRecords(to io.Writer, from io.ReaderAt, records map[string]place) (length int64, err error) {
	w := bufio.NewWriterSize(to, journalBuffer)
	_, err = w.WriteString(journalMark)
	length = int64(len(journalMark))
	var one []byte
	for _, p := range slices.SortedFunc(maps.Values(records), func(a, b place) int { return cmp.Compare(a.at, b.at) }) {
		if err != nil {
			break
		}
		one = slices.Grow(one[:0], int(p.length))[:p.length]
		if _, err = from.ReadAt(one, p.at); err == nil {
			_, err = w.Write(one)
		}
		length += p.length
	}
	return length, errors.Join(err, w.Flush())
}
