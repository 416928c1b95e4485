// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

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

var (
	ownMAC = MAC{2, 0, 0, 0, 0, 1}
	ueMAC  = MAC{2, 0, 0, 0, 0, 2}
)

// stationed has a terminal of both families behind a station, which has sent something.
func stationed(t *testing.T) (*world, gtp.TID) {
	t.Helper()
	w := newWorld(t, Settings{})
	w.e.AddStation(1, ownMAC)
	key, err := w.e.Attach(attachment(gtp.V1, gtp.PDPTypeIPv4v6), w.now, &w.out)
	w.order(err)
	w.accept(func(m *gtp.CreateResponse) {
		p := gtp.NewPCO(nil)
		p, _ = p.Add(gtp.ContainerDNS4, []byte{192, 0, 2, 53})
		p, _ = p.Add(gtp.ContainerMTU4, []byte{0x05, 0x78})
		m.PCO = gtp.Some(p)
	})
	w.advertise(key, defaultRA())
	w.clear()
	return w, key
}

// frame sends one from the terminal.
func (w *world) frame(to MAC, kind uint16, b []byte) {
	f := append(append([]byte{}, to[:]...), ueMAC[:]...)
	w.e.HandleFrame(1, append(binary.BigEndian.AppendUint16(f, kind), b...), w.now, &w.out)
}

// answer is the only frame that was put out for the terminal.
func (w *world) answer(kind uint16) []byte {
	w.t.Helper()
	if len(w.out.IP) != 1 {
		w.t.Fatalf("%d frames", len(w.out.IP))
	}
	f := w.out.IP[0]
	if MAC(f[:6]) != ueMAC || MAC(f[6:12]) != ownMAC || binary.BigEndian.Uint16(f[12:]) != kind {
		w.t.Fatalf("frame %x", f)
	}
	return f[ethernetLen:]
}

// TestStationARP answers for all but the terminal's address.
func TestStationARP(t *testing.T) {
	for _, row := range []struct {
		name   string
		target netip.Addr
		answer bool
	}{
		{"the router", netip.MustParseAddr("203.0.113.5"), true},
		{"somebody far away", netip.MustParseAddr("192.0.2.9"), true},
		{"itself, to see whether it is another's", four, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, _ := stationed(t)
			ask := append([]byte{0, 1, 8, 0, 6, 4, 0, 1}, ueMAC[:]...)
			ask = append(append(append(ask, four.AsSlice()...), make([]byte, 6)...), row.target.AsSlice()...)
			w.frame(broadcast, etherARP, ask)
			if !row.answer {
				if len(w.out.IP) != 0 {
					t.Errorf("answered %x", w.out.IP[0])
				}
				return
			}
			b := w.answer(etherARP)
			if b[7] != 2 || MAC(b[8:14]) != ownMAC || !bytes.Equal(b[14:18], row.target.AsSlice()) || MAC(b[18:24]) != ueMAC || !bytes.Equal(b[24:28], four.AsSlice()) {
				t.Errorf("answered %x", b)
			}
		})
	}
}

// TestStationPackets carries IP both ways, padding left out.
func TestStationPackets(t *testing.T) {
	w, key := stationed(t)
	up := udp4(four, host4, 53, 4)
	w.frame(ownMAC, etherIPv4, append(append([]byte{}, up...), make([]byte, 20)...))
	if _, h := w.next(); !bytes.Equal(h.Payload, up) {
		t.Errorf("%x, want %x", h.Payload, up)
	}
	up6 := udp6(netip.MustParseAddr("2001:db8:6:7::abcd"), host, 8)
	w.frame(ownMAC, etherIPv6, up6)
	if _, h := w.next(); !bytes.Equal(h.Payload, up6) {
		t.Errorf("%x, want %x", h.Payload, up6)
	}
	down := udp6(host, netip.MustParseAddr("2001:db8:6:7::abcd"), 8)
	w.down(key, down)
	if b := w.answer(etherIPv6); !bytes.Equal(b, down) {
		t.Errorf("%x, want %x", b, down)
	}
	w.clear()
	w.frame(MAC{2, 9, 9, 9, 9, 9}, etherIPv4, up)
	w.none()
}

// TestStationDiscovery answers solicitations for the router and for itself.
func TestStationDiscovery(t *testing.T) {
	w, key := stationed(t)
	stack := netip.MustParseAddr("fe80::2")
	w.frame(broadcast, etherIPv6, packet.AppendICMPv6(nil, stack, packet.AllRouters, 255, packet.ICMPv6RouterSolicitation, 0, make([]byte, 4)))
	ra, ok := parseAdvertisement(packet.IPv6(w.answer(etherIPv6)))
	if !ok || ra.router != stationRouter || ra.prefix != prefix || ra.valid != forever || ra.mtu != 1400 || len(ra.servers) != 1 {
		t.Errorf("%+v", ra)
	}
	w.clear()
	target := stationRouter.As16()
	w.frame(broadcast, etherIPv6, packet.AppendICMPv6(nil, stack, packet.SolicitedNode(stationRouter), 255, packet.ICMPv6NeighborSolicitation, 0, make([]byte, 4), target[:]))
	p, _, _ := packet.ParseIPv6(w.answer(etherIPv6))
	if m, ok := p.ICMPv6(); !ok || m[0] != packet.ICMPv6NeighborAdvert || MAC(m[26:32]) != ownMAC {
		t.Errorf("%x", p)
	}
	w.clear()
	renewed := defaultRA()
	renewed.mtu = 1300
	renewed.more = append([]byte{31, 3, 0, 0, 0, 0, 2, 88}, "\x03lab\x07example\x00\x00\x00\x00"...)
	w.advertise(key, renewed)
	if ra, ok := parseAdvertisement(packet.IPv6(w.answer(etherIPv6))); !ok || ra.mtu != 1300 || !slices.Equal(ra.domains, []string{"lab.example"}) {
		t.Errorf("%+v", ra)
	}
}

