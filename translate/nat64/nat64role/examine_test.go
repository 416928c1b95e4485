// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

func TestExamineNAT64Broadcast(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	for _, tt := range []struct {
		name, address string
		refused       bool
	}{
		{"a host's address", "192.0.2.70", false},
		{"the network's broadcast address", "192.0.2.255", true},
		{"the network's first address", "192.0.2.0", true},
	} {
		c := testSettings(t)
		c.Pool4 = []PoolRange{{Prefix: netip.PrefixFrom(netip.MustParseAddr(tt.address), 32), Transports: AllTransports, First: 1024, Last: 65535}}
		var err error
		w.Gateway.Do(t, func() error { err = examine(c); return nil })
		if refused := err != nil && strings.Contains(err.Error(), "all hosts of 192.0.2.0/24"); refused != tt.refused {
			t.Errorf("%s: error %v", tt.name, err)
		}
	}
}

// TestPassage: the status and a check know the settings of the host with which no packet
// passes, before a translator is there and while it runs, and that they are mended.
func TestPassage(t *testing.T) {
	w, c := gatewaytest.NewWorld(t), testSettings(t)
	c.Name = "nat64.passage"
	c.FastPath = fastpath.ModeOff // it would switch the device's forwarding on again
	c.Pool4 = []PoolRange{{Prefix: netip.PrefixFrom(gatewaytest.Gateway4, 32), Transports: AllTransports, First: 20000, Last: 29999}}
	conf := func(path, value string) func() error {
		return func() error { return os.WriteFile("/proc/sys/net/"+path, []byte(value), 0) }
	}
	link := func(name string, change func(netlink.Link) error) func() error {
		return func() error {
			l, err := netlink.LinkByName(name)
			return errors.Join(err, change(l))
		}
	}
	rows := []struct {
		name       string
		set, unset func() error
		want       string
		running    bool // it takes the device
		refuses    bool // the kernel says so when it is asked for the way
	}{
		{name: "IPv4 forwarding", set: conf("ipv4/ip_forward", "0"), unset: conf("ipv4/ip_forward", "1"), want: "net.ipv4.ip_forward=1"},
		{name: "IPv4 forwarding of the device", set: conf("ipv4/conf/nat64/forwarding", "0"), unset: conf("ipv4/conf/nat64/forwarding", "1"), want: "net.ipv4.conf.nat64.forwarding=1", running: true, refuses: true},
		{name: "IPv6 forwarding", set: conf("ipv6/conf/all/forwarding", "0"), unset: conf("ipv6/conf/all/forwarding", "1"), want: "net.ipv6.conf.all.forwarding=1"},
		{name: "strict reverse path filter", set: conf("ipv4/conf/all/rp_filter", "1"), unset: conf("ipv4/conf/all/rp_filter", "0"), want: "net.ipv4.conf.all.rp_filter=0", refuses: true},
		{name: "loose reverse path filter", set: conf("ipv4/conf/all/rp_filter", "2"), unset: conf("ipv4/conf/all/rp_filter", "0"), want: "net.ipv4.conf.all.rp_filter=0", refuses: true},
		{name: "reverse path filter of the device", set: conf("ipv4/conf/nat64/rp_filter", "2"), unset: conf("ipv4/conf/nat64/rp_filter", "0"), want: "net.ipv4.conf.nat64.rp_filter=0", running: true, refuses: true},
		{name: "interface down", set: link("v4", netlink.LinkSetDown), unset: link("v4", netlink.LinkSetUp), want: "no route to the IPv4 side: give it one, or bring up what is down (v4)", refuses: true},
		{name: "interface to clients down", set: link("v6", netlink.LinkSetDown), unset: func() error {
			return errors.Join(link("v6", netlink.LinkSetUp)(), gatewaytest.Address("v6", "2001:db8:6::1/64"))
		}, want: "no route to the IPv6 side"},
	}
	examine := func() (p gateway.Passage) {
		w.Gateway.Do(t, func() error { p = passageOf(c); return nil })
		return p
	}
	wants := func(when string, closed []string, want string) {
		t.Helper()
		if got := strings.Join(closed, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: found %q, want %q", when, got, want)
		}
	}
	for _, tt := range rows {
		if !tt.running {
			w.Gateway.Do(t, tt.set)
			wants(tt.name, examine().Closed, tt.want)
			w.Gateway.Do(t, tt.unset)
			w.Gateway.AwaitLinks(t, "v4", "v6")
			wants("without "+tt.name, examine().Closed, "")
		}
	}
	n := start(t, w, c)
	wayOut := func() (err error) {
		w.Gateway.Do(t, func() error {
			_, err = netlink.RouteGetWithOptions(gatewaytest.FourAddr.AsSlice(), &netlink.RouteGetOptions{Iif: c.Interface, SrcAddr: gatewaytest.Gateway4.AsSlice()})
			return nil
		})
		return err
	}
	status := func(when, state, want string) {
		t.Helper()
		wants(when, examine().Closed, want)
		st := n.Status().(Status)
		wants(when+", status", st.Blocked, want)
		if st.State != state {
			t.Errorf("%s: the state is %s, want %s", when, st.State, state)
		}
	}
	newFlow(t, w, 7000).passes(t)
	for _, tt := range rows {
		w.Gateway.Do(t, tt.set)
		status(tt.name, "blocked", tt.want)
		if tt.refuses && wayOut() == nil {
			t.Errorf("%s: the kernel has a way from the translator", tt.name)
		}
		w.Gateway.Do(t, tt.unset)
		w.Gateway.AwaitLinks(t, "v4", "v6")
		status("without "+tt.name, "serving", "")
	}
	newFlow(t, w, 7001).passes(t)
}

// TestPassageOfWellKnownPrefix: where it may carry global addresses alone, a route to
// others is none.
func TestPassageOfWellKnownPrefix(t *testing.T) {
	w, c := gatewaytest.NewWorld(t), testSettings(t)
	for _, tt := range []struct {
		name   string
		change func()
		closed bool
	}{
		{"a prefix of one's own", func() {}, false},
		{"the well-known prefix", func() { c.Pool6 = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")} }, true},
		{"what is not global allowed", func() { c.AllowNonGlobal = true }, false},
		{"a default route", func() {
			c.AllowNonGlobal = false
			w.Gateway.Do(t, func() error { return gatewaytest.DefaultRoute(gatewaytest.FourAddr.String()) })
		}, false},
	} {
		tt.change()
		w.Gateway.Do(t, func() error {
			if got := passageOf(c).Closed; len(got) > 0 != tt.closed {
				t.Errorf("%s: found %q", tt.name, got)
			}
			return nil
		})
	}
}

// TestAdviseOnHost reports interfaces that are not there.
func TestAdviseOnHost(t *testing.T) {
	w, c := gatewaytest.NewWorld(t), testSettings(t)
	c.AnnouncePREF64 = []string{"v6", "nope0"}
	w.Gateway.Do(t, func() error {
		if told := advise(c); len(told) != 1 || !strings.Contains(told[0], "no network interface nope0") {
			t.Errorf("told %q", told)
		}
		return nil
	})
}
