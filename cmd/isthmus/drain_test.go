// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/role"
)

func TestDrain(t *testing.T) {
	socket := serveTold(t)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"drain"}, "withdrawn, and serving on: border\n"},
		{[]string{"drain", "border"}, "withdrawn, and serving on: border\n"},
		{[]string{"undrain", "border"}, "announced while healthy: border\n"},
		{[]string{"drain", "--json"}, "{\"instances\":[\"border\"]}\n"},
	} {
		status, out, errs := call(append(tt.args, "--socket", socket)...)
		if status != 0 || out != tt.want {
			t.Errorf("%v: %d: %s%s", tt.args, status, out, errs)
		}
	}
	if status, _, errs := call("drain", "home", "--socket", socket); status != 1 || !strings.Contains(errs, `nothing is announced for "home"`) {
		t.Errorf("%d: %s", status, errs)
	}
}

func TestAnnouncementRows(t *testing.T) {
	now := time.Unix(1000, 0)
	prefixes := []netip.Prefix{netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("2001:db8::/32")}
	for _, tt := range []struct {
		name string
		a    *role.Announcement
		want []row
	}{
		{"none", nil, nil},
		{"announced", &role.Announcement{State: "announced", Since: now.Add(-time.Minute), Prefixes: prefixes},
			[]row{{"announced", "2001::/32, 2001:db8::/32, since 1m0s ago"}}},
		{"failed", &role.Announcement{State: "check_failed", Problem: "2001:db8::1 does not answer", Prefixes: prefixes[:1]},
			[]row{{"announced", "no: check failed: 2001:db8::1 does not answer (2001::/32)"}}},
		{"drained", &role.Announcement{State: "drained", Prefixes: prefixes[:1]}, []row{{"announced", "no: drained (2001::/32)"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, announcementRows(tt.a, now), cmp.AllowUnexported(row{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNeighborTable(t *testing.T) {
	now := time.Unix(1000, 0)
	var b strings.Builder
	err := printNeighbors(&b, control.Status{Neighbors: []role.Neighbor{
		{Address: netip.MustParseAddr("2001:db8::1"), AS: 64513, State: "established", Since: now.Add(-time.Second)},
		{Address: netip.MustParseAddr("192.0.2.1"), AS: 64514, State: "active"},
	}}, now)
	want := `
neighbors:
  address      AS     session      since
  2001:db8::1  64513  established  1s ago
  192.0.2.1    64514  active       never
`
	if diff := cmp.Diff(want, b.String()); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
