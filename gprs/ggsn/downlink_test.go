// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

func TestDownlink(t *testing.T) {
	addr := netip.MustParseAddr
	w := newWorld(t, nil)
	c := w.open(1, "dual", gtp.PDPTypeIPv4v6)
	d := w.open(2, "dual", gtp.PDPTypeIPv4v6)
	tests := []struct {
		name string
		ip   []byte
		want Reason
	}{
		{"IPv4", udp4(server, c.four(), 64, 100), none},
		{"IPv4 with a hop limit of 2", udp4(server, c.four(), 2, 100), none},
		{"IPv4 with a hop limit of 1", udp4(server, c.four(), 1, 100), HopLimit},
		{"IPv4 of the largest size", udp4(server, c.four(), 64, DefaultMTU-28), none},
		{"IPv4 for no one", udp4(server, addr("10.46.200.1"), 64, 0), NoContext},
		{"IPv4 from another terminal", udp4(d.four(), c.four(), 64, 0), InsideSource},
		{"IPv4 from a pool", udp4(addr("10.45.200.1"), c.four(), 64, 0), InsideSource},
		{"IPv4 from loopback", udp4(addr("127.0.0.1"), c.four(), 64, 0), BadSource},
		{"IPv4 from a group", udp4(addr("224.0.0.1"), c.four(), 64, 0), BadSource},
		{"IPv4 redirect", icmp4(server, c.four(), 0, 5), Redirect},
		{"IPv4 redirect behind an option", icmp4(server, c.four(), 4, 5), Redirect},
		{"IPv4 redirect's octet behind a first fragment", fragment4(icmp4(server, c.four(), 0, 5)), none},
		{"IPv4 unreachable", icmp4(server, c.four(), 0, 3), none},
		{"IPv4 cut short", udp4(server, c.four(), 64, 9)[:30], NotIP},
		{"IPv6", udp6(host6, c.six(), 64, 100), none},
		{"IPv6 for another address of the prefix", udp6(host6, at(netip.PrefixFrom(c.six(), 64)), 64, 0), none},
		{"IPv6 of the largest size", udp6(host6, c.six(), 64, DefaultMTU-48), none},
		{"IPv6 with a hop limit of 1", udp6(host6, c.six(), 1, 100), HopLimit},
		{"IPv6 too large", udp6(host6, c.six(), 64, DefaultMTU-47), TooBig},
		{"IPv6 for no one", udp6(host6, addr("2001:db8:7000:ffff::1"), 64, 0), NoContext},
		{"IPv6 from another terminal", udp6(d.six(), c.six(), 64, 0), InsideSource},
		{"IPv6 from a link-local address", udp6(addr("fe80::9"), c.six(), 64, 0), BadSource},
		{"IPv6 for a link-local address", udp6(host6, c.local(), 64, 0), LinkScope},
		{"IPv6 for a group of the link, as the kernel reports its own", udp6(netip.IPv6Unspecified(), addr("ff02::16"), 1, 0), LinkScope},
		{"IPv6 for a group", udp6(host6, addr("ff0e::1"), 64, 0), NoContext},
		{"IPv6 redirect", icmp6(host6, c.six(), 137), Redirect},
		{"IPv6 unreachable", icmp6(host6, c.six(), 1), none},
		{"IPv6 cut short", udp6(host6, c.six(), 64, 9)[:44], NotIP},
		{"neither", []byte{0x70}, NotIP},
		{"nothing", nil, NotIP},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before, want := w.e.stats.Dropped, slices.Clone(tt.ip)
			w.down(slices.Clone(tt.ip))
			if tt.want != none {
				if len(w.out.UDP) != 0 || w.e.stats.Dropped[tt.want] != before[tt.want]+1 {
					t.Errorf("%d datagrams, dropped %v", len(w.out.UDP), w.dropped())
				}
				return
			}
			h, got := w.tunnelled()
			if want[0]>>4 == 4 {
				want[8]--
				fill4(want)
			} else {
				want[7]--
			}
			if h.TEID != 0x1001 || h.HasSequence || !bytes.Equal(got, want) {
				t.Errorf("TEID %#x, sent\n%x, want\n%x", h.TEID, got, want)
			}
			if d := w.out.UDP[0]; d.To != netip.AddrPortFrom(sgsn, gtp.PortUser) || Socket(d.Socket) != SocketUser {
				t.Errorf("to %v by %v", d.To, d.Socket)
			}
		})
	}
}

