// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath_test

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// liveWorld is an IPv6 host and an IPv4 host with a NAT64 between them, all of whose
// traffic the programs carry: no engine is there.
type liveWorld struct {
	host6, gateway, host4 *testutil.Netns
	fast                  *fastpath.NAT64
	table                 *state.Table
	last                  []fastpath.NAT64Counter
}

// Hosts of a live world.
var (
	live6    = netip.MustParseAddr("2001:db8:1::5")
	live4    = netip.MustParseAddr("198.51.100.7")
	live4in6 = netip.MustParseAddr("2001:db8:64::198.51.100.7")
)

const liveTimeout = 10 * time.Second

// newLiveWorld makes the hosts and attaches the programs at a hook.
func newLiveWorld(t *testing.T, at hook) *liveWorld {
	t.Helper()
	w := &liveWorld{host6: testutil.NewNetns(t), gateway: testutil.NewNetns(t), host4: testutil.NewNetns(t)}
	six := w.wire(t, w.host6, "six0", "2001:db8:1::1/64", live6.String()+"/64", "::/0", 1)
	four := w.wire(t, w.host4, "four0", "198.51.100.1/24", live4.String()+"/24", "192.0.2.0/24", 3)
	tun := 0
	w.gateway.Do(t, func() error {
		// In the place of a TUN device stands one that loses all it gets.
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "tun"}, PeerName: "lost"}); err != nil {
			return err
		}
		l, err := netlink.LinkByName("tun")
		if err != nil {
			return err
		}
		tun = l.Attrs().Index
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
		return netlink.RouteAdd(&netlink.Route{Dst: to, LinkIndex: tun})
	})
	w.load(t, tun, six, four)
	for _, index := range []int{six, four} {
		w.attach(t, at, index)
	}
	return w
}

// wire joins a host to the gateway: a device there with an address, one of the host with
// another and a route by the gateway. MACs count from n on. It returns the gateway's
// device.
func (w *liveWorld) wire(t *testing.T, host *testutil.Netns, name, ours, theirs, route string, n byte) (index int) {
	t.Helper()
	near, far := natMAC(n), natMAC(n+1)
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
		return errors.Join(raise(l, ours, theirs, far), testutil.ReceiveByNAPI(name))
	})
	host.Do(t, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := errors.Join(raise(l, theirs, ours, near), testutil.ReceiveByNAPI("eth0")); err != nil {
			return err
		}
		to, err := netlink.ParseIPNet(route)
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: to, Gw: netip.MustParsePrefix(ours).Addr().AsSlice(), LinkIndex: l.Attrs().Index})
	})
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
func (w *liveWorld) load(t *testing.T, tun, six, four int) {
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
		Tunnel: tun, Pool6: []fastpath.NAT64Prefix{{Prefix: pool6[0]}},
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
	for index, mac := range map[int]net.HardwareAddr{six: natMAC(1), four: natMAC(3)} {
		if err := w.fast.SetDevice(fastpath.Device{Index: index, MAC: mac, Frames: true, Packets: true, Partial: true}); err != nil {
			t.Fatal(err)
		}
	}
	w.fast.Beat(time.Hour)
	w.counted(t)
}

// attach puts a program where packets come in by a device.
func (w *liveWorld) attach(t *testing.T, at hook, index int) {
	t.Helper()
	p := w.fast.Programs()
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

// attachTC attaches the way that all kernels know; the filter goes with the device.
func attachTC(device netlink.Link, fd int) error {
	attrs := netlink.QdiscAttrs{LinkIndex: device.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
	if err := netlink.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "clsact"}); err != nil {
		return err
	}
	return netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: device.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: 3, Priority: 1},
		Fd:          fd, Name: "isthmus_nat64_ingress", DirectAction: true,
	})
}

// counted returns the reasons that were counted since the last call.
func (w *liveWorld) counted(t *testing.T) map[string]fastpath.NAT64Counter {
	t.Helper()
	list, err := w.fast.Counters()
	if err != nil {
		t.Fatal(err)
	}
	news := make(map[string]fastpath.NAT64Counter)
	for i, c := range list {
		if w.last != nil {
			c.Packets -= w.last[i].Packets
			c.Bytes -= w.last[i].Bytes
		}
		if c.Packets > 0 {
			news[c.Reason.String()] = c
		}
	}
	w.last = list
	return news
}

// listen opens a UDP socket in a namespace.
func listen(t *testing.T, ns *testutil.Netns, network, addr string) *net.UDPConn {
	t.Helper()
	var c net.PacketConn
	ns.Do(t, func() (err error) {
		c, err = net.ListenPacket(network, addr)
		return err
	})
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(liveTimeout)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.UDPConn)
}

