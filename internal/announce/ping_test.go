// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestPing(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	for _, tt := range []struct {
		to, problem string
		wait        time.Duration
	}{
		{"127.0.0.1", "", testutil.Patience},
		{"::1", "", testutil.Patience},
		// The kernel refuses at once, if the machine lets anybody ask in that time.
		{"192.0.2.1", "192.0.2.1 cannot be reached: ", 3 * time.Second},
		{"2001:db8::1", "2001:db8::1 cannot be reached: ", 3 * time.Second},
	} {
		t.Run(tt.to, func(t *testing.T) {
			t.Parallel()
			ns.Do(t, func() error {
				ctx, cancel := context.WithTimeout(t.Context(), tt.wait)
				defer cancel()
				err := ping(ctx, netip.MustParseAddr(tt.to))
				if (err == nil) != (tt.problem == "") || err != nil && !strings.HasPrefix(err.Error(), tt.problem) {
					t.Errorf("error %v, want %q", err, tt.problem)
				}
				return nil
			})
		})
	}
}

// TestPingInVain sends to an address on a link where nobody answers.
func TestPingInVain(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near"}, PeerName: "far"}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		addr, err := netlink.ParseAddr("192.0.2.2/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := ping(ctx, netip.MustParseAddr("192.0.2.1")); err == nil || err.Error() != "192.0.2.1 does not answer" {
			t.Errorf("error %v", err)
		}
		return nil
	})
}

// TestSignsOfAnEarlierProcess has a process end without a word, and a successor
// that announces less.
func TestSignsOfAnEarlierProcess(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		relay, server := netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("192.0.2.1/32")
		first, err := openSigns(config.DefaultAnnounce())
		if err != nil {
			return err
		}
		if err := first.Announce(relay, server); err != nil {
			return err
		}
		if err := first.Close(true); err != nil {
			return err
		}
		count := func(want int) {
			t.Helper()
			routes, err := testutil.Whole(func() ([]netlink.Route, error) {
				return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: 119}, netlink.RT_FILTER_TABLE)
			})
			if err != nil || len(routes) != want {
				t.Errorf("%d routes, %v; want %d", len(routes), err, want)
			}
		}
		count(2)
		second, err := openSigns(config.DefaultAnnounce())
		if err != nil {
			return err
		}
		if err := second.Announce(relay); err != nil {
			return err
		}
		count(2)
		if err := second.Meet(); err != nil {
			return err
		}
		count(1)
		if err := second.Close(false); err != nil {
			return err
		}
		count(0)
		return nil
	})
}
