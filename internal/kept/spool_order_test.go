// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"fmt"
	"path/filepath"
	"testing"
)

// one takes a record, and fails if it is another.
func (s *Spool) one(t *testing.T, want string) (n uint64) {
	t.Helper()
	n, record, ok := s.Take()
	if string(record) != want || ok != (want != "") {
		t.Fatalf("%q is taken, want %q", record, want)
	}
	return n
}

// TestSpoolOfAll hands out a record of all lines, "+" here, when all before it are done, whatever was postponed, and
// nothing behind it before it is done; also in the next process.
func TestSpoolOfAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s := openSpool(t, path, 100)
	for _, one := range []string{"a", "a+", "+", "a++", "b"} {
		s.Put([]byte(one))
	}
	a := s.one(t, "a")
	s.one(t, "")
	s.GiveBack(a)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openSpool(t, path, 100)
	s.Done(s.one(t, "a"))
	s.Done(s.one(t, "a+"))
	for range 3 { // it is postponed, and nothing comes before it
		all := s.one(t, "+")
		s.one(t, "")
		s.Postpone(all)
	}
	s.Done(s.one(t, "+"))
	if list, _ := s.take(); fmt.Sprint(list) != "[a++ b]" || s.Info().Records != 2 {
		t.Error(list, s.Info())
	}
}

// TestSpoolOfAllKeepsPassing leaves a passing record where it is that one of all lines follows.
func TestSpoolOfAllKeepsPassing(t *testing.T) {
	s := openSpool(t, filepath.Join(t.TempDir(), "spool"), 100)
	for _, one := range []string{"a~", "+", "a+"} {
		s.Put([]byte(one))
	}
	for _, want := range []string{"a~", "+", "a+"} {
		s.Done(s.one(t, want))
	}
}

// TestSpoolAside has a record that is set aside, and what follows it in its line, hold up none of all lines. That is
// tried before its time when nothing else is there that could tell why no one is reached.
func TestSpoolAside(t *testing.T) {
	s := openSpool(t, filepath.Join(t.TempDir(), "spool"), 100)
	for _, one := range []string{"a", "a+", "b", "+", "c", "++", "d"} {
		s.Put([]byte(one))
	}
	a := s.one(t, "a")
	s.Done(s.one(t, "b"))
	s.Postpone(a)
	all := s.one(t, "+")
	if s.Aside(all) {
		t.Error("one of all lines is set aside")
	}
	s.Done(all) // somebody is there, and it comes again
	s.Restore()
	if a = s.one(t, "a"); !s.Aside(a) {
		t.Fatal("it cannot be set aside")
	}
	s.Put([]byte("a++"))
	s.Done(s.one(t, "+"))
	s.Done(s.one(t, "c"))
	s.GiveBack(a)
	s.Done(s.one(t, "a")) // after all: what was put behind it before the rest, comes before the rest
	s.Done(s.one(t, "a+"))
	s.Done(s.one(t, "++"))
	if list, _ := s.take(); fmt.Sprint(list) != "[d a++]" {
		t.Error(list)
	}
}
