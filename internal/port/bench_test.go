// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// bench is a relay without an engine between an IPv6 host and an IPv4 host:
//
//	host6 --veth-- relay: TUN <-> UDP --veth-- host4
//
// What it costs is what this package and the kernel cost.
type bench struct {
	tun  *TUN
	udp  *UDP
	peer netip.AddrPort // of host4
	in6  int            // packet socket in host6
	in4  int            // packet socket in host4
	out6 *net.UDPConn   // what arrives at host6
	out4 *net.UDPConn   // what arrives at host4
	to6  []byte         // frame for host4 to send: UDP with an IPv6 packet inside
	to4  []byte         // frame for host6 to send: an IPv6 packet
}

var (
	host6Addr  = netip.MustParseAddr("2001:db8:6::2")
	relayAddr6 = netip.MustParseAddr("2001:db8:6::1")
	teredoAddr = netip.MustParseAddr("2001:db8:4::4") // stands for a client's
	host4Addr  = netip.MustParseAddr("192.0.2.2")
	relayAddr4 = netip.MustParseAddr("192.0.2.1")
)

const benchPort = 3544

// newBench builds the two hosts and the relay's ports in namespaces. The
// calling thread is the relay's.
func newBench(b *testing.B, size int, offload bool) *bench {
	h := inNamespace(b)
	relayNS, err := netns.Get()
	must(b, err)
	defer relayNS.Close()
	for _, name := range []string{"ipv6", "ipv4"} {
		must(b, os.WriteFile("/proc/sys/net/"+name+"/conf/all/forwarding", []byte("1"), 0))
	}
	w := &bench{peer: netip.AddrPortFrom(host4Addr, benchPort)}
	w.host(b, h, relayNS, "v6", netip.PrefixFrom(relayAddr6, 64), netip.PrefixFrom(host6Addr, 64), func(mac []byte, sock int) {
		w.in6 = sock
		w.out6 = udpSocket(b, "udp6", host6Addr)
		w.to4 = append(mac, ipv6UDP(host6Addr, teredoAddr, size)...)
	})
	w.host(b, h, relayNS, "v4", netip.PrefixFrom(relayAddr4, 24), netip.PrefixFrom(host4Addr, 24), func(mac []byte, sock int) {
		w.in4 = sock
		w.out4 = udpSocket(b, "udp4", host4Addr)
		w.to6 = append(mac, ipv4UDP(host4Addr, relayAddr4, ipv6UDP(teredoAddr, host6Addr, size))...)
	})
	w.tun = openTUN(b, h, TUNConfig{Name: "teredo", Forwarding: true, Offload: offload})
	must(b, h.AddRoute(Route{Dst: netip.PrefixFrom(teredoAddr, 64).Masked(), Link: "teredo"}))
	w.udp, err = ListenUDP(UDPConfig{Addr: netip.AddrPortFrom(relayAddr4, benchPort)})
	must(b, err)
	b.Cleanup(func() { w.udp.Close() })
	return w
}

// host makes a veth pair with a host at its far end, and calls open in the
// host's namespace with an Ethernet header towards the relay and a packet
// socket.
func (w *bench) host(b *testing.B, h *Host, relayNS netns.NsHandle, name string, near, far netip.Prefix, open func(mac []byte, sock int)) {
	must(b, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: 1000}, PeerName: "eth0"}))
	must(b, h.SetUp(name))
	must(b, h.AddAddr(name, near))
	relay, err := netlink.LinkByName(name)
	must(b, err)
	eth, err := netlink.LinkByName("eth0")
	must(b, err)
	hostNS, err := netns.New()
	must(b, err)
	b.Cleanup(func() { hostNS.Close() })
	must(b, netns.Set(relayNS))
	must(b, netlink.LinkSetNsFd(eth, int(hostNS)))
	must(b, h.handle.NeighSet(neighbour(relay, far.Addr(), eth)))
	must(b, netns.Set(hostNS))
	defer func() { must(b, netns.Set(relayNS)) }()
	hh, err := OpenHost()
	must(b, err)
	defer hh.handle.Close() // the namespace undoes the rest
	must(b, hh.SetUp("eth0"))
	must(b, hh.SetUp("lo"))
	must(b, hh.AddAddr("eth0", far))
	gateway := Route{Dst: netip.MustParsePrefix("::/0"), Link: "eth0", Gateway: near.Addr()}
	if near.Addr().Is4() {
		gateway.Dst = netip.MustParsePrefix("0.0.0.0/0")
	}
	must(b, hh.AddRoute(gateway))
	eth, err = netlink.LinkByName("eth0")
	must(b, err)
	must(b, hh.handle.NeighSet(neighbour(eth, near.Addr(), relay)))
	sock, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	must(b, err)
	b.Cleanup(func() { unix.Close(sock) })
	must(b, unix.Bind(sock, &unix.SockaddrLinklayer{Ifindex: eth.Attrs().Index}))
	must(b, unix.SetsockoptInt(sock, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1))
	mac := append(slices.Clone(relay.Attrs().HardwareAddr), eth.Attrs().HardwareAddr...)
	if near.Addr().Is4() {
		mac = append(mac, 0x08, 0x00)
	} else {
		mac = append(mac, 0x86, 0xdd)
	}
	open(mac, sock)
}

