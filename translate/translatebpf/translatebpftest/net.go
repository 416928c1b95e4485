// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translatebpftest

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// Net is an IPv6 host and an IPv4 host with a translator between them, all of whose
// traffic its programs carry: no engine is there.
type Net struct {
	Host6, Gateway, Host4 *testutil.Netns
	Six, Four, TUN        int // devices of the gateway
	Counts                runtest.Counts
}

// Hosts of a live world.
var (
	Host6    = netip.MustParseAddr("2001:db8:1::5")
	Host4    = netip.MustParseAddr("198.51.100.7")
	Host4In6 = netip.MustParseAddr("2001:db8:64::198.51.100.7")
)

const Timeout = testutil.Patience

// NewNet makes the hosts.
func NewNet(t *testing.T) Net {
	t.Helper()
	w := Net{Host6: testutil.NewNetns(t), Gateway: testutil.NewNetns(t), Host4: testutil.NewNetns(t)}
	w.Six = w.wire(t, w.Host6, "six0", "2001:db8:1::1/64", Host6.String()+"/64", "::/0", 1)
	w.Four = w.wire(t, w.Host4, "four0", "198.51.100.1/24", Host4.String()+"/24", "192.0.2.0/24", 3)
	w.Gateway.Do(t, func() error {
		// In the place of a TUN device stands one that loses all it gets.
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "tun"}, PeerName: "lost"}); err != nil {
			return err
		}
		l, err := netlink.LinkByName("tun")
		if err != nil {
			return err
		}
		w.TUN = l.Attrs().Index
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
		to, err := netlink.ParseIPNet(Pool6[0].String())
		if err != nil {
			return err
		}
		for _, name := range []string{"ipv6/conf/all", "ipv4/conf/all"} {
			if err := os.WriteFile("/proc/sys/net/"+name+"/forwarding", []byte("1"), 0); err != nil {
				return err
			}
		}
		return netlink.RouteAdd(&netlink.Route{Dst: to, LinkIndex: w.TUN})
	})
	return w
}

// wire joins a host to the gateway: a device there with an address, one of the host with
// another and a route by the gateway. MACs count from n on. It returns the gateway's
// device.
func (w *Net) wire(t *testing.T, host *testutil.Netns, name, ours, theirs, route string, n byte) (index int) {
	t.Helper()
	near, far := MAC(n), MAC(n+1)
	w.Gateway.AddressesAtOnce(t)
	host.AddressesAtOnce(t)
	w.Gateway.Do(t, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr = name, near
		v := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerHardwareAddr: far, PeerNamespace: netlink.NsFd(host.Handle())}
		if err := netlink.LinkAdd(v); err != nil {
			return err
		}
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		index = l.Attrs().Index
		return errors.Join(raise(l, ours, theirs, far), testutil.ReceiveByNAPI(name, true))
	})
	host.Do(t, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := errors.Join(raise(l, theirs, ours, near), testutil.ReceiveByNAPI("eth0", true)); err != nil {
			return err
		}
		to, err := netlink.ParseIPNet(route)
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: to, Gw: netip.MustParsePrefix(ours).Addr().AsSlice(), LinkIndex: l.Attrs().Index})
	})
	w.Gateway.AwaitLinks(t, name)
	host.AwaitLinks(t, "eth0")
	return index
}

// raise gives a device its address and its neighbour, and sets it up.
func raise(l netlink.Link, own, other string, mac net.HardwareAddr) error {
	addr, err := netlink.ParseAddr(own)
	if err != nil {
		return err
	}
	addr.Flags = 0x02 // IFA_F_NODAD
	if err := netlink.AddrAdd(l, addr); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return err
	}
	return netlink.NeighSet(&netlink.Neigh{
		LinkIndex: l.Attrs().Index, IP: netip.MustParsePrefix(other).Addr().AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT,
	})
}

// Serve tells programs of the devices.
func (w *Net) Serve(t *testing.T, set func(fastpath.Device) error) {
	t.Helper()
	for index, mac := range map[int]net.HardwareAddr{w.Six: MAC(1), w.Four: MAC(3)} {
		if err := set(fastpath.Device{Index: index, MAC: mac, Frames: true, Packets: true, Partial: true}); err != nil {
			t.Fatal(err)
		}
	}
}

// Counted returns what programs have counted since the last call, by reason.
func (w *Net) Counted(t testing.TB, by runtest.Source) map[string]fastpath.Counter {
	t.Helper()
	news, err := w.Counts.News(by)
	if err != nil {
		t.Fatal(err)
	}
	return news
}

// Attach puts programs where packets come in.
func (w *Net) Attach(t *testing.T, at runtest.Hook, p fastpath.Programs) {
	t.Helper()
	for _, index := range []int{w.Six, w.Four} {
		var l link.Link
		w.Gateway.Do(t, func() (err error) {
			if at == runtest.InXDP {
				l, err = link.AttachXDP(link.XDPOptions{Program: p.XDP, Interface: index, Flags: link.XDPDriverMode})
			} else {
				var device netlink.Link
				if device, err = netlink.LinkByIndex(index); err == nil {
					err = attachTC(device, p.Ingress.FD())
				}
			}
			return err
		})
		if l != nil {
			t.Cleanup(func() { l.Close() })
		}
	}
}

// attachTC attaches the way that all kernels know; the filter goes with the device.
func attachTC(device netlink.Link, fd int) error {
	attrs := netlink.QdiscAttrs{LinkIndex: device.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
	if err := netlink.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "clsact"}); err != nil {
		return err
	}
	return netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: device.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: 3, Priority: 1},
		Fd:          fd, Name: "isthmus_ingress", DirectAction: true,
	})
}
