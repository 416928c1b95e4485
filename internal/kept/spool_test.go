// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// openSpool opens one in which records are of one line that differ by the + or ~ behind them, and those with
// a ~ are passing.
func openSpool(t *testing.T, path string, limit int) *Spool {
	t.Helper()
	s, err := OpenSpool(path, limit, func(record []byte) (string, bool) {
		return strings.TrimRight(string(record), "+~"), bytes.HasSuffix(record, []byte("~"))
	})
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
	if list, _ = s.take(); fmt.Sprint(list) != "[11]" || s.Info() != (SpoolInfo{Records: 1, Octets: 2}) {
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

// TestSpoolForgets: of what is gone nothing is kept, also while nobody is reached.
func TestSpoolForgets(t *testing.T) {
	s := openSpool(t, filepath.Join(t.TempDir(), "spool"), 100)
	s.Put([]byte("a~"))
	for range 10 {
		n, _, _ := s.Take()
		s.Put([]byte("a~"))
		if s.Postpone(n) {
			t.Error("a passing record stays that another follows")
		}
	}
	if len(s.postponed) > 0 {
		t.Errorf("%d records are kept", len(s.postponed))
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
	if s.Put([]byte{1}) || s.Info() != (SpoolInfo{Records: 2, Octets: 10, Refused: 1}) {
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

// TestSpoolPassing has the next record of a line in the place of a passing one that waits, and behind one that
// is taken, which does not come back then; whenever its process is killed, one of the two is there.
func TestSpoolPassing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s := openSpool(t, path, 100)
	for _, one := range []string{"a", "a~", "b~", "a~~", "a+"} {
		s.Put([]byte(one))
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		_ = s.journal.file.Close() // as the kernel does for a process that is killed
		s = openSpool(t, path, 100)
	}
	list, numbers := s.take()
	if fmt.Sprint(list) != "[a b~]" || s.Info() != (SpoolInfo{Records: 3, Octets: 5}) {
		t.Fatal(list, s.Info())
	}
	s.Put([]byte("b~~")) // b~ is under way
	s.Put([]byte("b++"))
	s.Put([]byte("b+++"))
	if s.Postpone(numbers[1]) || !s.GiveBack(numbers[0]) {
		t.Error("another one has come back")
	}
	if list, numbers = s.take(); fmt.Sprint(list) != "[a b++]" || s.Info() != (SpoolInfo{Records: 4, Octets: 10, Passed: 2}) {
		t.Fatal(list, s.Info())
	}
	for _, n := range numbers {
		s.Done(n)
	}
	if list, _ = s.take(); fmt.Sprint(list) != "[b+++ a+]" && fmt.Sprint(list) != "[a+ b+++]" {
		t.Error(list)
	}
}

// TestSpoolReserve keeps half of its room from passing records, and its file from growing by those that were
// replaced.
func TestSpoolReserve(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s := openSpool(t, path, 100<<10)
	for round := range 200 {
		for i := range 100 { // of 1000 octets each
			s.Put(fmt.Appendf(nil, "%0999d~", i))
		}
		if err := errors.Join(s.Flush(), s.Sync()); err != nil {
			t.Fatal(err)
		}
		if info := s.Info(); info.Records != 51 || info.Refused != 0 || info.Passed != uint64(49+100*round) {
			t.Fatalf("round %d: %+v", round, info)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 2*spare {
		t.Errorf("%v octets, %v", info.Size(), err)
	}
	for i := range 51 {
		if !s.Put(fmt.Appendf(nil, "%01000d", 100+i)) {
			t.Fatalf("no room for the record %d", i)
		}
	}
	if !s.Put(fmt.Appendf(nil, "%0999d+", 0)) || s.Put(make([]byte, 1000)) {
		t.Error("the limit is another")
	}
}

// FuzzSpool opens files of any octets: what is read can be handed out, and what is put then is there at the
// next start.
func FuzzSpool(f *testing.F) {
	whole := appendRecord([]byte(journalMark), spoolKey(7), []byte("a~"))
	whole = appendRecord(whole, spoolKey(7), []byte("a+"))
	whole = appendRecord(whole, spoolKey(1<<64-1), []byte("b"))
	f.Add(whole)
	f.Add(appendRecord(appendRecord(whole, "other", []byte("c")), "", nil))
	f.Add(whole[:len(whole)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "spool")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		of := func(record []byte) (string, bool) {
			return strings.TrimRight(string(record), "+~"), bytes.HasSuffix(record, []byte("~"))
		}
		s, err := OpenSpool(path, 1<<20, of)
		if err != nil {
			return // it is no journal
		}
		before := s.Info().Records
		if !s.Put([]byte("the last one+")) || s.Info().Records != before+1 && s.Info().Passed == 0 {
			t.Fatalf("%d records, then %+v", before, s.Info())
		}
		want := s.Info().Records
		if err := errors.Join(s.Flush(), s.journal.file.Close()); err != nil { // as of a process that is killed
			t.Fatal(err)
		}
		if s, err = OpenSpool(path, 1<<20, of); err != nil || s.Info().Records != want {
			t.Fatalf("%d records are left of %d: %v", s.Info().Records, want, err)
		}
		for n, _, ok := s.Take(); ok; n, _, ok = s.Take() {
			s.Done(n)
		}
		if info := s.Info(); info.Records != 0 || info.Octets != 0 {
			t.Errorf("%+v", info)
		}
		_ = s.journal.file.Close()
	})
}

// TestSpoolDiskFull writes what it could not while the disk was full as soon as there is room again, however much
// that is, and nothing of what was done meanwhile: so a process that is killed then has lost nothing.
func TestSpoolDiskFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s := openSpool(t, path, 64<<20)
	record := func(i int) []byte { return fmt.Appendf(nil, "%01000d", i) }
	const before, meanwhile = 10, 9000
	for i := range before + meanwhile {
		s.Put(record(i))
		if i < before {
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	testutil.FullDisk(t, 1<<20, func() {
		_, numbers := s.take()
		for i, n := range numbers {
			if i%2 == 0 {
				s.Done(n)
			}
			if i%1000 == 0 && s.Flush() == nil {
				t.Error("the disk is not full")
			}
		}
	})
	for range 1 + (meanwhile*1100)/flushBurst {
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.journal.file.Close() // as the kernel does for a process that is killed
	s = openSpool(t, path, 64<<20)
	list, _ := s.take()
	if len(list) != (before+meanwhile)/2 {
		t.Fatalf("%d records are left, want %d", len(list), (before+meanwhile)/2)
	}
	for i, one := range list {
		if one != string(record(2*i+1)) {
			t.Fatalf("record %d is %q", i, one)
		}
	}
}

// TestSpoolDamaged tells how much of a file could not be read, and goes on with what is before that.
func TestSpoolDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s := openSpool(t, path, 100)
	for i := range 3 {
		s.Put([]byte{'a' + byte(i)})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const one = recordHeader + 8 + 1
	text[len(journalMark)+one+recordHeader+8] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openSpool(t, path, 100)
	if info := s.Info(); info != (SpoolInfo{Records: 1, Octets: 1, Cut: 2*one + recordHeader}) { // with the mark of the first process
		t.Errorf("%+v", info)
	}
	s.Put([]byte("d"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s = openSpool(t, path, 100); s.Info() != (SpoolInfo{Records: 2, Octets: 2}) {
		t.Errorf("%+v", s.Info())
	}
}
