// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package announce

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// written is the section with these lines.
func written(t *testing.T, lines string) config.Announce {
	t.Helper()
	c, err := config.Parse(strings.NewReader("[announce]\nmethod = \"route\"\n"+lines), "isthmus.toml")
	if err != nil {
		t.Fatal(err)
	}
	return c.Announce
}

// TestKeysInTime sees when an instance is announced that is ready at once, fails at 0.6 s,
// works again at 3.6 s, and is stopped at 12 s.
func TestKeysInTime(t *testing.T) {
	for _, tt := range []struct {
		key, lines, problem string
		want                string // withdrawn, announced again, closed
	}{
		{"none", "", "no answer", "3s 8s 14.5s"},
		{configtest.InEffect(t, "announce", "check_interval"), `check_interval = "500ms"`, "no answer", "2s 7s 14.5s"},
		{configtest.InEffect(t, "announce", "check_timeout"), `check_timeout = "200ms"`, "hangs", "3.2s 8.2s 14.5s"},
		{configtest.InEffect(t, "announce", "fall"), `fall = 2`, "no answer", "2s 7s 14.5s"},
		{configtest.InEffect(t, "announce", "rise"), `rise = 7`, "no answer", "3s 10s 14.5s"},
		{configtest.InEffect(t, "announce", "hold_down"), `hold_down = "4s"`, "no answer", "3s 7s 14.5s"},
		{configtest.InEffect(t, "announce", "drain_time"), `drain_time = "1s"`, "no answer", "3s 8s 13s"},
	} {
		t.Run(tt.key, func(t *testing.T) {
			i := newInstance("north", "2001::/32")
			events := play(t, written(t, tt.lines), nil, func(*Announcer) {
				close(i.ready)
				time.Sleep(600 * time.Millisecond)
				i.fail(tt.problem)
				time.Sleep(3 * time.Second)
				i.mend()
				time.Sleep(8400 * time.Millisecond)
			}, i)
			times := strings.Fields(tt.want)
			want(t, events, "0s announce [2001::/32]", "0s meet",
				times[0]+" withdraw [2001::/32]", times[1]+" announce [2001::/32]",
				"12s withdraw [2001::/32]", times[2]+" close, leave false")
		})
	}
}

// TestKeysOfRoutes sees the routes of the kernel.
func TestKeysOfRoutes(t *testing.T) {
	configtest.InEffect(t, "announce", "method", "table", "protocol")
	ns := testutil.NewNetns(t)
	folder = t.TempDir()
	ns.Do(t, func() error {
		s, err := open(written(t, "table = 77\nprotocol = 88"), "", slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		defer s.Close(false)
		if err := s.Announce(netip.MustParsePrefix("2001::/32")); err != nil {
			return err
		}
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: 77}, netlink.RT_FILTER_TABLE)
		if err == nil && (len(routes) != 1 || routes[0].Protocol != 88 || routes[0].Dst.String() != "2001::/32") {
			t.Errorf("in table 77 there is %v", routes)
		}
		return err
	})
}