// neighbour is a fixed neighbour entry, so that nothing is resolved while
// measuring.
func neighbour(at netlink.Link, addr netip.Addr, of netlink.Link) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: at.Attrs().Index, IP: addr.AsSlice(), HardwareAddr: of.Attrs().HardwareAddr, State: unix.NUD_PERMANENT}
}

func udpSocket(b *testing.B, network string, addr netip.Addr) *net.UDPConn {
	c, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, benchPort)))
	must(b, err)
	b.Cleanup(func() { c.Close() })
	raw, err := c.SyscallConn()
	must(b, err)
	must(b, raw.Control(func(fd uintptr) {
		must(b, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1))
	}))
	return c
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// ipv6UDP is a UDP packet of size bytes, IPv6 header included.
func ipv6UDP(src, dst netip.Addr, size int) []byte {
	p := make([]byte, size)
	p[0] = 0x60
	binary.BigEndian.PutUint16(p[4:], uint16(size-40))
	p[6], p[7] = packet.ProtoUDP, 64
	copy(p[8:], src.AsSlice())
	copy(p[24:], dst.AsSlice())
	binary.BigEndian.PutUint16(p[40:], benchPort)
	binary.BigEndian.PutUint16(p[42:], benchPort)
	binary.BigEndian.PutUint16(p[44:], uint16(size-40))
	q := packet.IPv6(p)
	binary.BigEndian.PutUint16(p[46:], packet.Checksum(q.SrcBytes(), q.DstBytes(), packet.ProtoUDP, p[40:]))
	return p
}

// ipv4UDP wraps a payload in UDP without checksum and IPv4.
func ipv4UDP(src, dst netip.Addr, payload []byte) []byte {
	p := make([]byte, 28, 28+len(payload))
	p[0], p[8], p[9] = 0x45, 64, packet.ProtoUDP
	binary.BigEndian.PutUint16(p[2:], uint16(28+len(payload)))
	copy(p[12:], src.AsSlice())
	copy(p[16:], dst.AsSlice())
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(p[i])<<8 | uint32(p[i+1])
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum&0xffff+sum>>16))
	binary.BigEndian.PutUint16(p[20:], benchPort)
	binary.BigEndian.PutUint16(p[22:], benchPort)
	binary.BigEndian.PutUint16(p[24:], uint16(8+len(payload)))
	return append(p, payload...)
}

// encapsulate moves packets from the TUN to UDP until the ports are closed.
func (w *bench) encapsulate() {
	pkts, dgrams := make([][]byte, MaxBatch), make([]packet.Datagram, MaxBatch)
	for {
		n, err := w.tun.ReadBatch(pkts)
		if err != nil {
			return
		}
		for i, p := range pkts[:n] {
			dgrams[i] = packet.Datagram{To: w.peer, Payload: p}
		}
		w.udp.WriteBatch(dgrams[:n])
	}
}

// decapsulate moves packets from UDP to the TUN until the ports are closed.
func (w *bench) decapsulate() {
	msgs, pkts := make([]Message, MaxBatch), make([][]byte, MaxBatch)
	for {
		n, err := w.udp.ReadBatch(msgs)
		if err != nil {
			return
		}
		for i := range msgs[:n] {
			pkts[i] = msgs[i].Payload
		}
		w.tun.WriteBatch(pkts[:n])
	}
}

