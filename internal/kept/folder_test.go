// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"
)

// synced replaces syncFolder by what counts, and fails if it shall.
type synced struct {
	folders []string
	fails   error
	during  func()
}

func countSyncs(t *testing.T) *synced {
	t.Helper()
	s, before := &synced{}, syncFolder
	syncFolder = func(path string) error {
		s.folders = append(s.folders, path)
		if s.during != nil {
			s.during()
		}
		return errors.Join(s.fails, before(path))
	}
	t.Cleanup(func() { syncFolder = before })
	return s
}

// TestNameReachesDisk looks when the folder of a journal is synced: once behind its making, and behind each time that it is
// written anew; after an error again. Others put meanwhile.
func TestNameReachesDisk(t *testing.T) {
	s := countSyncs(t)
	folder := t.TempDir()
	j, _ := open(t, filepath.Join(folder, "journal"))
	s.during = func() { j.Put("b", []byte("meanwhile")) }
	value := bytes.Repeat([]byte("value"), maxRecord/20)
	for _, step := range []struct {
		name   string
		values int
		fails  error
		want   int
	}{
		{"made", 1, nil, 1},
		{"grown", 1, nil, 1},
		{"nothing new", 0, nil, 1},
		{"written anew, in vain", 16, errors.New("no disk"), 2},
		{"again", 0, nil, 3},
		{"that was all", 0, nil, 3},
	} {
		for range step.values {
			j.Put("a", value)
		}
		s.fails = step.fails
		if err := errors.Join(j.Flush(), j.Sync()); !errors.Is(err, step.fails) {
			t.Errorf("%s: %v", step.name, err)
		}
		if len(s.folders) != step.want {
			t.Errorf("%s: synced %v", step.name, s.folders)
		}
	}
	if s.folders[0] != folder {
		t.Errorf("synced %v", s.folders)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// TestNameReachesDiskAtEnd has a journal made and closed at once.
func TestNameReachesDiskAtEnd(t *testing.T) {
	s := countSyncs(t)
	j, _ := open(t, filepath.Join(t.TempDir(), "journal"))
	s.fails = errors.New("no disk")
	if err := j.Close(); !errors.Is(err, s.fails) || len(s.folders) != 1 {
		t.Errorf("%v, synced %v", err, s.folders)
	}
}

// TestNameOfSaved makes a file with a counter, which is never lost.
func TestNameOfSaved(t *testing.T) {
	s := countSyncs(t)
	saved, err := OpenSaved(filepath.Join(t.TempDir(), "saved"))
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	if err := saved.Begin(7); err != nil || len(s.folders) != 1 {
		t.Errorf("%v, synced %v", err, s.folders)
	}
}