// checksumErrors counts what the stack of a host found wrong.
func checksumErrors(t *testing.T, ns *testutil.Netns) (n int) {
	t.Helper()
	ns.Do(t, func() error {
		for _, name := range []string{"snmp", "snmp6"} {
			f, err := os.Open("/proc/thread-self/net/" + name)
			if err != nil {
				return err
			}
			defer f.Close()
			var names []string
			for s := bufio.NewScanner(f); s.Scan(); {
				fields := strings.Fields(s.Text())
				if strings.HasSuffix(fields[0], "InCsumErrors") {
					v, err := strconv.Atoi(fields[1])
					if err != nil {
						return err
					}
					n += v
				}
				for i, field := range fields {
					if i < len(names) && names[i] == "InCsumErrors" && field != names[i] {
						v, err := strconv.Atoi(field)
						if err != nil {
							return err
						}
						n += v
					}
				}
				names = fields
			}
		}
		return nil
	})
	return n
}

// onHooks runs a test with programs at either hook, and looks for wrong checksums.
func onHooks(t *testing.T, test func(t *testing.T, w *liveWorld, at hook)) {
	for _, at := range hooks {
		t.Run(string(at), func(t *testing.T) {
			w := newLiveWorld(t, at)
			test(t, w, at)
			for name, ns := range map[string]*testutil.Netns{"IPv6": w.host6, "IPv4": w.host4, "gateway": w.gateway} {
				if n := checksumErrors(t, ns); n != 0 {
					t.Errorf("the %s host found %d wrong checksums", name, n)
				}
			}
		})
	}
}

// Datagrams of all sizes there and back; of their hop limits one is taken, and the last
// one is the gateway's own affair.
func TestNAT64LiveUDP(t *testing.T) {
	onHooks(t, func(t *testing.T, w *liveWorld, at hook) {
		server := listen(t, w.host4, "udp4", live4.String()+":5000")
		client := listen(t, w.host6, "udp6", "["+live6.String()+"]:0")
		four := ipv4.NewPacketConn(server)
		if err := four.SetControlMessage(ipv4.FlagTTL, true); err != nil {
			t.Fatal(err)
		}
		six := ipv6.NewPacketConn(client)
		if err := six.SetControlMessage(ipv6.FlagHopLimit, true); err != nil {
			t.Fatal(err)
		}
		to := &net.UDPAddr{IP: live4in6.AsSlice(), Port: 5000}
		buf := make([]byte, 2000)
		for _, tt := range []struct{ hops, size int }{{64, 0}, {2, 1}, {255, 501}, {64, 1452}} {
			if err := six.SetHopLimit(tt.hops); err != nil {
				t.Fatal(err)
			}
			payload := make([]byte, tt.size)
			for i := range payload {
				payload[i] = byte(i * 3)
			}
			if _, err := six.WriteTo(payload, nil, to); err != nil {
				t.Fatal(err)
			}
			n, cm, from, err := four.ReadFrom(buf)
			if err != nil {
				t.Fatalf("%d bytes: %v; %v", tt.size, err, w.counted(t))
			}
			if cm.TTL != tt.hops-1 || string(buf[:n]) != string(payload) || !from.(*net.UDPAddr).IP.Equal(poolAddr.AsSlice()) {
				t.Errorf("%d bytes with %d hops: %d bytes with %d from %s", tt.size, tt.hops, n, cm.TTL, from)
			}
			if err := four.SetTTL(tt.hops); err != nil {
				t.Fatal(err)
			}
			if _, err := four.WriteTo(payload, nil, from); err != nil {
				t.Fatal(err)
			}
			n, cm6, back, err := six.ReadFrom(buf)
			if err != nil {
				t.Fatalf("%d bytes back: %v; %v", tt.size, err, w.counted(t))
			}
			if cm6.HopLimit != tt.hops-1 || string(buf[:n]) != string(payload) || back.String() != to.String() {
				t.Errorf("back came %d bytes with %d hops from %s, want %d with %d", n, cm6.HopLimit, back, tt.size, tt.hops-1)
			}
		}
		counts := w.counted(t)
		if counts["to4_forwarded"].Packets != 4 || counts["to6_forwarded"].Packets != 4 {
			t.Errorf("the programs counted %v", counts)
		}

		// One hop: the gateway answers, and nothing goes on.
		errs := w.icmp6(t)
		if err := six.SetHopLimit(1); err != nil {
			t.Fatal(err)
		}
		if _, err := six.WriteTo([]byte("last"), nil, to); err != nil {
			t.Fatal(err)
		}
		n, _, err := errs.ReadFrom(buf)
		if err != nil || n == 0 || buf[0] != packet.ICMPv6TimeExceeded {
			t.Fatalf("%d bytes, type %d, %v; want Time Exceeded", n, buf[0], err)
		}
		if got := w.counted(t)["hop_limit_exceeded"].Packets; got != 1 {
			t.Errorf("%d packets were left for their hop limit, want 1", got)
		}
	})
}

