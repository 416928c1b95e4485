// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role"
)

// noPrograms fails if programs are left at devices.
func noPrograms(t *testing.T, devices ...string) error {
	for _, name := range devices {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			t.Errorf("%s still has an XDP program", name)
		}
		filters, err := netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
		if len(filters) > 0 {
			t.Errorf("%s still has filters", name)
		}
		links, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: ebpf.AttachTCXIngress})
		if err == nil && len(links.Programs) > 0 { // old kernels know no such links
			t.Errorf("%s still has programs at tc", name)
		}
	}
	return nil
}

// TestFastPathNeedsIPv4: without an IPv4 address the engine carries all, status says why, and so does a check before.
func TestFastPathNeedsIPv4(t *testing.T) {
	ns := hostOf(t)
	for _, mode := range []string{"auto", "tc"} {
		cfg := written(t, "gsn_address4 = \"\"\npeers = [\"2001:db8:9::/64\"]\nfast_path = \""+mode+"\"\nstate_file = \""+t.TempDir()+"/state\"", "")
		g, stop := started(t, ns, cfg)
		const why = "GTP by IPv6 is carried by the engine"
		if f := g.Status().(Status).FastPath; f.Path != "engine" || !strings.Contains(f.Why, why) {
			t.Errorf("%s: status %+v", mode, f)
		}
		stop()
		ns.Do(t, func() error {
			p := plan(&cfg, new(role.Seats))
			said := p.Notes
			if mode != "auto" {
				said = p.Warnings
			}
			if len(p.Notes)+len(p.Warnings) != 1 || len(said) != 1 || !strings.Contains(said[0], why) {
				t.Errorf("%s: check says %+v", mode, p)
			}
			return nil
		})
	}
}

// TestFastPathDevices: programs are at the devices that are named, and carry what comes by these and leaves by them.
func TestFastPathDevices(t *testing.T) {
	configtest.InEffect(t, "ggsn", "fast_path_devices")
	r := newFastRig(t, "fast_path = \"tc\"\nfast_path_devices = [\"gn\"]", "")
	r.takes(t, "tc")
	if d := r.status().Devices; len(d) != 1 || d[0].Device != "gn" {
		t.Errorf("programs are at %+v", d)
	}
	c := r.open(t, 1)
	r.byEngine(t, "by a device without programs", c)
	if n := r.status().Packets["punt"]["no_next_hop"]; n == 0 {
		t.Errorf("the programs have seen %+v", r.status().Packets)
	}
	if restart := r.reload(t, "fast_path = \"tc\"\nfast_path_devices = [\"gn\", \"gi\"]", ""); restart != nil {
		t.Errorf("devices wait for a restart: %v", restart)
	}
	await(t, func() bool { return len(r.status().Devices) == 2 })
	r.byPrograms(t, "by both", c)
}

// TestFastPathOfOneNetwork: programs carry packets of the section's own device; those of another one, and of a VRF, are
// the engine's.
func TestFastPathOfOneNetwork(t *testing.T) {
	r := newBareRig(t)
	const apns = "name = \"internet\"\npool4 = [\"10.45.0.0/16\"]\n[[ggsn.apn]]\nname = \"other\"\ninterface = \"g1\"\npool4 = [\"10.46.0.0/16\"]"
	r.start(t, `fast_path = "tc"`, apns)
	r.takes(t, "tc")
	at := func(name string) func(*gtp.CreateRequest) {
		return func(m *gtp.CreateRequest) {
			apn, err := gtp.ParseAPN(name)
			if err != nil {
				t.Fatal(err)
			}
			m.APN = gtp.Some(apn)
		}
	}
	main, other := r.open(t, 1), r.open(t, 2, at("other"))
	for range 2 {
		r.byPrograms(t, "the section's own device", main)
		r.byEngine(t, "another device", other)
		r.reload(t, `fast_path = "tc"`, apns)
	}
	r.wantAccount(t, "of the one", main)
	r.wantAccount(t, "of the other", other)
}

// TestFastPathByNetworks finds the device whose packets programs carry.
func TestFastPathByNetworks(t *testing.T) {
	for _, tt := range []struct{ name, apn, device string }{
		{"the section's own", "", "ggsn"},
		{"beside a VRF", "name = \"internet\"\npool4 = [\"10.45.0.0/16\"]\n[[ggsn.apn]]\nname = \"red\"\nvrf = \"red\"\npool4 = [\"10.46.0.0/16\"]", "ggsn"},
		{"another", `interface = "g1"`, "g1"},
		{"a VRF alone", `vrf = "red"`, ""},
	} {
		cfg := written(t, "", tt.apn)
		if got := cfg.sharedDevice(); got != tt.device {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.device)
		}
		if why := cfg.uncarried(); (why != "") != (tt.device == "") {
			t.Errorf("%s: why not: %q", tt.name, why)
		}
		settings, err := engineSettings(&cfg, nil, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range settings.APNs {
			if of := cfg.device(&cfg.APNs[i]); settings.APNs[i].EngineOnly != (of != tt.device) {
				t.Errorf("%s: an access point at %s is the engine's alone: %v", tt.name, of, settings.APNs[i].EngineOnly)
			}
		}
	}
}

// TestFastPathNeedsItsAddress: programs carry nothing for an address that the host has lost.
func TestFastPathNeedsItsAddress(t *testing.T) {
	r := newFastRig(t, `fast_path = "xdp"`, "")
	c := r.open(t, 1)
	r.byPrograms(t, "before", c)
	four := &netlink.Addr{IPNet: &net.IPNet{IP: nodeAddr[false].AsSlice(), Mask: net.CIDRMask(24, 32)}}
	change := func(f func(netlink.Link, *netlink.Addr) error) {
		r.ns.Do(t, func() error {
			gn, err := netlink.LinkByName("gn")
			if err != nil {
				return err
			}
			return f(gn, four)
		})
	}
	change(netlink.AddrDel)
	r.takes(t, "engine")
	if f := r.status(); !strings.Contains(f.Why, "192.0.2.1, where SGSNs reach the node, is not an address of this host") {
		t.Errorf("why: %s", f.Why)
	}
	change(netlink.AddrAdd)
	r.takes(t, "xdp")
	r.byPrograms(t, "behind", c)
}

// TestFastPathMeasures sorts packets by the way they took.
func TestFastPathMeasures(t *testing.T) {
	r := newFastRig(t, `fast_path = "tc"`, "")
	c := r.open(t, 1)
	r.warm(t, c, false)
	up, down := r.g.traffic()
	total := measured(r.g.fast.Counters(), up.Packets, down.Packets)
	if total["fast_up"]+total["engine_up"] != c.up.Packets || total["fast_down"]+total["engine_down"] != c.down.Packets || total["fast_up"] == 0 || total["punted"] == 0 {
		t.Errorf("%v, want %d up and %d down", total, c.up.Packets, c.down.Packets)
	}
	names := []string{"dropped", "engine_down", "engine_up", "fast_down", "fast_up", "punted"}
	await(t, func() bool { return len(r.status().Rates) == len(names) })
	for name := range r.status().Rates {
		if !slices.Contains(names, name) {
			t.Errorf("there is a rate %s", name)
		}
	}
}
