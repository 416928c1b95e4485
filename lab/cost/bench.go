// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
	"github.com/isthmus-net/isthmus/teredo/teredobpf"
)

// The relay that is measured, its server, and the first of the IPv6 hosts.
var (
	relayAddr = netip.MustParseAddrPort("192.0.2.3:3545")
	server    = netip.MustParseAddr("203.0.113.9")
	host      = netip.MustParseAddr("2001:db8:1::")
	inMAC     = net.HardwareAddr{2, 0, 0x5e, 0, 0x20, 1}
	nextMAC   = net.HardwareAddr{2, 0, 0x5e, 0, 0x20, 2}
)

// hosts is how many IPv6 hosts the clients speak to.
const hosts = 256

// bench is a relay's tables in a namespace, and the programs over them.
type bench struct {
	rig
	peers   int
	fast    *teredobpf.Relay
	objects programsObjects
	table   []programsTemplate

	toClient, ofClient []byte // frames of the size that is measured
}

func (b *bench) open() error {
	device, tunnel, err := b.enter()
	if err != nil {
		return err
	}
	b.fast, err = teredobpf.LoadRelay(teredobpf.RelayConfig{Name: "cost", Buckets: peer.HotBytes(b.peers) / peer.BucketBytes})
	if err != nil {
		return err
	}
	b.tables = b.fast.Object
	if err := b.set(device, tunnel); err != nil {
		return err
	}
	if err := b.loadBoth(); err != nil {
		return err
	}
	return b.fill()
}

// set tells the programs of the relay.
func (b *bench) set(device, tunnel int) error {
	err := b.fast.Set(teredobpf.Settings{
		Seed: [5]uint64(seed), Prefixes: []netip.Prefix{teredo.Prefix}, Serve: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")},
		Own: []netip.Addr{relayAddr.Addr()}, Source: relayAddr.Addr(), Port: relayAddr.Port(),
		MTU: 1280, Refresh: time.Hour, Memory: time.Hour, Tunnel: tunnel,
	})
	if err != nil {
		return err
	}
	b.fast.Beat(time.Hour)
	// What the follower of routes says where a default route is all there is.
	classes := b.fast.Routes4()
	for i := range classes {
		classes[i] = 1
	}
	classes[192<<8] = 0 // our own network
	return serve(b.fast.SetDevice, device)
}

var seed = peer.Seed{101, 103, 107, 109, 113}

// loadBoth loads the programs that are measured.
func (b *bench) loadBoth() error {
	spec, err := loadPrograms()
	if err := b.load(spec, err, "templates", "template_mask", b.peers, &b.objects); err != nil {
		return err
	}
	b.turn = b.objects.Turn
	b.table, err = mapRecords[programsTemplate](&b.rig, b.objects.Templates, b.peers)
	return err
}

// fill makes peers, and a template for each, in random order.
func (b *bench) fill() error {
	now := peer.Instant(fastpath.Monotonic())
	prefix := teredo.Prefix.Addr().As16()
	hot, err := peer.OpenHot(b.fast.Peers(), b.peers, [][4]byte{[4]byte(prefix[:4])}, seed, nil, now)
	if err != nil {
		return err
	}
	for i, n := range order(b.peers) {
		addr, mapped := client(n)
		key := addr.As16()
		if why := hot.Insert(&key, mapped, now, time.Hour, false); why != peer.Accepted {
			return fmt.Errorf("peer %d of %d found no place", n, b.peers)
		}
		b.table[i] = template(addr, mapped, uint16(i%hosts))
	}
	return nil
}

// client is the n-th client.
func client(n int) (netip.Addr, netip.AddrPort) {
	mapped := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18 + byte(n>>16&1), byte(n >> 8), byte(n)}), uint16(1024+n>>17))
	return teredo.Addr{Prefix: teredo.Prefix, Server: server, Flags: teredo.Flags(n * 7919), Mapped: mapped}.IP(), mapped
}

// template is what of the frames depends on a client, but for the checksums, which
// depend on the size too.
func template(addr netip.Addr, mapped netip.AddrPort, number uint16) programsTemplate {
	key, ip := addr.As16(), mapped.Addr().As4()
	return programsTemplate{
		Mapped: binary.NativeEndian.Uint32(ip[:]),
		Client: [3]uint32{binary.NativeEndian.Uint32(key[4:]), binary.NativeEndian.Uint32(key[8:]), binary.NativeEndian.Uint32(key[12:])},
		Port:   swap(mapped.Port()), Host: swap(number),
	}
}

// swap turns a number round to network order.
func swap(n uint16) uint16 { return n<<8 | n>>8 }

// onThread runs f on a thread of its own, which ends with it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// stay keeps the thread on the first CPU that it may have.
func stay() error {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("cannot tell the thread's CPUs: %w", err)
	}
	cpu := 0
	for !all.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("cannot keep the thread on CPU %d: %w", cpu, err)
	}
	return nil
}