// flood sends copies of a frame until stop is set.
func flood(sock int, frame []byte, stop *atomic.Bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var hdrs [MaxBatch]mmsghdr
	iov := unix.Iovec{Base: &frame[0]}
	iov.SetLen(len(frame))
	for i := range hdrs {
		hdrs[i].hdr.Iov = &iov
		hdrs[i].hdr.SetIovlen(1)
	}
	for !stop.Load() {
		unix.Syscall6(unix.SYS_SENDMMSG, uintptr(sock), uintptr(unsafe.Pointer(&hdrs[0])), MaxBatch, 0, 0, 0)
	}
}

// each runs a benchmark for both directions, two sizes of packet, and a TUN with
// and without offload.
func each(b *testing.B, run func(b *testing.B, path benchPath)) {
	for _, size := range []int{64, 1280} {
		for _, offload := range []bool{false, true} {
			name := fmt.Sprintf("%dB/offload=%t", size, offload)
			b.Run("encapsulate/"+name, func(b *testing.B) {
				w := newBench(b, size, offload)
				go w.encapsulate()
				run(b, benchPath{w.in6, w.to4, w.out4, size, &w.udp.counters})
			})
			b.Run("decapsulate/"+name, func(b *testing.B) {
				w := newBench(b, size, offload)
				go w.decapsulate()
				run(b, benchPath{w.in4, w.to6, w.out6, size - 48, &w.tun.counters})
			})
		}
	}
}

// benchPath is one direction through the relay.
type benchPath struct {
	sock    int          // where frames go in
	frame   []byte       // what goes in
	sink    *net.UDPConn // where datagrams arrive
	payload int          // length of each
	out     *counters    // of the relay's port that sends
}

// BenchmarkThroughput counts packets a second under more load than passes.
func BenchmarkThroughput(b *testing.B) {
	each(b, func(b *testing.B, path benchPath) { throughput(b, path) })
}

// BenchmarkLatency sends single packets, 0.2 ms apart, and reports how long
// each is on its way between the hosts.
func BenchmarkLatency(b *testing.B) {
	each(b, func(b *testing.B, path benchPath) { latency(b, path) })
}

// throughput floods until the port has written b.N packets.
func throughput(b *testing.B, path benchPath) {
	var stop atomic.Bool
	go flood(path.sock, path.frame, &stop)
	defer stop.Store(true)
	start := time.Now()
	calls := path.out.writeCalls.Load()
	b.ReportAllocs()
	b.ResetTimer()
	for path.out.writePackets.Load() < uint64(b.N) {
		time.Sleep(time.Millisecond)
	}
	b.StopTimer()
	n := path.out.writePackets.Load()
	b.ReportMetric(float64(n)/time.Since(start).Seconds()/1000, "kpps")
	b.ReportMetric(float64(n)/float64(path.out.writeCalls.Load()-calls), "packets/call")
}

// latency reports median and 99th percentile.
func latency(b *testing.B, path benchPath) {
	samples := make([]time.Duration, 0, b.N)
	buf, oob := make([]byte, 2048), make([]byte, 128)
	for b.Loop() {
		for start := time.Now(); time.Since(start) < 200*time.Microsecond; {
		}
		sent := time.Now()
		if _, err := unix.Write(path.sock, path.frame); err != nil {
			b.Fatal(err)
		}
		must(b, path.sink.SetReadDeadline(sent.Add(time.Second)))
		for {
			n, oobn, _, _, err := path.sink.ReadMsgUDP(buf, oob)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				b.Fatal("a packet was lost")
			}
			must(b, err)
			if n != path.payload {
				continue // the kernel's own, from when the device came up
			}
			msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
			must(b, err)
			at := (*unix.Timespec)(unsafe.Pointer(&msgs[0].Data[0]))
			samples = append(samples, time.Unix(at.Unix()).Sub(sent.Round(0)))
			break
		}
	}
	slices.Sort(samples)
	b.ReportMetric(float64(samples[len(samples)/2].Nanoseconds())/1000, "us-median")
	b.ReportMetric(float64(samples[len(samples)*99/100].Nanoseconds())/1000, "us-p99")
}
