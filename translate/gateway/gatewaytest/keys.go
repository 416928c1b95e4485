// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gatewaytest

import (
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// DeviceKeys are lines of keys that lead packets to a translator, and DeviceSections go
// before its own.
const (
	DeviceSections = "[announce]\nmethod = \"route\"\n"
	DeviceKeys     = `
name = "house"
interface = "d0"
mtu = 1400
route = false
workers = 3
announce = true
fast_path = "tc"
fast_path_devices = ["v6"]
`
)

// OnTheHost starts a translator that has the [DeviceKeys], and looks at the host. fast is the
// state of its fast path.
func (w *World) OnTheHost(t *testing.T, i role.Instance, queues func() int, fast func() driver.Status) {
	t.Helper()
	w.Start(t, i)
	if i.Name() != "house" || len(i.(role.Announced).AnnouncedPrefixes()) == 0 || queues() != 3 {
		t.Errorf("%s announces %v and has %d queues", i.Name(), i.(role.Announced).AnnouncedPrefixes(), queues())
	}
	w.Gateway.Do(t, func() error {
		d0, err := netlink.LinkByName("d0")
		if err != nil {
			return err
		}
		if mtu := d0.Attrs().MTU; mtu != 1400 {
			t.Errorf("the MTU is %d", mtu)
		}
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: port.RouteProtocol}, netlink.RT_FILTER_PROTOCOL)
		if slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.LinkIndex == d0.Attrs().Index }) {
			t.Errorf("the routes are %v", routes)
		}
		for _, p := range i.(role.Announced).AnnouncedPrefixes() { // which its operator leads there
			dst := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
			err = errors.Join(err, netlink.RouteAdd(&netlink.Route{LinkIndex: d0.Attrs().Index, Dst: dst}))
		}
		return err
	})
	attached := func() (names []string) {
		for _, d := range fast().Devices {
			if d.Hook != "none" {
				names = append(names, d.Device)
			}
		}
		return names
	}
	for end := time.Now().Add(testutil.Patience); !slices.Equal(attached(), []string{"v6"}); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("programs are attached to %v: %s", attached(), fast().Why)
		}
	}
}
