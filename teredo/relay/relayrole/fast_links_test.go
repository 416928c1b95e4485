// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// What cannot be attached costs speed and nothing else.
func TestFastPathWithoutDevice(t *testing.T) {
	configtest.InEffect(t, "teredo_relay", "fast_path_devices")
	r := newFastRig(t, by(fastpath.ModeTC), func(c *Settings) { c.FastPathDevices = []string{"v4", "v6", "later"} })
	f := r.fastPath()
	if f.Path != "engine" || !strings.Contains(f.Why, "later") {
		t.Errorf("%+v", f)
	}
	r.establish(t)
	r.relayNS.Do(t, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "later"}, PeerName: "other"})
	})
	f = r.awaitPath(t, "tc")
	names := []string{}
	for _, d := range f.Devices {
		names = append(names, d.Device)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"later", "v4", "v6"}) {
		t.Errorf("devices: %v", names)
	}
}

// Switching the host's forwarding of IPv4 off does not slow the relay down for good.
func TestFastPathKeepsForwarding(t *testing.T) {
	r := newFastRig(t, by(fastpath.ModeTC))
	r.awaitPath(t, "tc")
	r.establish(t)
	r.relayNS.Do(t, func() error {
		for _, on := range []string{"1", "0"} {
			if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte(on), 0); err != nil {
				return err
			}
		}
		// Without this change it would be seen only at the next look for silent ones.
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "later"}, PeerName: "other"})
	})
	for deadline := time.Now().Add(testutil.Patience); r.forwarded("encap_forwarded") == 0; {
		if time.Now().After(deadline) {
			t.Fatal("packets to the client take the engine")
		}
		r.hostSends(t, "hello")
		wantText(t, "the client got", clientReceives(t, r.client), "hello hop 63")
	}
}

// An address that has gone to another host is not sent from, until it is back.
func TestFastPathFollowsItsAddress(t *testing.T) {
	const second = "192.0.2.9/24"
	r := newFastRig(t, by(fastpath.ModeTC))
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	change := func(what func(netlink.Link, *netlink.Addr) error) {
		t.Helper()
		r.relayNS.Do(t, func() error {
			v4, err := netlink.LinkByName("v4")
			if err != nil {
				return err
			}
			a, err := netlink.ParseAddr(second)
			if err != nil {
				return err
			}
			return what(v4, a)
		})
	}
	change(netlink.AddrAdd)
	r.change = append(r.change, func(c *Settings) { c.Bind = netip.MustParseAddrPort("192.0.2.9:3545") })
	r.start(t, ModeRelay)
	r.awaitPath(t, "tc")
	change(netlink.AddrDel)
	if f := r.awaitPath(t, "engine"); !strings.Contains(f.Why, "not an address of this host") {
		t.Errorf("%+v", f)
	}
	change(netlink.AddrAdd)
	r.awaitPath(t, "tc")
}

// A device with another link-layer address than before stays in the fast path.
func TestFastPathFollowsALinkLayerAddress(t *testing.T) {
	r := newFastRig(t, by(fastpath.ModeXDP))
	r.awaitPath(t, "xdp")
	r.establish(t)
	address := net.HardwareAddr{2, 0, 0, 0, 0, 0x66}
	r.relayNS.Do(t, func() error {
		v6, err := netlink.LinkByName("v6")
		if err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(v6, address)
	})
	r.hostNS.Do(t, func() error {
		v6, err := netlink.LinkByName("v6")
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{
			LinkIndex: v6.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: net.ParseIP("2001:db8:1::1"), HardwareAddr: address,
		})
	})
	before := r.forwarded("encap_forwarded")
	for deadline := time.Now().Add(testutil.Patience); r.forwarded("encap_forwarded") == before; {
		if time.Now().After(deadline) {
			t.Fatal("packets to the new link-layer address take the engine")
		}
		r.hostSends(t, "hello")
		wantText(t, "the client got", clientReceives(t, r.client), "hello hop 63")
	}
}

// A device that begins to lose what XDP redirects into it is noticed, though no link event
// tells, and packets that leave by it take the engine.
func TestFastPathNoticesLostFrames(t *testing.T) {
	r := newFastRig(t, by(fastpath.ModeXDP))
	r.awaitPath(t, "xdp")
	r.establish(t)
	r.warm(t, r.client, true, true)
	r.hostNS.Do(t, func() error { return testutil.ReceiveByNAPI("v6", false) })
	for deadline := time.Now().Add(testutil.Patience); ; time.Sleep(10 * time.Millisecond) {
		f := r.fastPath()
		if !slices.ContainsFunc(f.Devices, func(d driver.Device) bool { return d.Device == "v6" && d.Target }) && !f.Survives {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("status says %+v", f)
		}
	}
	before := r.forwarded("decap_forwarded")
	send(t, r.client, clientUDP("hello"), relayAt)
	wantText(t, "the host got", r.hostReceives(t), fmt.Sprintf("hello from [%s]:%d hop 63", relayClientIP, relayClientPort))
	if got := r.forwarded("decap_forwarded"); got != before {
		t.Errorf("the programs have forwarded %d packets to a device that loses them", got-before)
	}
}
