// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

// TestPassageCarrier: routes by interfaces without a carrier lead nowhere.
func TestPassageCarrier(t *testing.T) {
	w, c := gatewaytest.NewWorld(t), defaults()
	w.Four.Do(t, func() error {
		l, err := netlink.LinkByName("v4")
		return errors.Join(err, netlink.LinkSetDown(l))
	})
	w.Gateway.Do(t, func() error {
		for deadline := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) { // the far end hears of it later
			got := passageOf(c).Closed
			if len(got) == 1 && strings.Contains(got[0], "the IPv4 side is down (v4)") {
				return nil
			}
			if time.Now().After(deadline) {
				t.Fatalf("found %q", got)
			}
		}
	})
}

// TestAdviseOnHost reports the host's own addresses where they are to be translated.
func TestAdviseOnHost(t *testing.T) {
	w, c := gatewaytest.NewWorld(t), defaults()
	c.Pool6 = []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")}
	c.Pool4 = []netip.Prefix{netip.MustParsePrefix("192.0.2.64/32")}
	w.Gateway.Do(t, func() error {
		if told := advise(c); len(told) != 0 {
			t.Errorf("told %q", told)
		}
		c.Pool4 = append(c.Pool4, netip.PrefixFrom(gatewaytest.Gateway4, 32))
		if told := advise(c); len(told) != 1 || !strings.Contains(told[0], "192.0.2.1 is an address of this host") {
			t.Errorf("told %q", told)
		}
		return nil
	})
}
