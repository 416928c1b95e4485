// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// open opens a journal and says what is in it.
func open(t *testing.T, path string) (j *Journal, text string) {
	t.Helper()
	j, records, err := OpenJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, key := range slices.Sorted(maps.Keys(records)) {
		words = append(words, fmt.Sprintf("%s=%s", key, records[key]))
	}
	return j, strings.Join(words, " ")
}

// kill lets go of a journal as the end of a process does.
func kill(j *Journal) { _ = j.file.Close() }

// TestJournal goes on from what a process has left, be it killed or not.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "below", "journal")
	j, text := open(t, path)
	if text != "" || !j.Fresh || j.Clean {
		t.Errorf("a new one has %q, %t, %t", text, j.Fresh, j.Clean)
	}
	if _, _, err := OpenJournal(path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second process: %v", err)
	}
	j.Put("a", []byte("1"))
	j.Put("b", []byte("2"))
	j.Put("empty", []byte{})
	if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
	j.Put("a", []byte("3"))
	j.Put("b", nil)
	if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
	j.Put("c", []byte("not flushed"))
	kill(j)

	j, text = open(t, path)
	if text != "a=3 empty=" || j.Fresh || j.Clean {
		t.Errorf("after a kill: %q, fresh %t, clean %t", text, j.Fresh, j.Clean)
	}
	j.Put("d", []byte("4"))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, text = open(t, path)
	if text != "a=3 d=4 empty=" || !j.Clean {
		t.Errorf("after an end: %q, clean %t", text, j.Clean)
	}
	kill(j)
	if j, text = open(t, path); j.Clean {
		t.Errorf("%q is clean, though the second process was killed", text)
	}
	kill(j)
}

// TestJournalDamage takes what is before the damage.
func TestJournalDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := open(t, path)
	for i := range 3 {
		j.Put(fmt.Sprint(i), []byte("value"))
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := len(journalMark); n < len(whole); n++ {
		for name, text := range map[string][]byte{"cut": whole[:n], "altered": slices.Concat(whole[:n], []byte{whole[n] ^ 1}, whole[n+1:])} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			j, got := open(t, path)
			if want := "0=value 1=value 2=value"; !strings.HasPrefix(want, got) || j.Clean {
				t.Fatalf("%s at %d: %q, clean %t", name, n, got, j.Clean)
			}
			j.Put("3", []byte("more"))
			_ = j.Flush()
			kill(j)
			j, more := open(t, path)
			if more != strings.TrimSpace(got+" 3=more") {
				t.Fatalf("%s at %d, and gone on: %q", name, n, more)
			}
			kill(j)
		}
	}
	if err := os.WriteFile(path, []byte("something else altogether"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenJournal(path); err == nil || !strings.Contains(err.Error(), "no state of isthmus") {
		t.Errorf("another file: %v", err)
	}
}

// TestJournalIsWrittenAnew has a journal no larger than some times what is in it, and loses nothing
// that is put meanwhile.
func TestJournalIsWrittenAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := open(t, path)
	value := bytes.Repeat([]byte{'x'}, 1000)
	for i := range 10_000 {
		j.Put(fmt.Sprint(i%10), append(value, fmt.Sprint(i)...))
		if err := j.Flush(); err != nil {
			t.Fatal(err)
		}
		if i%500 != 0 {
			continue
		}
		if err := j.Sync(); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() > 3*spare {
			t.Fatalf("%d octets, %v", info.Size(), err)
		}
	}
	if _, _, err := OpenJournal(path); err == nil {
		t.Error("the new file is not locked")
	}
	kill(j)
	j, text := open(t, path)
	for i := 9990; i < 10_000; i++ {
		if !strings.Contains(text, string(value)+fmt.Sprint(i)) {
			t.Errorf("%d is lost", i)
		}
	}
	kill(j)
}

// TestJournalOfManyProcesses is written anew also when none of its processes lives long enough to double it.
func TestJournalOfManyProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	value := bytes.Repeat([]byte{'x'}, spare/2)
	for i := range 20 {
		j, _ := open(t, path)
		j.Put("a", append(value, fmt.Sprint(i)...))
		if err := errors.Join(j.Flush(), j.Sync()); err != nil {
			t.Fatal(err)
		}
		kill(j)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 3*spare {
		t.Errorf("%d octets, %v", info.Size(), err)
	}
	if _, text := open(t, path); text != fmt.Sprintf("a=%s19", value) {
		t.Errorf("%d octets are in it", len(text))
	}
}

// TestJournalMark: that a process has closed it is on disk no more when the next one begins, nor is it noted by one
// that could not write all, so that what may be missing is not taken for whole.
func TestJournalMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := open(t, path)
	j.Put("a", []byte("1"))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if j, _ = open(t, path); !j.Clean || j.synced != j.size {
		t.Errorf("clean %t, %d octets are on disk of %d", j.Clean, j.synced, j.size)
	}
	testutil.FullDisk(t, 100<<10, func() {
		j.Put("b", bytes.Repeat([]byte{'x'}, maxRecord))
		if j.Flush() == nil {
			t.Error("the disk is not full")
		}
	})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if j, text := open(t, path); text != "a=1" || j.Clean {
		t.Errorf("%q, clean %t, though something is missing", text, j.Clean)
	}
}
