// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gatewaytest

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// quote4 and quote6 are the start of a UDP packet.
func quote4(from, to netip.AddrPort) []byte {
	src, dst := from.Addr().As4(), to.Addr().As4()
	b := append([]byte{0x45, 0, 0x05, 0xdc, 0, 1, 0x40, 0, 60, 17, 0, 0}, append(src[:], dst[:]...)...)
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum&0xffff+sum>>16))
	return append(b, udpStart(from, to, 1480)...)
}

func quote6(from, to netip.AddrPort) []byte {
	src, dst := from.Addr().As16(), to.Addr().As16()
	b := append([]byte{0x60, 0, 0, 0, 0x05, 0xb4, 17, 60}, append(src[:], dst[:]...)...)
	return append(b, udpStart(from, to, 1460)...)
}

func udpStart(from, to netip.AddrPort, length uint16) []byte {
	b := binary.BigEndian.AppendUint16(nil, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint16(b, length)
	return append(b, 1, 2)
}

// report sends an error and returns the MTU of that which it becomes.
func report(t *testing.T, from *icmp.PacketConn, to netip.Addr, m icmp.Message, at *icmp.PacketConn, proto int, want icmp.Type) int {
	t.Helper()
	raw, err := m.Marshal(nil) // the kernel makes the checksum of ICMPv6
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.WriteTo(raw, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		t.Fatal(err)
	}
	if err := at.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 2048); ; {
		n, _, err := at.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := icmp.ParseMessage(proto, buf[:n]); err == nil && got.Type == want {
			return int(binary.BigEndian.Uint16(buf[6:])) // the last two octets of either family's field
		}
	}
}

// LinksBoundErrors checks that, without a word of the operator's, no translated error reports
// more than the links of the gateway take (RFC 7915 sections 4.2 and 5.2), also when these
// change. four sees six at an address and port, and six sees four at an address.
func (w *World) LinksBoundErrors(t *testing.T, at netip.AddrPort, four6 netip.Addr) {
	t.Helper()
	var conn4, conn6 *icmp.PacketConn
	w.Four.Do(t, func() (err error) { conn4, err = icmp.ListenPacket("ip4:icmp", FourAddr.String()); return err })
	w.Six.Do(t, func() (err error) { conn6, err = icmp.ListenPacket("ip6:ipv6-icmp", SixAddr.String()); return err })
	defer conn4.Close()
	defer conn6.Close()
	needed := func(mtu int) int {
		sent := quote4(at, netip.AddrPortFrom(FourAddr, 7000))
		return report(t, conn4, at.Addr(), icmp.Message{Type: ipv4.ICMPTypeDestinationUnreachable, Code: 4, Body: &icmp.RawBody{Data: append([]byte{0, 0, byte(mtu >> 8), byte(mtu)}, sent...)}},
			conn6, 58, ipv6.ICMPTypePacketTooBig)
	}
	tooBig := func(mtu int) int {
		sent := quote6(netip.AddrPortFrom(four6, 7000), netip.AddrPortFrom(SixAddr, 7000))
		return report(t, conn6, four6, icmp.Message{Type: ipv6.ICMPTypePacketTooBig, Body: &icmp.PacketTooBig{MTU: mtu, Data: sent}},
			conn4, 1, ipv4.ICMPTypeDestinationUnreachable)
	}
	for _, one := range []struct{ what, got, want int }{
		{1496, needed(1496), 1500}, {1400, needed(1400), 1420}, {1520, tooBig(1520), 1480}, {1400, tooBig(1400), 1380},
	} {
		if one.got != one.want {
			t.Errorf("%d became %d, want %d", one.what, one.got, one.want)
		}
	}
	for _, step := range []struct {
		name   string
		change func(l netlink.Link) error
		want   int
	}{
		{"the link's", func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1400) }, 1400},
		{"the link's for IPv6, and an address", func(l netlink.Link) error {
			a, err := netlink.ParseAddr("2001:db8:1::99/64")
			return errors.Join(err, os.WriteFile("/proc/sys/net/ipv6/conf/v6/mtu", []byte("1300"), 0), netlink.AddrAdd(l, a))
		}, 1300},
	} {
		w.Gateway.Do(t, func() error {
			l, err := netlink.LinkByName("v6")
			return errors.Join(err, step.change(l))
		})
		for deadline := time.Now().Add(testutil.Patience); needed(1496) != step.want; {
			if time.Now().After(deadline) {
				t.Fatalf("the new MTU is not known: %s", step.name)
			}
		}
	}
}
