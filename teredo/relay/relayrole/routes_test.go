// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

func TestExamineFindsRoutesInTheWay(t *testing.T) {
	for _, tt := range []struct {
		name   string
		route  string // that someone else has set through the link v6, "" for none
		metric int
		change func(*Settings)
		want   string // part of the error, "" for none
	}{
		{name: "no routes"},
		{name: "Teredo route", route: "2001::/32", want: "a route to 2001::/32 with metric 1024 exists already, through v6: remove it (ip -6 route del 2001::/32 dev v6 metric 1024), or set route = false"},
		{name: "Teredo route behind ours", route: "2001::/32", metric: 2000},
		{name: "relay that sets no route", route: "2001::/32", change: func(r *Settings) { r.Route = false }},
		{name: "default route", route: "::/0"},
		{name: "route through a device made beforehand", route: "2001::/32", change: func(r *Settings) { r.Interface = "v6" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns, far := testutil.NewNetns(t), testutil.NewNetns(t)
			teredotest.Link(t, ns, far, "v6", []string{"2001:db8::1/64"}, "2001:db8::2/64")
			relay := defaults()
			if tt.change != nil {
				tt.change(&relay)
			}
			if tt.route != "" {
				teredotest.Route(t, ns, tt.route, "2001:db8::2", tt.metric)
			}
			ns.Do(t, func() error {
				roletest.WantProblem(t, examineRoutes(relay), tt.want)
				return nil
			})
		})
	}
}
