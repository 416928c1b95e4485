// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestVRFHasItsOwnTable: by a table of two nothing is apart.
func TestVRFHasItsOwnTable(t *testing.T) {
	vrf := func(index int, name string, table uint32) *netlink.Vrf {
		return &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Index: index, Name: name}, Table: table}
	}
	red, blue, host := vrf(3, "red", 100), vrf(4, "blue", 101), vrf(6, "host", unix.RT_TABLE_MAIN)
	all := []netlink.Link{&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 2, Name: "eth0"}}, red, blue, vrf(5, "green", 100), host}
	for v, want := range map[*netlink.Vrf]string{blue: "", red: "has table 100, as green does", host: "has table 254, by which this host routes outside"} {
		if err := ownTable(v, all); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", v.Name, err, want)
		}
	}
}

// TestLocalFirst: the kernel begins with rules that find this host before a VRF.
func TestLocalFirst(t *testing.T) {
	h := inNamespace(t)
	last := func(family int) {
		first, last := netlink.NewRule(), netlink.NewRule()
		first.Family, first.Table, first.Priority = family, unix.RT_TABLE_LOCAL, 0
		last.Family, last.Table, last.Priority = family, unix.RT_TABLE_LOCAL, 32765
		if err := errors.Join(h.handle.RuleAdd(last), h.handle.RuleDel(first)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, want bool) {
		t.Helper()
		if got, err := h.LocalFirst(); got != want || err != nil {
			t.Errorf("%s: %t, %v", what, got, err)
		}
	}
	want("at first", true)
	last(netlink.FAMILY_V4)
	want("of IPv4 no more", true)
	last(netlink.FAMILY_V6)
	want("of neither", false)
}

// TestContain refuses in the table of a VRF what nothing there leads, and leaves alone what somebody else has set
// for that.
func TestContain(t *testing.T) {
	h := inNamespace(t)
	if err := h.Contain("red"); err == nil || !strings.Contains(err.Error(), "there is no VRF red") {
		t.Errorf("without a VRF: %v", err)
	}
	addVRF(t, h, "red", 100)
	theirs := &netlink.Route{Dst: ipNet(netip.PrefixFrom(netip.IPv4Unspecified(), 0)), Type: unix.RTN_UNREACHABLE, Table: 100, Priority: refusalMetric, Protocol: unix.RTPROT_STATIC}
	if err := h.handle.RouteAdd(theirs); err != nil {
		t.Fatal(err)
	}
	refused := func(when string, want ...netlink.RouteProtocol) {
		t.Helper()
		routes, err := h.handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: 100, Type: unix.RTN_UNREACHABLE}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
		var got []netlink.RouteProtocol
		for _, r := range routes {
			got = append(got, r.Protocol)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: refusals by protocols %v, %v", when, got, err)
		}
	}
	other, err := OpenHost()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.Contain("red"), h.Contain("red")); err != nil {
		t.Fatal(err)
	}
	refused("of two", unix.RTPROT_STATIC, RefusalProtocol)
	if lost, err := h.Lost(); len(lost) > 0 || err != nil {
		t.Errorf("lost is %v, %v", lost, err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	refused("of one that is closed", unix.RTPROT_STATIC)
	lost, err := h.Lost()
	if err != nil || len(lost) != 1 {
		t.Fatalf("lost is %v, %v", lost, err)
	}
	if errs := h.Restore(lost); errs[0] != nil {
		t.Error(errs)
	}
	refused("again", unix.RTPROT_STATIC, RefusalProtocol)
	tun, err := OpenTUN(TUNConfig{Name: "theirs"})
	if err != nil {
		t.Fatal(err)
	}
	defer tun.Close()
	if other, err = OpenHost(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.Contain("red"), other.Enslave("theirs", "red"), h.Close()); err != nil {
		t.Fatal(err)
	}
	h = other
	refused("of one that has a device there", unix.RTPROT_STATIC, RefusalProtocol)
	if h, err = OpenHost(); err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	refused("of nobody", unix.RTPROT_STATIC)
}

// TestRefusalIsBackAtOnce: no look that finds it gone leaves it so, also where another one has just done that.
func TestRefusalIsBackAtOnce(t *testing.T) {
	h := inNamespace(t)
	for _, all := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if err := h.refuse(netip.PrefixFrom(all, 0), ""); err != nil { // in the main table, which each kernel has
			t.Fatal(err)
		}
	}
	for range 3 {
		for _, thing := range h.things() {
			if err := thing.back(); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []int{2, 0} {
			if lost, err := h.Lost(); len(lost) != want || err != nil {
				t.Errorf("lost is %v, %v, want %d", lost, err, want)
			}
		}
	}
}

// TestRefusalOfTwo: who stops takes it back unless another node has a device in the VRF.
func TestRefusalOfTwo(t *testing.T) {
	red := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Index: 3, Name: "red"}, Table: 100}
	in := func(master int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Index: 9, Name: "any", MasterIndex: master}
	}
	for _, tt := range []struct {
		name string
		link netlink.Link
		want bool
	}{
		{"a TUN device", &netlink.Tuntap{LinkAttrs: in(3)}, true},
		{"one that is elsewhere", &netlink.Tuntap{LinkAttrs: in(4)}, false},
		{"one that is outside", &netlink.Tuntap{LinkAttrs: in(0)}, false},
		{"another device", &netlink.Dummy{LinkAttrs: in(3)}, false},
	} {
		if got := hasTUN(red, []netlink.Link{red, tt.link}); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// TestLeftRefusals: what a process has left that was killed is found in each table, and nothing that only looks like it.
func TestLeftRefusals(t *testing.T) {
	h := inNamespace(t)
	four, six := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")
	alike := func(of func(*netlink.Route)) *netlink.Route {
		r := refusal(four, 102)
		of(r)
		return r
	}
	theirs := []*netlink.Route{
		alike(func(r *netlink.Route) { r.Protocol = unix.RTPROT_STATIC }),
		alike(func(r *netlink.Route) { r.Priority = 7 }),
		alike(func(r *netlink.Route) { r.Dst = ipNet(netip.MustParsePrefix("10.0.0.0/8")) }),
		alike(func(r *netlink.Route) { r.Priority, r.Type = 8, unix.RTN_BLACKHOLE }),
	}
	for _, r := range append(theirs, refusal(four, 100), refusal(six, 100), refusal(four, 101), refusal(six, unix.RT_TABLE_MAIN)) {
		if err := h.handle.RouteAdd(r); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"0.0.0.0/0 at the end of table 100", "0.0.0.0/0 at the end of table 101", "::/0 at the end of table 100", "::/0 at the end of table 254"}
	for range 2 {
		removed, inUse, err := h.RemoveLeftRefusals()
		for i := range removed {
			removed[i] = strings.TrimPrefix(removed[i], "refusal of ")
		}
		slices.Sort(removed)
		if !slices.Equal(removed, want) || len(inUse) > 0 || err != nil {
			t.Errorf("removed %q, in use %q, %v", removed, inUse, err)
		}
		want = nil
	}
	for _, r := range theirs {
		if err := h.handle.RouteDel(r); err != nil {
			t.Errorf("%v has gone: %v", r, err)
		}
	}
}

// TestRefusalsInUse: a device that a program has open is that of a node, even while it is down.
func TestRefusalsInUse(t *testing.T) {
	red := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Index: 3, Name: "red"}, Table: 100}
	tun := func(master, queues int, flags uint32) netlink.Link {
		return &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Index: 9, Name: "ggsn-red", MasterIndex: master, RawFlags: flags}, Queues: queues}
	}
	for _, tt := range []struct {
		name string
		link netlink.Link
		want string
	}{
		{"up", tun(3, 0, unix.IFF_UP|unix.IFF_LOWER_UP), "ggsn-red"},
		{"down", tun(3, 2, 0), "ggsn-red"},
		{"left", tun(3, 0, unix.IFF_UP), ""},
		{"in another VRF", tun(4, 2, unix.IFF_UP|unix.IFF_LOWER_UP), ""},
		{"in none", tun(0, 2, unix.IFF_UP|unix.IFF_LOWER_UP), ""},
		{"no TUN device", &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 9, Name: "eth0", MasterIndex: 3, RawFlags: unix.IFF_LOWER_UP}}, ""},
	} {
		if got := openIn(100, []netlink.Link{tt.link, red}); got != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

// TestPlacement: a link leaves the VRF that we have put it into, whichever process did, and none that somebody else has.
func TestPlacement(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "gi")
	addVRF(t, h, "red", 100)
	addVRF(t, h, "blue", 101)
	link := func(name string) netlink.Link {
		t.Helper()
		l, err := h.handle.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	somebody := func(vrf string) error {
		if vrf == "" {
			return h.handle.LinkSetNoMaster(link("gi"))
		}
		return h.handle.LinkSetMaster(link("gi"), link(vrf))
	}
	for _, tt := range []struct {
		name   string
		before string // where somebody has put it
		do     func(*Host) error
		want   string
		names  int // that it has beside its own
	}{
		{"left to who has put it there", "red", func(one *Host) error { return one.LeaveVRF("gi") }, "red", 0},
		{"there already", "red", func(one *Host) error { return errors.Join(one.Enslave("gi", "red"), one.Close()) }, "red", 0},
		{"ours", "", func(one *Host) error { return errors.Join(one.Enslave("gi", "red"), one.Close()) }, "", 0},
		{"out of another", "blue", func(one *Host) error { return errors.Join(one.Enslave("gi", "red"), one.Close()) }, "", 0},
		{"taken out, and put back by us", "red", func(one *Host) error {
			err := errors.Join(one.Enslave("gi", "red"), somebody(""))
			lost, failed := one.Lost()
			return errors.Join(append(one.Restore(lost), err, failed, one.Close())...)
		}, "", 0},
		{"of a process that was killed", "", func(one *Host) error { defer one.Abandon(); return one.Enslave("gi", "red") }, "red", 1},
		{"of the next one, which goes on", "red", func(one *Host) error { return errors.Join(one.Enslave("gi", "red"), one.Close()) }, "", 0},
		{"of another that was killed", "", func(one *Host) error { defer one.Abandon(); return one.Enslave("gi", "red") }, "red", 1},
		{"of the next one, which has it outside", "red", func(one *Host) error { return one.LeaveVRF("gi") }, "", 0},
		{"somebody's from then on", "red", func(one *Host) error { return one.LeaveVRF("gi") }, "red", 0},
	} {
		one, err := OpenHost()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(somebody(tt.before), tt.do(one)); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		is, in := link("gi").Attrs(), ""
		if is.MasterIndex != 0 {
			m, err := h.handle.LinkByIndex(is.MasterIndex)
			if err != nil {
				t.Fatal(err)
			}
			in = m.Attrs().Name
		}
		if in != tt.want || len(is.AltNames) != tt.names {
			t.Errorf("%s: in %q, want %q; further names %q", tt.name, in, tt.want, is.AltNames)
		}
	}
}

// TestOwnAddressesOutsideOfVRFs: what others may see outside is no address of a VRF, nor the other way round.
func TestOwnAddressesOutsideOfVRFs(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "gn")
	addVRF(t, h, "red", 100, "far")
	for link, addresses := range map[string][]string{"gn": {"192.0.2.1/24", "2001:db8:9::1/64"}, "far": {"10.9.9.1/24", "2001:db8:2::1/64"}} {
		for _, a := range addresses {
			if err := h.AddAddr(link, netip.MustParsePrefix(a)); err != nil {
				t.Fatal(err)
			}
		}
	}
	v4, err := h.GlobalIPv4("")
	v6, err6 := h.GlobalIPv6("")
	if err != nil || err6 != nil || v4.String() != "192.0.2.1" || v6.String() != "2001:db8:9::1" {
		t.Errorf("outside: %s, %v, and %s, %v", v4, err, v6, err6)
	}
	if v4, v6, err = h.GlobalOfVRF("red", ""); err != nil || v4.String() != "10.9.9.1" || v6.String() != "2001:db8:2::1" {
		t.Errorf("inside: %s, %s, %v", v4, v6, err)
	}
	// What was waited for when the address was added.
	red, err := h.link("red")
	if err != nil {
		t.Fatal(err)
	}
	if own := netip.MustParseAddr("2001:db8:2::1"); !h.localTo(own, red.Attrs().Index) || h.Local(own) {
		t.Errorf("%s is local inside: %v, and outside: %v", own, h.localTo(own, red.Attrs().Index), h.Local(own))
	}
}

// addVRF makes a VRF with links in it.
func addVRF(t *testing.T, h *Host, name string, table uint32, links ...string) {
	t.Helper()
	v := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: name}, Table: table}
	err := h.handle.LinkAdd(v)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("this kernel has no VRF")
	}
	for _, one := range links {
		l, failed := h.handle.LinkByName(one)
		if err = errors.Join(err, failed); err == nil {
			err = h.handle.LinkSetMaster(l, v)
		}
	}
	if err = errors.Join(err, h.SetUp(name)); err != nil {
		t.Fatal(err)
	}
}
