// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestNoNodesOfHost: where user planes may be anywhere, none is at an address of this host or of
// broadcast on its links, also of one that comes while the node runs.
func TestNoNodesOfHost(t *testing.T) {
	c := newCore(t, "", "pool4 = [\"10.45.0.0/16\"]\npool6 = [\"2001:db8:6000::/44\"]\ndirect_tunnel = true")
	p := c.serve(t)
	at := func(user netip.Addr) gtp.Cause {
		m := request(1, sgsnAddr[user.Is6()], gtp.PDPTypeIPv4)
		m.AddressUser = user
		var r gtp.CreateResponse
		c.ask(t, user.Is6(), 0, m, &r)
		return r.Cause
	}
	for _, one := range []string{"192.0.2.0", "192.0.2.255", "2001:db8:9::"} {
		if got := at(netip.MustParseAddr(one)); got != gtp.CauseMandatoryIncorrect {
			t.Errorf("%s: %v", one, got)
		}
	}
	for v6, one := range map[bool]string{false: "192.0.2.9", true: "2001:db8:9::9"} {
		a := netip.MustParseAddr(one)
		if got := at(a); got != gtp.CauseAccepted {
			t.Errorf("%s: %v", a, got)
		}
		c.ns.Do(t, func() error { return address("gn", map[bool]netip.Addr{v6: a}) })
		await(t, func() bool { return at(a) == gtp.CauseMandatoryIncorrect })
	}
	c.manager.End(t, p, syscall.SIGTERM)
}
