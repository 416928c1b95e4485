// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pinned

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestNoteIsAlwaysThere replaces a note beside one who reads it: who is killed at any moment
// leaves the one or the other. What does not change is not written.
func TestNoteIsAlwaysThere(t *testing.T) {
	p, err := OpenAt(fastpathtest.MountBPFFS(t), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.SetNote("pool6", "0"); err != nil {
		t.Fatal(err)
	}
	before, err := os.Lstat(p.Path("pool6"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SetNote("pool6", "0"); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Lstat(p.Path("pool6")); err != nil || !os.SameFile(before, after) {
		t.Errorf("an unchanged note was written again: %v", err)
	}
	done := make(chan error)
	go func() {
		for i := range 5000 {
			if err := p.SetNote("pool6", strconv.Itoa(i%2)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for running, missed := true, false; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
			if p.Note("pool6") == "" && !missed {
				t.Error("there was a moment without a note")
				missed = true
			}
		}
	}
	if names, err := p.Names(); err != nil || !slices.Equal(names, []string{"pool6"}) {
		t.Errorf("the names are %v, %v", names, err)
	}
}

func pinMap(t *testing.T, path string) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.Pin(path); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPinsOfNamespacesAreApart(t *testing.T) {
	root := fastpathtest.MountBPFFS(t)
	var dirs []string
	for range 2 {
		testutil.NewNetns(t).Do(t, func() error {
			p, err := OpenAt(root, "test")
			if err == nil {
				t.Cleanup(func() { p.Close() })
				dirs = append(dirs, p.Dir())
			}
			return err
		})
	}
	if dirs[0] == dirs[1] {
		t.Errorf("two namespaces share %s", dirs[0])
	}
	here, err := OpenAt(root, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	found, err := LeftoversAt(root)
	if err != nil || len(found) != 3 {
		t.Fatalf("found %+v and %v", found, err)
	}
	for _, l := range found {
		if l.Elsewhere() == (l.Dir == here.Dir()) {
			t.Errorf("%s is elsewhere: %t", l.Dir, l.Elsewhere())
		}
	}
}

// The last instance takes the folder of all with it, also while others come and go.
func TestPinsLeaveNoFolder(t *testing.T) {
	root := fastpathtest.MountBPFFS(t)
	base := filepath.Join(root, pinsFolder)
	first, err := OpenAt(root, "first")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	for i := range 4 {
		go func() {
			for range 50 {
				p, err := OpenAt(root, fmt.Sprint("other", i))
				if err == nil {
					err = p.Remove()
				}
				if err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	err = first.Remove()
	for range 4 {
		err = errors.Join(err, <-ended)
	}
	if err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(base); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left with %v, %v", left, err)
	}
	kept, err := OpenAt(root, "kept")
	if err != nil {
		t.Fatal(err)
	}
	other, err := OpenAt(root, "other")
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(kept.Close(), other.Remove())
	left, err2 := LeftoversAt(root)
	if err := errors.Join(err, err2); err != nil || len(left) != 1 {
		t.Fatalf("left: %v, %v", left, err)
	}
	if err := left[0].Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(base); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a cleaning leaves the folder: %v", err)
	}
}

func TestPinsRefuse(t *testing.T) {
	root := fastpathtest.MountBPFFS(t)
	for _, row := range []struct {
		name, root, instance string
		want                 string
	}{
		{"plain folder", t.TempDir(), "test", "mount -t bpf"},
		{"missing folder", "/nonexistent", "test", "not a BPF file system"},
		{"name with a dot", root, "a.b", "leave out dots"},
		{"name that climbs", root, "../x", "leave out dots"},
		{"empty name", root, "", "cannot name a folder"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := OpenAt(row.root, row.instance)
			fastpathtest.WantWords(t, err, row.want)
		})
	}
}

func TestLeftovers(t *testing.T) {
	root := fastpathtest.MountBPFFS(t)
	if found, err := LeftoversAt(root); err != nil || len(found) != 0 {
		t.Fatalf("an empty file system has %v and %v", found, err)
	}
	pid, die := holdElsewhere(t, root)
	dead, err := OpenAt(root, "dead")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	found, err := LeftoversAt(root)
	if err != nil || len(found) != 2 {
		t.Fatalf("found %+v and %v, want 2", found, err)
	}
	for _, l := range found {
		if held := l.Instance == "test"; l.Held != held || held && l.PID != pid {
			t.Errorf("%+v: want held %t, by %d", l, held, pid)
		}
		err := l.Remove()
		if l.Held != errors.Is(err, ErrHeld) {
			t.Errorf("removing %s: %v", l.Instance, err)
		}
	}
	die()
	found, err = LeftoversAt(root)
	if err != nil || len(found) != 1 || found[0].Held {
		t.Errorf("found %+v and %v, want the one of the dead process", found, err)
	}
}

// TestSweepOfDeadNamespaces shows which folders an instance removes that starts
// beside them.
func TestSweepOfDeadNamespaces(t *testing.T) {
	root := fastpathtest.MountBPFFS(t)
	base := filepath.Join(root, pinsFolder)
	old := time.Now().Add(-2 * sweepAfter)
	for _, row := range []struct {
		name string
		age  time.Time
		note string
		stay bool
	}{
		{"dead@900001", old, "", false},
		{"young@900002", time.Now(), "", true},
		{"held@900003", old, "", true},
		{"filters@900004", old, noteOf(Spot{PlaceIngress, 7}), true},
		{"plain", old, "", true},
	} {
		dir := filepath.Join(base, row.name)
		if err := os.MkdirAll(filepath.Join(dir, linksFolder), pinsMode); err != nil {
			t.Fatal(err)
		}
		if row.note != "" {
			if err := os.Symlink(foundQdisc+"test", filepath.Join(dir, row.note)); err != nil {
				t.Fatal(err)
			}
		}
		if strings.HasPrefix(row.name, "held") {
			f, err := openLocked(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
		}
		if err := os.Chtimes(dir, row.age, row.age); err != nil {
			t.Fatal(err)
		}
		sweep(base)
		_, err := os.Stat(dir)
		if stays := err == nil; stays != row.stay {
			t.Errorf("%s stays: %t, want %t", row.name, stays, row.stay)
		}
	}
}

// TestSweepLeavesThisNamespace opens an instance, and one beside it, long after anything was pinned:
// what the instance has kept is there, also where no link is beside it.
func TestSweepLeavesThisNamespace(t *testing.T) {
	root := fastpathtest.MountBPFFS(t)
	p, err := OpenAt(root, "test")
	if err != nil {
		t.Fatal(err)
	}
	pinMap(t, p.Path("sessions"))
	p.Close()
	old := time.Now().Add(-2 * sweepAfter)
	for _, instance := range []string{"test", "other"} {
		if err := os.Chtimes(p.Dir(), old, old); err != nil {
			t.Fatal(err)
		}
		opened, err := OpenAt(root, instance)
		if err != nil {
			t.Fatal(err)
		}
		opened.Close()
		if _, err := os.Stat(p.Path("sessions")); err != nil {
			t.Errorf("opening %s took what is kept: %v", instance, err)
		}
	}
}

// TestTimeOfFolder counts the age of what is kept from when it was last held.
func TestTimeOfFolder(t *testing.T) {
	root := fastpathtest.MountBPFFS(t)
	p, err := OpenAt(root, "test")
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * sweepAfter)
	for what, hold := range map[string]func(){"held": p.Touch, "closed": func() { p.Close() }} {
		if err := os.Chtimes(p.Dir(), old, old); err != nil {
			t.Fatal(err)
		}
		if hold(); abandoned(p.Dir()) {
			t.Errorf("a folder that was just %s is abandoned", what)
		}
	}
}