// icmp6 receives what ICMPv6 tells the IPv6 host, errors and echo replies.
func (w *liveWorld) icmp6(t *testing.T) net.PacketConn {
	t.Helper()
	var c net.PacketConn
	w.host6.Do(t, func() (err error) {
		if c, err = net.ListenPacket("ip6:ipv6-icmp", live6.String()); err != nil {
			return err
		}
		var f ipv6.ICMPFilter
		f.SetAll(true)
		for _, typ := range []ipv6.ICMPType{ipv6.ICMPTypeDestinationUnreachable, ipv6.ICMPTypeTimeExceeded, ipv6.ICMPTypeEchoReply} {
			f.Accept(typ)
		}
		return ipv6.NewPacketConn(c).SetICMPFilter(&f)
	})
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(liveTimeout)); err != nil {
		t.Fatal(err)
	}
	return c
}

// A ping is answered, and a port where nobody listens says so.
func TestNAT64LiveICMP(t *testing.T) {
	onHooks(t, func(t *testing.T, w *liveWorld, at hook) {
		c := w.icmp6(t)
		to := &net.IPAddr{IP: live4in6.AsSlice()}
		buf := make([]byte, 2000)
		for _, size := range []int{0, 1, 56, 1200} {
			m := append([]byte{packet.ICMPv6EchoRequest, 0, 0, 0, 0x12, 0x34, 0, byte(size)}, make([]byte, size)...)
			if _, err := c.WriteTo(m, to); err != nil {
				t.Fatal(err)
			}
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				t.Fatalf("ping of %d bytes: %v; %v", size, err, w.counted(t))
			}
			m[0] = packet.ICMPv6EchoReply
			m[2], m[3] = buf[2], buf[3]
			if string(buf[:n]) != string(m) || from.String() != to.String() {
				t.Errorf("ping of %d bytes: %x from %s", size, buf[:n], from)
			}
		}
		w.counted(t)
		client := listen(t, w.host6, "udp6", "["+live6.String()+"]:0")
		if _, err := client.WriteToUDP([]byte("nobody"), &net.UDPAddr{IP: live4in6.AsSlice(), Port: 9}); err != nil {
			t.Fatal(err)
		}
		n, from, err := c.ReadFrom(buf)
		if err != nil || n < 2 || buf[0] != packet.ICMPv6Unreachable || buf[1] != 4 || from.String() != to.String() {
			t.Fatalf("%d bytes of type %d code %d from %v, %v; %v", n, buf[0], buf[1], from, err, w.counted(t))
		}
		if q := packet.IPv6(buf[8:n]); q.Src() != live6 || q.Dst() != live4in6 {
			t.Errorf("the error is about %s to %s", q.Src(), q.Dst())
		}
		if got := w.counted(t); got["to6_forwarded"].Packets != 1 {
			t.Errorf("the programs counted %v", got)
		}
	})
}

// TCP carries much both ways; at tc its segments stay together.
func TestNAT64LiveTCP(t *testing.T) {
	onHooks(t, func(t *testing.T, w *liveWorld, at hook) {
		const much = 4 << 20
		data := make([]byte, much)
		r := rand.NewChaCha8([32]byte{1})
		if _, err := r.Read(data); err != nil {
			t.Fatal(err)
		}
		want := sha256.Sum256(data)
		var l net.Listener
		w.host4.Do(t, func() (err error) {
			l, err = net.Listen("tcp4", live4.String()+":5001")
			return err
		})
		defer l.Close()
		echoed := make(chan error, 1)
		go func() { echoed <- echoAll(l) }()
		var c net.Conn
		w.host6.Do(t, func() (err error) {
			c, err = net.DialTimeout("tcp6", "["+live4in6.String()+"]:5001", liveTimeout)
			return err
		})
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(liveTimeout)); err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		go func() {
			_, err := c.Write(data)
			sent <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
		}()
		h := sha256.New()
		n, err := io.Copy(h, c)
		if err := errors.Join(err, <-sent, <-echoed); err != nil || n != much || [32]byte(h.Sum(nil)) != want {
			t.Fatalf("%d bytes came back: %v; %v", n, err, w.counted(t))
		}
		counts := w.counted(t)
		for _, way := range []string{"to4_forwarded", "to6_forwarded"} {
			x := counts[way]
			t.Logf("%s: %d bytes in %d packets", way, x.Bytes, x.Packets)
			if x.Bytes < much {
				t.Errorf("%s: %d bytes only", way, x.Bytes)
			}
			if at == inTC && x.Bytes/x.Packets < 4000 {
				t.Errorf("%s: segments did not stay together: %d bytes in %d packets", way, x.Bytes, x.Packets)
			}
		}
		delete(counts, "to4_forwarded")
		delete(counts, "to6_forwarded")
		if len(counts) != 0 {
			t.Errorf("the programs left packets: %v", counts)
		}
	})
}

// echoAll sends all that one connection brings back.
func echoAll(l net.Listener) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(liveTimeout)); err != nil {
		return err
	}
	data, err := io.ReadAll(c)
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	_, err = c.Write(data)
	return err
}