// TestLeavingInside: a terminal's address is one of the inside as long as the terminal has it,
// also where the pool is gone; not where packets between terminals come by the network.
func TestLeavingInside(t *testing.T) {
	for _, policy := range []UserToUser{UserDeny, UserAllow, UserExternal} {
		w := newWorld(t, nil)
		a, b := w.open(1, "dual", gtp.PDPTypeIPv4v6), w.open(2, "dual", gtp.PDPTypeIPv4v6)
		s := testSettings()
		s.APNs[2].Pools4, s.APNs[2].Pools6, s.APNs[2].UserToUser = prefixes("10.99.0.0/16"), prefixes("2001:db8:9900::/44"), policy
		if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
			t.Fatal(err)
		}
		for _, ip := range [][]byte{udp4(a.four(), b.four(), 64, 0), udp6(a.six(), b.six(), 64, 0)} {
			before := w.e.stats.Dropped[InsideSource]
			w.down(ip)
			if dropped := w.e.stats.Dropped[InsideSource] > before; dropped != (policy != UserExternal) || dropped != (len(w.out.UDP) == 0) {
				t.Errorf("policy %d: %d datagrams, dropped %v", policy, len(w.out.UDP), w.dropped())
			}
		}
	}
}

func TestSequenceNumbers(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.APNs[0].SequenceNumbers = true })
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.e.contexts.at(1).sent = 0xfffe
	for _, want := range []uint16{0xfffe, 0xffff, 0, 1} {
		w.down(udp4(server, c.four(), 64, 0))
		if h, _ := w.tunnelled(); !h.HasSequence || h.Sequence != want {
			t.Errorf("sequence %v %d, want %d", h.HasSequence, h.Sequence, want)
		}
	}
}

// TestOuterIPv6: a node of IPv6 has its answers and its packets by IPv6.
func TestOuterIPv6(t *testing.T) {
	w := newWorld(t, nil)
	w.from = netip.MustParseAddr("2001:db8:51::1")
	c := w.open(1, "inet6", gtp.PDPTypeIPv6)
	if c.AddressControl.Value != node6 || c.AddressUser.Value != node6 {
		t.Errorf("addresses %v %v", c.AddressControl.Value, c.AddressUser.Value)
	}
	w.down(udp6(host6, c.six(), 64, 0))
	if _, got := w.tunnelled(); got == nil || w.out.UDP[0].To != netip.AddrPortFrom(w.from, gtp.PortUser) || Socket(w.out.UDP[0].Socket) != SocketUserIPv6 {
		t.Errorf("sent %+v", w.out.UDP)
	}
	w.up(c, udp6(c.six(), host6, 64, 0))
	if len(w.out.IP) != 1 {
		t.Errorf("dropped %v", w.dropped())
	}
}

