// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestExamineFindsRoutesInTheWay(t *testing.T) {
	for _, tt := range []struct {
		name   string
		route  string // that somebody else has set through the link v6, "" for none
		metric int
		change func(*RelaySettings, *ClientSettings)
		relay  string // part of the error, "" for none
		client string
	}{
		{name: "no routes"},
		{name: "Teredo route", route: "2001::/32", relay: "a route to 2001::/32 with metric 1024 exists already, through v6: remove it (ip -6 route del 2001::/32 dev v6 metric 1024), or set route = false"},
		{name: "Teredo route behind ours", route: "2001::/32", metric: 2000},
		{name: "relay that sets no route", route: "2001::/32", change: func(r *RelaySettings, _ *ClientSettings) { r.Route = false }},
		{name: "default route behind ours", route: "::/0", metric: 4096, client: "a route to ::/0 with metric 4096 exists already, through v6: remove it (ip -6 route del ::/0 dev v6 metric 4096), or set another route_metric"},
		{name: "native default route", route: "::/0"},
		{name: "route through a device made beforehand", route: "2001::/32", change: func(r *RelaySettings, _ *ClientSettings) { r.Interface = "v6" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns, far := testutil.NewNetns(t), testutil.NewNetns(t)
			serverLink(t, ns, far, "v6", []string{"2001:db8::1/64"}, "2001:db8::2/64")
			relay, client := defaultRelay(), defaultClient()
			if tt.change != nil {
				tt.change(&relay, &client)
			}
			ns.Do(t, func() error {
				if tt.route != "" {
					link, err := netlink.LinkByName("v6")
					if err != nil {
						return err
					}
					dst := netip.MustParsePrefix(tt.route)
					route := &netlink.Route{LinkIndex: link.Attrs().Index, Priority: tt.metric, Gw: netip.MustParseAddr("2001:db8::2").AsSlice()}
					if route.Dst, err = netlink.ParseIPNet(dst.String()); err != nil {
						return err
					}
					if err := netlink.RouteAdd(route); err != nil {
						return err
					}
				}
				wantError(t, "relay", ExamineRelay(relay), tt.relay)
				wantError(t, "client", ExamineClient(client), tt.client)
				return nil
			})
		})
	}
}

// wantError looks for a text in an error; "" is no error.
func wantError(t *testing.T, what string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: error %v", what, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: error %v, want %q", what, err, want)
	}
}
