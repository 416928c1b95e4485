// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package announce

import (
	"log/slog"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/config"
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
	for _, tt := range []struct {
		name string
		next func() error
		want int // routes
	}{
		{"nothing is announced", func() error { RemoveLeft(nil, quiet); return nil }, 0},
		{"by another table", func() error { RemoveLeft(&Announcer{cfg: other}, quiet); return nil }, 0},
		{"by BGP", func() error { RemoveLeft(&Announcer{cfg: byBGP}, quiet); return nil }, 0},
		{"by the same table", func() error { RemoveLeft(&Announcer{cfg: cfg}, quiet); return nil }, 1},
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
				s, err := openSigns(cfg, quiet)
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
		s, err := openSigns(cfg, quiet)
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
