// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestEgress(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		h, err := OpenHost()
		if err != nil {
			return err
		}
		defer h.Close()
		tun, err := OpenTUN(TUNConfig{Name: "out"})
		if err != nil {
			return err
		}
		defer tun.Close()
		far := netip.MustParseAddr("203.0.113.1")
		if e, err := h.Egress(far); err == nil {
			t.Errorf("without any route: %+v", e)
		}
		if err := h.SetUp("out"); err != nil {
			return err
		}
		if err := h.AddAddr("out", netip.MustParsePrefix("192.0.2.2/24")); err != nil {
			return err
		}
		gateway := netip.MustParseAddr("192.0.2.1")
		if err := h.AddRoute(Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Link: "out", Gateway: gateway}); err != nil {
			return err
		}
		got, err := h.Egress(far)
		if want := (Egress{netip.MustParseAddr("192.0.2.2"), tun.Index(), gateway}); got != want || err != nil {
			t.Errorf("through the gateway: %+v, %v, want %+v", got, err, want)
		}
		got, err = h.Egress(gateway)
		if want := (Egress{Source: netip.MustParseAddr("192.0.2.2"), Link: tun.Index()}); got != want || err != nil {
			t.Errorf("on the link: %+v, %v, want %+v", got, err, want)
		}
		return nil
	})
}
