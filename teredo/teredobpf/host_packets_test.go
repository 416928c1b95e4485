// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredobpf

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/attach"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// coarse is how far the programs' clock may lag behind, which a machine that stands
// still does not set.
const coarse = time.Second

// hostRig is a host with a TUN device and the programs, and a wire to a neighbour:
//
//	teredo [programs] port 192.0.2.1 -- 192.0.2.9 host
//
// Test runs of the kernel know no device without Ethernet headers, so packets are
// put on real ones, and taken from where they come out.
type hostRig struct {
	*fastpathtest.Wire
	host    *Host
	tunnel  int // index
	port    int
	tun     int // what the engine reads
	fromTUN int // packet sockets
	onTUN   int
	onWire  int
	toWire  int
}

var (
	rigOwn     = netip.MustParseAddr("2001:0:cb00:7101:0:f221:3fff:fdfe")
	rigPeer    = netip.MustParseAddr("2001:0:cb00:7101:0:f220:3fff:fdf6")
	rigOwn4    = netip.MustParseAddrPort("192.0.2.1:3551")
	rigPeer4   = netip.MustParseAddrPort("192.0.2.9:3550")
	rigNearMAC = []byte{2, 0, 0, 0, 0, 1}
	rigFarMAC  = []byte{2, 0, 0, 0, 0, 9}
)

// onKernels runs a test as on this kernel and, with clsact and the way around a flag
// that is missing there, as on one before 6.3.
func onKernels(t *testing.T, test func(t *testing.T, r *hostRig)) {
	t.Run("this kernel", func(t *testing.T) { test(t, newHostRig(t, false)) })
	t.Run("an old kernel", func(t *testing.T) { test(t, newHostRig(t, true)) })
}

func newHostRig(t *testing.T, old bool) *hostRig {
	t.Helper()
	testutil.NeedRoot(t)
	r := &hostRig{Wire: fastpathtest.NewWire(t, func(v *netlink.Veth) {
		v.HardwareAddr, v.PeerHardwareAddr = rigNearMAC, rigFarMAC
	})}
	r.Near.Do(t, func() error {
		tun := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "teredo", MTU: 1500}, Mode: netlink.TUNTAP_MODE_TUN, Flags: netlink.TUNTAP_NO_PI, Queues: 1}
		if err := netlink.LinkAdd(tun); err != nil {
			return err
		}
		t.Cleanup(func() {
			for _, f := range tun.Fds {
				f.Close()
			}
		})
		r.tun = int(tun.Fds[0].Fd())
		// The host must say nothing by itself, so that counts are exact.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/teredo/disable_ipv6", []byte("1"), 0); err != nil {
			return err
		}
		port, err := netlink.LinkByName("port")
		if err != nil {
			return err
		}
		teredo, err := netlink.LinkByName("teredo")
		if err != nil {
			return err
		}
		r.tunnel, r.port = teredo.Attrs().Index, port.Attrs().Index
		addr, _ := netlink.ParseAddr("192.0.2.1/24")
		neighbour := &netlink.Neigh{LinkIndex: r.port, State: netlink.NUD_PERMANENT, IP: rigPeer4.Addr().AsSlice(), HardwareAddr: rigFarMAC}
		return errors.Join(netlink.AddrAdd(port, addr), netlink.NeighSet(neighbour), netlink.LinkSetUp(teredo),
			r.packetSocket(t, &r.fromTUN, r.tunnel, 0), r.packetSocket(t, &r.onTUN, r.tunnel, unix.ETH_P_IPV6))
	})
	r.Far.Do(t, func() error {
		l, err := netlink.LinkByName("host")
		if err != nil {
			return err
		}
		return errors.Join(r.packetSocket(t, &r.onWire, l.Attrs().Index, unix.ETH_P_IP), r.packetSocket(t, &r.toWire, l.Attrs().Index, 0))
	})
	cfg := testHostConfig(r.tunnel)
	cfg.old = old
	r.host = loadTestHost(t, cfg)
	r.Near.Do(t, func() error {
		a, err := attach.Attach(r.host.Programs(), attach.Config{Name: "rig", Mode: fastpath.ModeTC, Host: true, Tunnel: r.tunnel, Devices: []string{"port"}, Classic: old})
		if err != nil {
			return err
		}
		t.Cleanup(func() { r.Near.Do(t, a.Close) })
		return nil
	})
	return r
}

