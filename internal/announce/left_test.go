// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package announce

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestLeftRoutes leaves a route to a successor, as who is killed does, and looks whether it stays when another process
// starts, or cleans.
func TestLeftRoutes(t *testing.T) {
	ns := testutil.NewNetns(t)
	folder = t.TempDir()
	quiet := slog.New(slog.DiscardHandler)
	cfg := written(t, "table = 77\nprotocol = 88")
	other := cfg
	other.Table = 78
	byBGP := cfg
	byBGP.Method = config.AnnounceBGP
	const owner = "/etc/isthmus/isthmus.toml"
	for _, tt := range []struct {
		name string
		next func() error
		want int // routes
	}{
		{"nothing is announced", func() error { RemoveLeft(nil, owner, quiet); return nil }, 0},
		{"another configuration", func() error { RemoveLeft(nil, "/etc/isthmus/other.toml", quiet); return nil }, 1},
		{"no configuration", func() error { RemoveLeft(nil, "", quiet); return nil }, 1},
		{"by another table", func() error { RemoveLeft(&Announcer{cfg: other}, owner, quiet); return nil }, 0},
		{"by BGP", func() error { RemoveLeft(&Announcer{cfg: byBGP}, owner, quiet); return nil }, 0},
		{"by the same table", func() error { RemoveLeft(&Announcer{cfg: cfg}, owner, quiet); return nil }, 1},
		{"cleaned", func() error {
			cleaned, err := Clean()
			if len(cleaned.Removed) != 1 || len(cleaned.InUse) != 0 {
				t.Errorf("cleaned %v", cleaned)
			}
			return err
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns.Do(t, func() error {
				s, err := openSigns(cfg, owner, quiet)
				if err != nil {
					return err
				}
				if err := s.Announce(netip.MustParsePrefix("2001::/32")); err != nil {
					return err
				}
				if cleaned, err := Clean(); err != nil || len(cleaned.Removed) != 0 || len(cleaned.InUse) != 1 || count(t) != 1 {
					t.Errorf("while it lives: %v, %v, %d routes", cleaned, err, count(t))
				}
				if err := s.Close(true); err != nil {
					return err
				}
				if count(t) != 1 {
					t.Error("it left no route")
				}
				if err := tt.next(); err != nil {
					return err
				}
				if n := count(t); n != tt.want {
					t.Errorf("there are %d routes, want %d", n, tt.want)
				}
				return nil
			})
		})
	}
	ns.Do(t, func() error {
		s, err := openSigns(cfg, owner, quiet)
		if err != nil {
			return err
		}
		return s.Close(false)
	})
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("%v, %v in the folder", err, left)
	}
}

// count is how many routes the table has.
func count(t *testing.T) int {
	t.Helper()
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: 77}, netlink.RT_FILTER_TABLE)
	if err != nil {
		t.Error(err)
	}
	return len(routes)
}

// TestNoteReplaced has another process hold, and then remove, the note that one begins with: the latter has one in the end.
func TestNoteReplaced(t *testing.T) {
	folder = t.TempDir()
	usual := noteTime
	defer func() { noteTime = usual }()
	noteTime *= 20
	before, err := noteRoutes(77, 88, "before")
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		note *os.File
		err  error
	}
	done := make(chan result)
	go func() {
		note, err := noteRoutes(77, 88, "behind")
		done <- result{note, err}
	}()
	time.Sleep(usual / 10) // it has the old one open, or opens it still
	if err := os.Remove(before.Name()); err != nil {
		t.Error(err)
	}
	if err := before.Close(); err != nil {
		t.Error(err)
	}
	got := <-done
	if got.err != nil {
		t.Fatal(got.err)
	}
	defer got.note.Close()
	if text, err := os.ReadFile(before.Name()); err != nil || string(text) != "behind" {
		t.Errorf("there is %q, %v", text, err)
	}
}

// TestNoteGone locks a note that was removed between opening and locking: by clean, or a predecessor.
func TestNoteGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "note")
	file, err := lockNote(path, os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := lockNote(path, 0); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("while it is locked: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := lockOpen(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("when it is gone: %v", err)
	}
}

// TestOwnNoteInReload has a reload come at the start, which the race detector sees.
func TestOwnNoteInReload(t *testing.T) {
	cfg := written(t, "table = 77\nprotocol = 88")
	a := New(cfg, "", []role.Instance{newInstance("north", "2001::/32")}, slog.New(slog.DiscardHandler))
	done := make(chan error)
	go func() {
		_, err := a.Reload(cfg)
		done <- err
	}()
	if note := a.ownNote(); !strings.HasSuffix(note, ".77.88") {
		t.Errorf("its note is %s", note)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
