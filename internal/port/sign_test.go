// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestSigns(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		signs, err := OpenSigns(119, 120)
		if err != nil {
			return err
		}
		defer signs.Close()
		if err := foreignRoute(119, 7); err != nil {
			return err
		}
		relay, server := netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("192.0.2.1/32")
		other := "2001:db8::/32 protocol 7"
		ours := func(p netip.Prefix) string { return p.String() + " protocol 120" }
		for _, step := range []struct {
			name string
			do   func() error
			want []string
		}{
			{"set two", func() error { return signs.Set(relay, server) }, []string{ours(server), ours(relay), other}},
			{"set again", func() error { return signs.Set(relay) }, []string{ours(server), ours(relay), other}},
			{"remove one", func() error { return signs.Remove(server) }, []string{ours(relay), other}},
			{"remove it again", func() error { return signs.Remove(server) }, []string{ours(relay), other}},
			{"keep what is set", func() error { return signs.Keep(relay) }, []string{ours(relay), other}},
			{"keep nothing", func() error { return signs.Keep() }, []string{other}},
		} {
			if err := step.do(); err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
			got, err := tableOf(119)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(step.want, got); diff != "" {
				t.Errorf("%s: table (-want +got):\n%s", step.name, diff)
			}
		}
		return nil
	})
}

// foreignRoute is what someone else has in the table.
func foreignRoute(table int, protocol netlink.RouteProtocol) error {
	return netlink.RouteAdd(&netlink.Route{
		Dst: ipNet(netip.MustParsePrefix("2001:db8::/32")), Table: table, Protocol: protocol, Type: unix.RTN_UNREACHABLE,
	})
}

// tableOf lists the routes of a table, in order.
func tableOf(table int) ([]string, error) {
	var list []string
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := testutil.Whole(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			if r.Type != unix.RTN_UNREACHABLE {
				return nil, fmt.Errorf("%v is of type %d", r, r.Type)
			}
			list = append(list, fmt.Sprintf("%v protocol %d", r.Dst, int(r.Protocol)))
		}
	}
	slices.Sort(list)
	return list, nil
}
