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

// TestSpoolOfAll hands out a record of all lines, "+" here, when all before it are done, and nothing behind it before
// it is done; also in the next process.
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
	for range 3 {
		all := s.one(t, "+")
		s.one(t, "")
		s.GiveBack(all)
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
		t.Error("one of all lines is set aside before its time")
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

// TestSpoolOfAllAside has one of all lines that is set aside hold up none behind it, nor has one that follows it.
// What is behind is tried before its time when nothing else could tell that somebody is there, and comes again.
func TestSpoolOfAllAside(t *testing.T) {
	s := openSpool(t, filepath.Join(t.TempDir(), "spool"), 100)
	for _, one := range []string{"+", "b", "b+"} {
		s.Put([]byte(one))
	}
	s.Postpone(s.one(t, "+"))
	b := s.one(t, "b")
	if s.Aside(b) {
		t.Error("a record is set aside before its time")
	}
	s.Done(b) // somebody is there
	s.Restore()
	all := s.one(t, "+")
	s.one(t, "")
	if !s.Aside(all) {
		t.Fatal("it cannot be set aside")
	}
	s.Put([]byte("++"))
	s.Put([]byte("d"))
	for _, want := range []string{"b", "b+"} {
		s.Done(s.one(t, want))
	}
	d := s.one(t, "d")
	s.GiveBack(all)
	s.Done(s.one(t, "+")) // after all, and what follows it is in its order again
	s.GiveBack(d)
	s.Done(s.one(t, "++"))
	s.Done(s.one(t, "d"))
	if info := s.Info(); info.Records != 0 {
		t.Error(info)
	}
}

// TestSpoolAfterAside has what follows a record that was set aside hold up nothing that was put behind a record of all
// lines that is done, for it has no place before that any more, and stay before one that waits.
func TestSpoolAfterAside(t *testing.T) {
	s := openSpool(t, filepath.Join(t.TempDir(), "spool"), 100)
	for _, one := range []string{"a", "a+", "+", "b", "b+"} {
		s.Put([]byte(one))
	}
	a := s.one(t, "a")
	s.Aside(a)
	s.Done(s.one(t, "+"))
	s.Put([]byte("++"))
	s.Put([]byte("c"))
	s.GiveBack(a)
	s.Done(s.one(t, "a"))
	list, numbers := s.take()
	if fmt.Sprint(list) != "[a+ b]" {
		t.Fatal(list)
	}
	s.Done(numbers[1])
	s.Done(s.one(t, "b+"))
	s.one(t, "") // but the first, which somebody has
	s.Done(numbers[0])
	s.Done(s.one(t, "++"))
	s.Done(s.one(t, "c"))
}

// TestSpoolProbe tries all there is, of whatever stage, while nothing tells that somebody is there: first what is of
// all lines, which is in nobody's way.
func TestSpoolProbe(t *testing.T) {
	s := openSpool(t, filepath.Join(t.TempDir(), "spool"), 100)
	for _, one := range []string{"a", "+", "c", "++", "d"} {
		s.Put([]byte(one))
	}
	for range 2 {
		tried := map[string]bool{}
		for i := range 4 {
			n, record, _ := s.Take()
			if tried[string(record)] = true; i == 1 && string(record) != "+" {
				t.Errorf("%q is tried", record)
			}
			s.Postpone(n)
		}
		if len(tried) != 4 {
			t.Errorf("tried are %v", tried)
		}
	}
}