// TestTooBig: the sender of a packet that is too large learns what size fits, in either direction.
func TestTooBig(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.APNs[2].SilentICMP = true }) // not silenced
	c := w.open(1, "dual", gtp.PDPTypeIPv4v6)
	four, six := udp4(server, c.four(), 64, DefaultMTU-27), udp6(host6, c.six(), 64, DefaultMTU-47)
	four[6] = 0x40
	fill4(four)
	check := func(got, ip []byte) {
		t.Helper()
		checkError(t, got, ip, complaint{type4: 3, code4: 4, type6: packet.ICMPv6PacketTooBig})
		at := 26
		if ip[0]>>4 == 6 {
			at = 46
		}
		if mtu := binary.BigEndian.Uint16(got[at:]); mtu != DefaultMTU {
			t.Errorf("MTU %d", mtu)
		}
	}
	for _, ip := range [][]byte{four, six} {
		w.down(slices.Clone(ip))
		if len(w.out.IP) != 1 || len(w.out.UDP) != 0 {
			t.Fatalf("%d packets, %d datagrams", len(w.out.IP), len(w.out.UDP))
		}
		check(w.out.IP[0], ip)
	}
	four, six = udp4(c.four(), server, 64, DefaultMTU-27), udp6(c.six(), host6, 64, DefaultMTU-47)
	four[6] = 0x40
	fill4(four)
	for _, ip := range [][]byte{four, six} {
		w.up(c, slices.Clone(ip))
		if len(w.out.IP) != 0 || len(w.out.UDP) != 1 {
			t.Fatalf("%d packets, %d datagrams from a terminal", len(w.out.IP), len(w.out.UDP))
		}
		_, got := w.tunnelled()
		check(got, ip)
	}
	if n := w.e.stats.Dropped[TooBig]; n != 4 {
		t.Errorf("%d are counted", n)
	}
	w.up(c, udp6(c.six(), host6, 64, DefaultMTU-48))
	if len(w.out.IP) != 1 {
		t.Error("one that fits does not pass")
	}
}

// TestTooBigBetween: a packet from one terminal for another is within the smaller of their MTUs.
func TestTooBigBetween(t *testing.T) {
	w := newWorld(t, func(s *Settings) {
		s.APNs[0].UserToUser, s.APNs[2].UserToUser = UserAllow, UserAllow
		s.APNs[0].MTU = minMTU
	})
	small, large := w.open(1, "internet", gtp.PDPTypeIPv4), w.open(2, "dual", gtp.PDPTypeIPv4)
	for _, way := range [][2]context{{small, large}, {large, small}} {
		ip := udp4(way[0].four(), way[1].four(), 64, minMTU-27)
		w.up(way[0], slices.Clone(ip))
		var whole []byte
		for _, d := range w.out.UDP {
			h, err := gtp.Decapsulate(d.Payload)
			if p := h.Payload; err != nil || len(p) > minMTU || !right4(p) || p[8] != 63 || netip.AddrFrom4([4]byte(p[16:20])) != way[1].four() {
				t.Fatalf("%x", p)
			}
			whole = append(whole, h.Payload[20:]...)
		}
		if len(w.out.UDP) != 2 || !bytes.Equal(whole, ip[20:]) {
			t.Errorf("%d datagrams of %d octets", len(w.out.UDP), len(whole))
		}
		ip[6] = 0x40
		fill4(ip)
		w.up(way[0], slices.Clone(ip))
		if _, got := w.tunnelled(); len(got) < 28 || got[20] != 3 || got[21] != 4 || binary.BigEndian.Uint16(got[26:]) != minMTU || netip.AddrFrom4([4]byte(got[16:20])) != way[0].four() {
			t.Errorf("answered by %x", got)
		}
	}
}

// TestAccounts: octets and packets of a context are those of the inner packets, and the time
// of the last packet is the terminal's.
func TestAccounts(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.tick(90 * time.Second)
	for n := range 3 {
		w.up(c, udp4(c.four(), server, 64, n))
	}
	w.tick(time.Minute)
	for n := range 2 {
		w.down(udp4(server, c.four(), 64, 100+n))
	}
	w.up(c, udp4(server, server, 64, 0))   // spoofed
	w.down(udp4(server, c.four(), 1, 100)) // not forwarded
	var info ContextInfo
	w.e.Contexts(Selection{}, 0, 10, func(i ContextInfo) bool { info = i; return true })
	if info.Up != (Traffic{3, 28*3 + 3}) || info.Down != (Traffic{2, 128 + 129}) || !info.LastSeen.Equal(start.Add(90*time.Second)) {
		t.Errorf("%+v", info)
	}
}

