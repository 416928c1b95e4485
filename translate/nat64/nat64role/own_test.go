// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

// TestDeprecatedOwnAddress: errors come from a deprecated address where there is no other (RFC
// 4862 section 5.5.4).
func TestDeprecatedOwnAddress(t *testing.T) {
	w, c := gatewaytest.NewWorld(t), testSettings(t)
	link := func(change func(l netlink.Link) error) {
		w.Gateway.Do(t, func() error {
			l, err := netlink.LinkByName("v6")
			return errors.Join(err, change(l))
		})
	}
	link(func(l netlink.Link) error {
		a, err := netlink.ParseAddr("2001:db8:6::1/64")
		if err != nil {
			return err
		}
		a.Flags, a.ValidLft = unix.IFA_F_NODAD, 7200 // and preferred for 0 s
		return netlink.AddrReplace(l, a)
	})
	n := start(t, w, c)
	await := func(want string) {
		t.Helper()
		for end := time.Now().Add(testutil.Patience); ; time.Sleep(10 * time.Millisecond) {
			got := n.Status().(Status).Address6
			if got == netip.MustParseAddr(want) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("errors come from %s, want %s", got, want)
			}
		}
	}
	await("2001:db8:6::1")
	link(func(l netlink.Link) error { return gatewaytest.Address("v6", "2001:db8:6::9/64") })
	await("2001:db8:6::9")
}