// TestStationRouterOver advertises a router that has ended as none, though its timer is late.
func TestStationRouterOver(t *testing.T) {
	w, _ := stationed(t)
	w.now = w.now.Add(64800*time.Second + time.Minute)
	w.frame(broadcast, etherIPv6, packet.AppendICMPv6(nil, netip.MustParseAddr("fe80::2"), packet.AllRouters, 255, packet.ICMPv6RouterSolicitation, 0, make([]byte, 4)))
	if ra, ok := parseAdvertisement(packet.IPv6(w.answer(etherIPv6))); !ok || ra.lifetime != 0 {
		t.Errorf("%+v", ra)
	}
}

// TestStationDHCP gives the terminal its address and no other.
func TestStationDHCP(t *testing.T) {
	for _, row := range []struct {
		name  string
		kind  byte
		asked netip.Addr
		rapid bool
		want  byte
	}{
		{"discover", dhcpDiscover, netip.Addr{}, false, dhcpOffer},
		{"discover, without an offer", dhcpDiscover, netip.Addr{}, true, dhcpAck},
		{"request", dhcpRequest, four, false, dhcpAck},
		{"request of another address", dhcpRequest, host4, false, dhcpNak},
		{"inform", dhcpInform, netip.Addr{}, false, dhcpAck},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, _ := stationed(t)
			b := make([]byte, dhcpFixed)
			b[0], b[1], b[2] = 1, 1, 6
			copy(b[4:], "xid!")
			copy(b[28:], ueMAC[:])
			binary.BigEndian.PutUint32(b[236:], dhcpCookie)
			b = append(b, 53, 1, row.kind)
			if row.asked.IsValid() {
				b = append(append(b, 50, 4), row.asked.AsSlice()...)
			}
			if row.rapid {
				b = append(b, dhcpRapidCommit, 0)
			}
			b = append(b, 255)
			ip := udp4(netip.IPv4Unspecified(), netip.MustParseAddr("255.255.255.255"), dhcpServer, 0)
			binary.BigEndian.PutUint16(ip[2:], uint16(28+len(b)))
			w.frame(broadcast, etherIPv4, append(ip, b...))
			got := w.answer(etherIPv4)
			kind, _, rapid := dhcpOptions(got[28+dhcpFixed:])
			if kind != row.want || rapid != row.rapid || string(got[28+4:28+8]) != "xid!" || packet.Fold(packet.Sum(0, got[:20])) != 0xffff {
				t.Fatalf("answered %x", got)
			}
			given := netip.AddrFrom4([4]byte(got[28+16 : 28+20]))
			if kind != dhcpNak && given != four || kind == dhcpNak && !given.IsUnspecified() {
				t.Errorf("given %s", given)
			}
		})
	}
}

// TestNeighbourhood makes a network around an address.
func TestNeighbourhood(t *testing.T) {
	for a, want := range map[string]string{
		"10.45.0.1": "10.45.0.2/30", "10.45.0.2": "10.45.0.1/30", "10.45.0.3": "10.45.0.1/29", "10.45.0.4": "10.45.0.1/29",
		"10.45.0.7": "10.45.0.1/28", "10.45.0.255": "10.45.0.1/23", "10.46.0.0": "10.44.0.1/14",
	} {
		router, bits := neighbourhood(netip.MustParseAddr(a))
		if got := netip.PrefixFrom(router, bits); got.String() != want || !got.Contains(netip.MustParseAddr(a)) {
			t.Errorf("%s is in %s, want %s", a, got, want)
		}
	}
}

// FuzzStation gives it frames of a terminal.
func FuzzStation(f *testing.F) {
	f.Add(uint16(etherARP), append([]byte{0, 1, 8, 0, 6, 4, 0, 1}, make([]byte, 20)...))
	f.Add(uint16(etherIPv4), udp4(four, host4, dhcpServer, 8))
	f.Add(uint16(etherIPv6), udp6(six, host, 8))
	f.Fuzz(func(t *testing.T, kind uint16, b []byte) {
		w, _ := stationed(t)
		w.frame(ownMAC, kind, b)
		if len(w.out.IP)+len(w.out.UDP) > 1 {
			t.Errorf("one frame gave %d and %d", len(w.out.IP), len(w.out.UDP))
		}
	})
}
