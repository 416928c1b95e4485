// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// openSpool opens one in which records are of one line that differ by the number of their +.
func openSpool(t *testing.T, path string, limit int) *Spool {
	t.Helper()
	s, err := OpenSpool(path, limit, func(record []byte) string { return strings.TrimRight(string(record), "+") })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// take takes all records.
func (s *Spool) take() (list []string, numbers []uint64) {
	for {
		n, record, ok := s.Take()
		if !ok {
			return list, numbers
		}
		list, numbers = append(list, string(record)), append(numbers, n)
	}
}

// TestSpool hands records out in their order, those that came back before those behind them, and
// has those left that are not done, when its process was killed.
func TestSpool(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s := openSpool(t, path, 100)
	for i := range 10 {
		if !s.Put([]byte(fmt.Sprint(i))) {
			t.Fatal("full")
		}
	}
	list, numbers := s.take()
	if fmt.Sprint(list) != "[0 1 2 3 4 5 6 7 8 9]" {
		t.Fatal(list)
	}
	for _, n := range []int{7, 3, 5} {
		s.GiveBack(numbers[n])
	}
	s.Put([]byte("10"))
	if list, _ = s.take(); fmt.Sprint(list) != "[3 5 7 10]" {
		t.Error(list)
	}
	for _, n := range []int{0, 1, 3, 9} {
		s.Done(numbers[n])
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	s.Put([]byte("never written"))
	_ = s.journal.file.Close() // as the kernel does for a process that is killed
	s = openSpool(t, path, 100)
	if list, numbers = s.take(); fmt.Sprint(list) != "[2 4 5 6 7 8 10]" {
		t.Error(list)
	}
	for _, n := range numbers {
		s.Done(n)
	}
	s.Put([]byte("11"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openSpool(t, path, 100)
	if list, _ = s.take(); fmt.Sprint(list) != "[11]" || s.Info() != (SpoolInfo{1, 2, 0}) {
		t.Error(list, s.Info())
	}
}

// TestSpoolLines hands out one record of a line at a time, in their order, and those of other lines
// meanwhile; what is postponed comes last until the order is restored.
func TestSpoolLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s := openSpool(t, path, 100)
	for _, one := range []string{"a", "a+", "b", "a++", "c"} {
		s.Put([]byte(one))
	}
	list, numbers := s.take()
	if fmt.Sprint(list) != "[a b c]" {
		t.Fatal(list)
	}
	s.Postpone(numbers[0])
	s.GiveBack(numbers[2])
	s.GiveBack(numbers[1])
	s.GiveBack(numbers[1]) // twice is once
	if list, numbers = s.take(); fmt.Sprint(list) != "[b c a]" {
		t.Fatal(list)
	}
	for _, n := range numbers {
		s.Postpone(n)
	}
	if list, numbers = s.take(); fmt.Sprint(list) != "[b c a]" {
		t.Fatal(list)
	}
	for _, n := range numbers {
		s.GiveBack(n)
	}
	if s.Restore(); s.Info().Records != 5 {
		t.Error(s.Info())
	}
	if list, numbers = s.take(); fmt.Sprint(list) != "[a b c]" {
		t.Fatal(list)
	}
	s.Done(numbers[0])
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openSpool(t, path, 100)
	if list, numbers = s.take(); fmt.Sprint(list) != "[a+ b c]" {
		t.Error(list)
	}
	s.Done(numbers[0])
	if list, _ = s.take(); fmt.Sprint(list) != "[a++]" {
		t.Error(list)
	}
}

// TestSpoolFull takes no more than its limit, also what an earlier process has left counted, and
// takes it again when there is room.
func TestSpoolFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s := openSpool(t, path, 10)
	if !s.Put(make([]byte, 6)) || s.Put(make([]byte, 5)) || !s.Put(make([]byte, 4)) {
		t.Error("the limit is another")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openSpool(t, path, 10)
	if s.Put([]byte{1}) || s.Info() != (SpoolInfo{2, 10, 1}) {
		t.Error(s.Info())
	}
	n, _, _ := s.Take()
	s.Done(n)
	if !s.Put([]byte{1}) {
		t.Error("there is no room again")
	}
}

// TestSpoolShrinks: the file of a spool that is empty again does not grow for ever.
func TestSpoolShrinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s := openSpool(t, path, 1<<20)
	for range 100 {
		for i := range 100 {
			s.Put(binary.BigEndian.AppendUint16(make([]byte, 998), uint16(i)))
		}
		_, numbers := s.take()
		for _, n := range numbers {
			s.Done(n)
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 2*spare {
		t.Errorf("%v octets, %v", info.Size(), err)
	}
}
