// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// liveNet is an IPv6 host and an IPv4 host with a translator between them, all of whose
// traffic its programs carry: no engine is there.
type liveNet struct {
	host6, gateway, host4 *testutil.Netns
	six, four, tun        int // devices of the gateway
}

// liveWorld is one of a NAT64.
type liveWorld struct {
	liveNet
	fast  *fastpath.NAT64
	table *state.Table
	last  []fastpath.Counter
}

// Hosts of a live world.
var (
	live6    = netip.MustParseAddr("2001:db8:1::5")
	live4    = netip.MustParseAddr("198.51.100.7")
	live4in6 = netip.MustParseAddr("2001:db8:64::198.51.100.7")
)

const liveTimeout = testutil.Patience

// newLiveWorld makes the hosts and attaches the programs at a hook.
func newLiveWorld(t *testing.T, at hook) *liveWorld {
	t.Helper()
	w := &liveWorld{liveNet: newLiveNet(t)}
	w.load(t)
	w.attach(t, at, w.fast.Programs())
	return w
}

// newLiveNet makes the hosts.
func newLiveNet(t *testing.T) liveNet {
	t.Helper()
	w := liveNet{host6: testutil.NewNetns(t), gateway: testutil.NewNetns(t), host4: testutil.NewNetns(t)}
	w.six = w.wire(t, w.host6, "six0", "2001:db8:1::1/64", live6.String()+"/64", "::/0", 1)
	w.four = w.wire(t, w.host4, "four0", "198.51.100.1/24", live4.String()+"/24", "192.0.2.0/24", 3)
	w.gateway.Do(t, func() error {
		// In the place of a TUN device stands one that loses all it gets.
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "tun"}, PeerName: "lost"}); err != nil {
			return err
		}
		l, err := netlink.LinkByName("tun")
		if err != nil {
			return err
		}
		w.tun = l.Attrs().Index
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
		to, err := netlink.ParseIPNet(pool6[0].String())
		if err != nil {
			return err
		}
		for _, name := range []string{"ipv6/conf/all", "ipv4/conf/all"} {
			if err := os.WriteFile("/proc/sys/net/"+name+"/forwarding", []byte("1"), 0); err != nil {
				return err
			}
		}
		return netlink.RouteAdd(&netlink.Route{Dst: to, LinkIndex: w.tun})
	})
	return w
}

// wire joins a host to the gateway: a device there with an address, one of the host with
// another and a route by the gateway. MACs count from n on. It returns the gateway's
// device.
func (w *liveNet) wire(t *testing.T, host *testutil.Netns, name, ours, theirs, route string, n byte) (index int) {
	t.Helper()
	near, far := natMAC(n), natMAC(n+1)
	w.gateway.AddressesAtOnce(t)
	host.AddressesAtOnce(t)
	w.gateway.Do(t, func() error {
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
	w.gateway.AwaitLinks(t, name)
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

// load loads the programs, with a client that has ports.
func (w *liveWorld) load(t *testing.T) {
	t.Helper()
	sizes := state.Sizes{Sessions: 1 << 12, Subscribers: 64, Addresses: 4, BlockWords: 16, SubscriberLength: 64}
	var err error
	if w.fast, err = fastpath.LoadNAT64(fastpath.NAT64Config{Name: "live", Sizes: sizes}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.fast.Close() })
	if w.table, _, err = state.Open(sizes, w.fast.Memory(), [state.Seeds]uint64{1, 3, 5, 7, 11, 13, 17, 19}); err != nil {
		t.Fatal(err)
	}
	all := fastpath.PortRange{First: 1024, Last: 65535}
	s := fastpath.NAT64Settings{
		Tunnel: w.tun, Pool6: []fastpath.NAT64Prefix{{Prefix: pool6[0]}},
		Pool4: []fastpath.NAT64Range{{Prefix: netip.MustParsePrefix("192.0.2.128/28"), Ports: [state.Transports]fastpath.PortRange{all, all, all}}},
	}
	pool := state.PoolAddress{Address: poolAddr.As4()}
	for transport := range s.Lifetimes {
		pool.Ports = append(pool.Ports, state.PortRange{Transport: state.Transport(transport), First: all.First, Last: all.Last})
		for status := range s.Lifetimes[transport] {
			s.Lifetimes[transport][status] = time.Hour
		}
	}
	client := live6.As16()
	var subscriber state.Subscriber
	var block state.Block
	if err := errors.Join(w.table.SetPool([]state.PoolAddress{pool}), w.fast.Set(s)); err != nil {
		t.Fatal(err)
	}
	if o := w.table.MakeSubscriber(&client, poolAddr.As4(), 0, &subscriber); o != state.Made {
		t.Fatal(o)
	}
	if o := w.table.Lease(&subscriber, state.TCP, 1, 1, &block); o != state.Made {
		t.Fatal(o)
	}
	w.serve(t, w.fast.SetDevice)
	w.fast.Beat(time.Hour)
	w.counted(t)
}

// serve tells programs of the devices.
func (w *liveNet) serve(t *testing.T, set func(fastpath.Device) error) {
	t.Helper()
	for index, mac := range map[int]net.HardwareAddr{w.six: natMAC(1), w.four: natMAC(3)} {
		if err := set(fastpath.Device{Index: index, MAC: mac, Frames: true, Packets: true, Partial: true}); err != nil {
			t.Fatal(err)
		}
	}
}

// attach puts programs where packets come in.
func (w *liveNet) attach(t *testing.T, at hook, p fastpath.Programs) {
	t.Helper()
	for _, index := range []int{w.six, w.four} {
		var l link.Link
		w.gateway.Do(t, func() (err error) {
			if at == inXDP {
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

// counted returns the reasons that were counted since the last call.
func (w *liveWorld) counted(t *testing.T) map[string]fastpath.Counter {
	t.Helper()
	list, err := w.fast.Counters()
	if err != nil {
		t.Fatal(err)
	}
	news := make(map[string]fastpath.Counter)
	for i, c := range list {
		if w.last != nil {
			c.Packets -= w.last[i].Packets
			c.Bytes -= w.last[i].Bytes
		}
		if c.Packets > 0 {
			news[c.Reason] = c
		}
	}
	w.last = list
	return news
}
