// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"bytes"
	"path/filepath"
	"runtime"
	"testing"
)

// TestRewriteInPieces writes a journal anew that is mostly out of date: what that takes of memory is by what is left.
func TestRewriteInPieces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := open(t, path)
	value := bytes.Repeat([]byte("value"), maxRecord/10)
	const times = 64
	for range times {
		j.Put("a", value)
		if err := j.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := j.Sync(); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if j.size >= 2*int64(len(value)) {
		t.Fatalf("it was not written anew: %d octets", j.size)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > times*uint64(len(value))/4 {
		t.Errorf("writing %d octets anew took %d of memory", j.size, got)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, text := open(t, path)
	if text != "a="+string(value) || !j.Clean {
		t.Errorf("%d octets are left, clean %t", len(text), j.Clean)
	}
	kill(j)
}

// TestRecordsOfTheirOwn looks whether records that were read keep more in memory than themselves, such as the file.
func TestRecordsOfTheirOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	of := func(record []byte) (string, bool) { return string(record[:1]), false }
	s, err := OpenSpool(path, 1<<20, of)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 100 {
		s.Put(bytes.Repeat([]byte{byte(n)}, 100))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenSpool(path, 1<<20, of); err != nil {
		t.Fatal(err)
	}
	if info := s.Info(); info.Records != 100 {
		t.Fatalf("%+v", info)
	}
	for _, one := range s.waiting {
		if cap(one.record) > 2*len(one.record) {
			t.Fatalf("a record of %d octets keeps %d", len(one.record), cap(one.record))
		}
	}
	kill(s.journal)
}