// packetSocket opens a packet socket on a device.
func (r *hostRig) packetSocket(t *testing.T, fd *int, index, proto int) (err error) {
	if *fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	s := *fd
	t.Cleanup(func() { unix.Close(s) })
	timeout := unix.NsecToTimeval(int64(testutil.Patience))
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return err
	}
	if proto == 0 {
		return nil
	}
	return unix.Bind(s, &unix.SockaddrLinklayer{Ifindex: index, Protocol: bits.ReverseBytes16(uint16(proto))})
}

func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano())
}

// known makes the peer a proved one that was heard and sent to so long ago.
func (r *hostRig) known(t *testing.T, heard, sent time.Duration, change ...func(*Endpoint)) {
	t.Helper()
	e := Endpoint{Mapping: rigPeer4, Own: rigOwn4, Device: r.port, Heard: monotonic() - heard, Sent: monotonic() - sent}
	for _, f := range change {
		f(&e)
	}
	key := rigPeer.As16()
	if err := r.host.Put(1, &key, e); err != nil {
		t.Fatal(err)
	}
}

// counts returns what the counters have grown by since before.
func (r *hostRig) counts(t *testing.T, before []fastpath.Counter) map[string]uint64 {
	t.Helper()
	now, err := r.host.Counters()
	if err != nil {
		t.Fatal(err)
	}
	grown := map[string]uint64{}
	for i, c := range now {
		if before != nil && c.Packets > before[i].Packets {
			grown[c.Reason] = c.Packets - before[i].Packets
		}
	}
	return grown
}

// take waits for the packet that a socket gets next; none is one that does not come.
func take(fd int) []byte {
	buf := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return nil
	}
	return buf[:n]
}

// forget empties a socket.
func forget(fd int) {
	buf := make([]byte, 4096)
	for {
		if _, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT); err != nil {
			return
		}
	}
}

