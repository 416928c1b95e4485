// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

// TestRenumbered has one advertisement give the host another network, and the prefix of the
// NAT64 in it. No other comes, whoever asks.
func TestRenumbered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.net.Do(t, func() error {
		up0, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr("2001:db8:2::1/64")
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		return netlink.AddrAdd(up0, a)
	})
	w.host.Do(t, func() error { // it has what routers advertise alone
		up0, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr("2001:db8:1::2/64")
		return errors.Join(err, netlink.AddrDel(up0, a))
	})
	c := defaults()
	c.Resolvers = []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::53]:53")} // no one
	var err error
	if w.clat, err = New(c, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	roletest.Start(t, w.host, w.clat)
	w.net.Advertise(t, "up0", testutil.OptionPrefix("2001:db8:1::/64", 7200, 3600))
	w.await(t, waitPrefix)
	option := func(prefix string) []byte {
		b, err := pref64.AppendOption(nil, pref64.Option{Prefix: netip.MustParsePrefix(prefix), Lifetime: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const other = "2001:db8:65::/96"
	w.net.Advertise(t, "up0", testutil.OptionPrefix("2001:db8:1::/64", 7200, 3600), option(other))
	if st := w.await(t, "serving"); !netip.MustParsePrefix("2001:db8:1::/64").Contains(st.Address6) || !slices.Equal(st.Prefixes, []netip.Prefix{netip.MustParsePrefix(other)}) {
		t.Fatalf("status %+v", st)
	}
	w.net.Advertise(t, "up0", testutil.OptionPrefix("2001:db8:1::/64", 7200, 0), testutil.OptionPrefix("2001:db8:2::/64", 7200, 3600), option(pool6.String()))
	second := netip.MustParsePrefix("2001:db8:2::/64")
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		st := w.clat.Status().(Status)
		if st.State == "serving" && second.Contains(st.Address6) && slices.Equal(st.Prefixes, []netip.Prefix{pool6}) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("status %+v", st)
		}
	}
	w.transfer(t, 1<<10)
}