// inside runs f in the namespace.
func (r *rig) inside(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(r.ns); err != nil {
			return fmt.Errorf("cannot enter the namespace: %w", err)
		}
		if r.oneCPU {
			if err := stay(); err != nil {
				return err
			}
		}
		return f()
	})
}

// makeHost makes a device with a gateway for each family, in the thread's namespace.
func makeHost() (device, tunnel int, err error) {
	for _, name := range []string{"out", "tun"} {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		if name == "out" {
			attrs.HardwareAddr = inMAC
		}
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name + "p"}); err != nil {
			return 0, 0, fmt.Errorf("cannot make a device: %w", err)
		}
		for _, end := range []string{name, name + "p"} {
			link, err := netlink.LinkByName(end)
			if err != nil {
				return 0, 0, err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return 0, 0, err
			}
			if end == "out" {
				device = link.Attrs().Index
			}
			if end == "tun" {
				tunnel = link.Attrs().Index
			}
		}
	}
	for _, name := range []string{"ipv6/conf/all", "ipv4/conf/tun"} {
		if err := os.WriteFile("/proc/sys/net/"+name+"/forwarding", []byte("1"), 0); err != nil {
			return 0, 0, err
		}
	}
	return device, tunnel, makeRoutes(device)
}

func makeRoutes(device int) error {
	link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: device}}
	for _, r := range []struct{ own, gateway, to string }{
		{"192.0.2.3/24", "192.0.2.1", "0.0.0.0/0"},
		{"2001:db8:0:1::1/64", "2001:db8:0:1::2", "2001:db8:1::/48"},
	} {
		own, err := netlink.ParseAddr(r.own)
		if err != nil {
			return err
		}
		own.Flags = unix.IFA_F_NODAD
		_, to, err := net.ParseCIDR(r.to)
		if err != nil {
			return err
		}
		gateway := net.ParseIP(r.gateway)
		err = errors.Join(
			netlink.AddrAdd(link, own),
			netlink.NeighSet(&netlink.Neigh{LinkIndex: device, IP: gateway, HardwareAddr: nextMAC, State: netlink.NUD_PERMANENT}),
			netlink.RouteAdd(&netlink.Route{Dst: to, Gw: gateway, LinkIndex: device}),
		)
		if err != nil {
			return fmt.Errorf("cannot route %s: %w", r.to, err)
		}
	}
	return nil
}

// innerPacket is an IPv6 packet of n bytes with UDP.
func innerPacket(src, dst netip.Addr, n int) []byte {
	b := make([]byte, n-packet.IPv6HeaderLen)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	b[6], b[7] = 0x12, 0x34 // what it is matters to no one here, but that it is there
	return append(packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, len(b), src, dst), b...)
}

func ethernet(kind uint16, payload []byte) []byte {
	f := append(bytes.Clone(inMAC), nextMAC...)
	return append(binary.BigEndian.AppendUint16(f, kind), payload...)
}

// prepare makes the frames of a size, and the checksums in the templates.
func (b *bench) prepare(size int) error {
	a, mapped := client(0)
	inner := innerPacket(a, host, size)
	b.toClient = ethernet(0x86dd, innerPacket(host, a, size))
	b.ofClient = ethernet(0x0800, outerPacket(mapped, inner))
	head := packet.Sum(packet.Sum(0, inner[:4]), inner[6:8]) + uint64(^uint16(packet.ProtoUDP))
	ip, udp := b.ofClient[14:34], b.ofClient[34:42]
	for i := range b.table {
		t := &b.table[i]
		binary.NativeEndian.PutUint32(ip[12:], t.Mapped)
		binary.NativeEndian.PutUint16(udp, t.Port)
		t.HeaderChecksum = swap(^packet.Fold(packet.Sum(0, ip)))
		pseudo := packet.Sum(packet.ProtoUDP+uint64(len(udp)+size), ip[12:20])
		t.UdpChecksum = swap(^packet.Fold(packet.Sum(pseudo+head, udp)))
	}
	return errors.Join(
		b.objects.EncapFrame.Set([56]byte(b.toClient[:56])),
		b.objects.DecapFrame.Set([88]byte(b.ofClient[:88])),
	)
}

// outerPacket puts an IPv4 and a UDP header without checksums around a packet.
func outerPacket(from netip.AddrPort, inner []byte) []byte {
	b := make([]byte, 28, 28+len(inner))
	b[0], b[8], b[9] = 0x45, 57, packet.ProtoUDP
	binary.BigEndian.PutUint16(b[2:], uint16(28+len(inner)))
	copy(b[12:], from.Addr().AsSlice())
	copy(b[16:], relayAddr.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[20:], from.Port())
	binary.BigEndian.PutUint16(b[22:], relayAddr.Port())
	binary.BigEndian.PutUint16(b[24:], uint16(8+len(inner)))
	return append(b, inner...)
}