// TestNothingAllocated: no G-PDU costs memory, in either direction.
func TestNothingAllocated(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "dual", gtp.PDPTypeIPv4v6)
	for _, ip := range [][]byte{udp4(c.four(), server, 64, 1000), udp6(c.six(), host6, 64, 1000)} {
		b, _ := gtp.Encapsulate(nil, &gtp.Header{Version: gtp.V1, Type: gtp.TypeGPDU, TEID: c.TEIDData.Value}, ip)
		from := netip.AddrPortFrom(sgsn, gtp.PortUser)
		if n := testing.AllocsPerRun(200, func() {
			w.out.Reset()
			w.e.HandleUDP(SocketUser, from, 0, b, w.now, &w.out)
		}); n != 0 {
			t.Errorf("%v allocations up", n)
		}
	}
	for _, ip := range [][]byte{udp4(server, c.four(), 255, 1000), udp6(host6, c.six(), 255, 1000)} {
		if n := testing.AllocsPerRun(200, func() { w.down(ip) }); n != 0 {
			t.Errorf("%v allocations down", n)
		}
	}
}

// TestFragments: a packet of IPv4 that is too large and may be cut arrives in parts.
func TestFragments(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	ip := udp4(server, c.four(), 64, 3000)
	w.down(slices.Clone(ip))
	var whole []byte
	for i, d := range w.out.UDP {
		h, err := gtp.Decapsulate(d.Payload)
		if p := h.Payload; err != nil || len(p) > DefaultMTU || !right4(p) || p[8] != 63 {
			t.Fatalf("fragment %d: %x", i, p)
		}
		whole = append(whole, h.Payload[20:]...)
	}
	if len(w.out.UDP) != 3 || !bytes.Equal(whole, ip[20:]) {
		t.Errorf("%d fragments of %d octets", len(w.out.UDP), len(whole))
	}
	ip, whole = udp4(c.four(), server, 64, 3000), nil
	w.up(c, slices.Clone(ip))
	for i, p := range w.out.IP {
		if len(p) > DefaultMTU || !right4(p) || p[8] != 63 {
			t.Fatalf("fragment %d from a terminal: %x", i, p)
		}
		whole = append(whole, p[20:]...)
	}
	if len(w.out.IP) != 3 || len(w.out.VRF) != 3 || !bytes.Equal(whole, ip[20:]) {
		t.Errorf("%d fragments of %d octets from a terminal", len(w.out.IP), len(whole))
	}
}

// TestClamped: a SYN names no larger segments than fit, both ways and in both families.
func TestClamped(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "dual", gtp.PDPTypeIPv4v6)
	syn := []byte{0x13, 0x88, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 1, 0, 0, 0, 0, 0, 2, 4, 5, 0xb4} // 1460
	tcp4 := func(src, dst netip.Addr) []byte {
		b := append(udp4(src, dst, 64, 0)[:20], syn...)
		b[9], b[3] = packet.ProtoTCP, byte(len(b))
		fill4(b)
		return b
	}
	tcp6 := func(src, dst netip.Addr) []byte {
		return append(packet.AppendIPv6Header(nil, packet.ProtoTCP, 64, len(syn), src, dst), syn...)
	}
	want := func(ip []byte, most uint16) {
		t.Helper()
		if len(ip) < 24 || binary.BigEndian.Uint16(ip[len(ip)-2:]) != most {
			t.Errorf("segment of %x", ip)
		}
	}
	one := func() []byte { _, ip := w.tunnelled(); return ip }
	w.up(c, tcp4(c.four(), server))
	want(w.out.IP[0], DefaultMTU-40)
	w.up(c, tcp6(c.six(), host6))
	want(w.out.IP[0], DefaultMTU-60)
	w.down(tcp4(server, c.four()))
	want(one(), DefaultMTU-40)
	w.down(tcp6(host6, c.six()))
	want(one(), DefaultMTU-60)
	if w.e.stats.Clamped != 4 {
		t.Errorf("%d clamped", w.e.stats.Clamped)
	}
}
