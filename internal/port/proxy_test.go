// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestRemoveLeftProxies removes what a process left that is gone, and neither what our
// routes still lead to a device nor what is someone else's.
func TestRemoveLeftProxies(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "lan0")
	for _, err := range []error{
		h.AddRoute(Route{Dst: netip.MustParsePrefix("198.51.100.8/30"), Link: "lan0"}),
		h.AddRoute(Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Link: "lan0"}),
		h.AddProxy("lan0", netip.MustParseAddr("198.51.100.9")),
		h.AddProxy("lan0", netip.MustParseAddr("192.0.2.10")),
		h.AddProxy("lan0", netip.MustParseAddr("192.0.2.10")),
		h.AddProxy("lan0", netip.MustParseAddr("2001:db8::a")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	foreign, err := h.proxy("lan0", netip.MustParseAddr("203.0.113.1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.handle.NeighSet(foreign); err != nil {
		t.Fatal(err)
	}
	removed, err := h.RemoveLeftProxies()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(removed)
	if diff := cmp.Diff([]string{"answers for 192.0.2.10 on lan0", "answers for 2001:db8::a on lan0"}, removed); diff != "" {
		t.Error(diff)
	}
	left, err := h.handle.NeighProxyList(foreign.LinkIndex, unix.AF_UNSPEC)
	if err != nil {
		t.Fatal(err)
	}
	words := []string{}
	for _, n := range left {
		words = append(words, n.IP.String())
	}
	slices.Sort(words)
	if diff := cmp.Diff([]string{"198.51.100.9", "203.0.113.1"}, words); diff != "" {
		t.Error(diff)
	}
	if removed, err := h.RemoveLeftProxies(); len(removed) > 0 || err != nil {
		t.Errorf("the second time %v, %v", removed, err)
	}
}
