// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

func TestExamineFindsRouteInTheWay(t *testing.T) {
	for _, tt := range []struct {
		name   string
		route  string // that someone else has set through the link v6, "" for none
		metric int
		want   string // part of the error, "" for none
	}{
		{name: "no routes"},
		{name: "Teredo route", route: "2001::/32"},
		{name: "default route behind ours", route: "::/0", metric: 4096, want: "a route to ::/0 with metric 4096 exists already, through v6: remove it (ip -6 route del ::/0 dev v6 metric 4096), or set another route_metric"},
		{name: "native default route", route: "::/0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns, far := testutil.NewNetns(t), testutil.NewNetns(t)
			teredotest.Link(t, ns, far, "v6", []string{"2001:db8::1/64"}, "2001:db8::2/64")
			if tt.route != "" {
				teredotest.Route(t, ns, tt.route, "2001:db8::2", tt.metric)
			}
			ns.Do(t, func() error {
				roletest.WantProblem(t, examineRoute(defaults()), tt.want)
				return nil
			})
		})
	}
}