// engine reads what the engine would, none when there is nothing within a time.
func (r *hostRig) engine(wait time.Duration) []byte {
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(r.tun), Events: unix.POLLIN}}, int(wait.Milliseconds())); err != nil || n == 0 {
		return nil
	}
	buf := make([]byte, 4096)
	n, err := unix.Read(r.tun, buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

// inner is an IPv6 packet with a transport header that has its checksum.
func inner(src, dst netip.Addr, next byte, payload []byte) packet.IPv6 {
	p := packet.IPv6(append(packet.AppendIPv6Header(nil, next, 64, len(payload), src, dst), payload...))
	place := map[byte]int{packet.ProtoTCP: 16, packet.ProtoUDP: 6, packet.ProtoICMPv6: 2}[next]
	if place > 0 && len(payload) >= place+2 {
		binary.BigEndian.PutUint16(p[40+place:], packet.Checksum(p.SrcBytes(), p.DstBytes(), next, p[40:]))
	}
	return p
}

func udp(n int) []byte {
	b := make([]byte, 8+n)
	binary.BigEndian.PutUint16(b, 5000)
	binary.BigEndian.PutUint16(b[2:], 7)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	return b
}

func tcp() []byte {
	b := make([]byte, 20)
	b[0], b[3], b[12], b[13] = 0x13, 80, 5<<4, 0x10
	return b
}

func echo() []byte { return append([]byte{128, 0, 0, 0, 0, 1, 0, 1}, "echo"...) }

// outerOf checks the tunnel header of a frame, and returns what is in it.
func outerOf(t *testing.T, frame []byte, wantSum bool) []byte {
	t.Helper()
	if len(frame) < 42 {
		t.Fatalf("frame %x", frame)
	}
	ip, u := frame[14:34], frame[34:]
	got := []any{frame[:14], ip[:2], binary.BigEndian.Uint16(ip[2:]), ip[6:10], ip[12:20], u[:4], binary.BigEndian.Uint16(u[4:])}
	want := []any{
		slices.Concat(rigFarMAC, rigNearMAC, []byte{8, 0}), []byte{0x45, 0}, uint16(len(frame) - 14), []byte{0, 0, 64, 17},
		slices.Concat(rigOwn4.Addr().AsSlice(), rigPeer4.Addr().AsSlice()),
		[]byte{byte(rigOwn4.Port() >> 8), byte(rigOwn4.Port() & 0xff), byte(rigPeer4.Port() >> 8), byte(rigPeer4.Port() & 0xff)},
		uint16(len(u)),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outer header (-want +got):\n%s", diff)
	}
	if packet.Fold(packet.Sum(0, ip)) != 0xffff {
		t.Error("the outer IPv4 checksum is wrong")
	}
	sum := binary.BigEndian.Uint16(u[6:])
	pseudo := packet.Sum(packet.Sum(uint64(17+len(u)), ip[12:20]), u)
	if wantSum != (sum != 0) || sum != 0 && packet.Fold(pseudo) != 0xffff {
		t.Errorf("the outer UDP checksum is %#04x, of a datagram with the sum %#04x", sum, packet.Fold(pseudo))
	}
	return u[8:]
}

// What the host sends: forwarded as it is, or left to the engine as it is.
func TestHostEgressPackets(t *testing.T) {
	onKernels(t, func(t *testing.T, r *hostRig) {
		none := udp(4)
		halved := inner(rigOwn, rigPeer, packet.ProtoUDP, none)
		pseudo := packet.Sum(packet.Sum(uint64(len(none)+17), halved[8:24]), halved[24:40])
		binary.BigEndian.PutUint16(halved[46:], packet.Fold(pseudo))
		other := netip.MustParseAddr("2001:db8::1")
		now := func(*Endpoint) {}
		for _, tt := range []struct {
			name   string
			packet []byte
			heard  time.Duration
			change func(*Endpoint)
			want   string
			noSum  bool
		}{
			{"UDP", inner(rigOwn, rigPeer, packet.ProtoUDP, udp(100)), 0, now, "host_encap_forwarded", false},
			{"UDP of odd length", inner(rigOwn, rigPeer, packet.ProtoUDP, udp(33)), 0, now, "host_encap_forwarded", false},
			{"UDP with nothing in it", inner(rigOwn, rigPeer, packet.ProtoUDP, udp(0)), 0, now, "host_encap_forwarded", false},
			{"TCP", inner(rigOwn, rigPeer, packet.ProtoTCP, tcp()), 0, now, "host_encap_forwarded", false},
			{"ping", inner(rigOwn, rigPeer, packet.ProtoICMPv6, echo()), 0, now, "host_encap_forwarded", false},
			{"of the largest size", inner(rigOwn, rigPeer, packet.ProtoUDP, udp(1280-48)), 0, now, "host_encap_forwarded", false},
			{"checksum left to hardware", halved, 0, now, "host_encap_forwarded", true},
			{"UDP without a checksum", func() []byte {
				p := inner(rigOwn, rigPeer, packet.ProtoUDP, udp(4))
				p[46], p[47] = 0, 0
				return p
			}(), 0, now, "host_encap_forwarded", true},
			{"peer heard not quite 30 min ago", inner(rigOwn, rigPeer, packet.ProtoTCP, tcp()), 29 * time.Minute, now, "host_encap_forwarded", false},
			{"peer heard a moment later than now", inner(rigOwn, rigPeer, packet.ProtoTCP, tcp()), -time.Second, now, "host_encap_forwarded", false},
			{"peer heard 30 min ago", inner(rigOwn, rigPeer, packet.ProtoTCP, tcp()), 30*time.Minute + coarse, now, "expired_peer", false},
			{"too large", inner(rigOwn, rigPeer, packet.ProtoUDP, udp(1281-48)), 0, now, "too_big", false},
			{"to an unknown peer", inner(rigOwn, other, packet.ProtoUDP, udp(4)), 0, now, "host_direct", false},
			{"from another address", inner(other, rigPeer, packet.ProtoUDP, udp(4)), 0, now, "host_direct", false},
			{"bubble", inner(rigOwn, rigPeer, packet.ProtoNone, nil), 0, now, "bubble", false},
			{"hop-by-hop options", inner(rigOwn, rigPeer, 0, make([]byte, 16)), 0, now, "next_header", false},
			{"fragment", inner(rigOwn, rigPeer, 44, make([]byte, 16)), 0, now, "next_header", false},
			{"SCTP", inner(rigOwn, rigPeer, 132, make([]byte, 16)), 0, now, "next_header", false},
			{"neighbour solicitation", inner(rigOwn, rigPeer, packet.ProtoICMPv6, append([]byte{135}, make([]byte, 23)...)), 0, now, "next_header", false},
			{"half a UDP header", inner(rigOwn, rigPeer, packet.ProtoUDP, make([]byte, 4)), 0, now, "short_payload", false},
			{"ping while a test may be answered", inner(rigOwn, rigPeer, packet.ProtoICMPv6, echo()), 0, func(e *Endpoint) { e.Tested = true }, "busy_peer", false},
			{"TCP while a test may be answered", inner(rigOwn, rigPeer, packet.ProtoTCP, tcp()), 0, func(e *Endpoint) { e.Tested = true }, "host_encap_forwarded", false},
			{"longer than its header says", append(inner(rigOwn, rigPeer, packet.ProtoUDP, udp(4)), 0), 0, now, "odd_length", false},
			{"shorter than its header says", inner(rigOwn, rigPeer, packet.ProtoUDP, udp(4))[:50], 0, now, "odd_length", false},
			{"version 5", func() []byte {
				p := inner(rigOwn, rigPeer, packet.ProtoUDP, udp(4))
				p[0] = 0x50
				return p
			}(), 0, now, "odd_length", false},
		} {
			t.Run(tt.name, func(t *testing.T) {
				if err := r.host.SetClient(rigOwn, HostClient{Number: 1}); err != nil {
					t.Fatal(err)
				}
				r.known(t, tt.heard, 0, tt.change)
				before, err := r.host.Counters()
				if err != nil {
					t.Fatal(err)
				}
				forget(r.onWire)
				for r.engine(0) != nil {
				}
				start := monotonic()
				to := &unix.SockaddrLinklayer{Ifindex: r.tunnel, Protocol: bits.ReverseBytes16(unix.ETH_P_IPV6)}
				if err := unix.Sendto(r.fromTUN, tt.packet, 0, to); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(map[string]uint64{tt.want: 1}, r.counts(t, before)); diff != "" {
					t.Fatalf("counters (-want +got):\n%s", diff)
				}
				_, sent := r.host.Traffic(rigOwn)
				if tt.want != HostEncapForwarded.String() {
					if got := r.engine(testutil.Patience); !slices.Equal(got, tt.packet) {
						t.Errorf("the engine gets %x, not %x", got, tt.packet)
					}
					if sent != 0 {
						t.Error("it counts as sent")
					}
					return
				}
				if got := outerOf(t, take(r.onWire), !tt.noSum); !slices.Equal(got, tt.packet) {
					t.Errorf("the peer gets %x, not %x", got, tt.packet)
				}
				if now := monotonic(); sent > now || sent < start-coarse {
					t.Errorf("sent at %v, between %v and %v", sent, start, now)
				}
			})
		}
	})
}

// Identifications of one core do not come again before all its others were used.
func TestHostIdentifications(t *testing.T) {
	r := newHostRig(t, false)
	if err := r.host.SetClient(rigOwn, HostClient{Number: 1}); err != nil {
		t.Fatal(err)
	}
	r.known(t, 0, 0)
	p := inner(rigOwn, rigPeer, packet.ProtoUDP, udp(4))
	seen := map[uint16]bool{}
	const n = 1000
	for range n {
		to := &unix.SockaddrLinklayer{Ifindex: r.tunnel, Protocol: bits.ReverseBytes16(unix.ETH_P_IPV6)}
		if err := unix.Sendto(r.fromTUN, p, 0, to); err != nil {
			t.Fatal(err)
		}
		frame := take(r.onWire)
		if len(frame) < 20 {
			t.Fatal("a packet is missing")
		}
		seen[binary.BigEndian.Uint16(frame[18:])] = true
	}
	if len(seen) != n {
		t.Errorf("%d identifications for %d datagrams", len(seen), n)
	}
}
