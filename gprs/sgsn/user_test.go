// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// TestUplink carries what terminals send, by their source.
func TestUplink(t *testing.T) {
	anywhere := netip.MustParseAddr("2001:db8:6:7::abcd")
	for _, row := range []struct {
		name string
		link int
		ip   []byte
		drop string // empty: it passes
	}{
		{"IPv4", 1, udp4(four, host4, 53, 8), ""},
		{"IPv6", 1, udp6(six, host, 8), ""},
		{"another address of the /64", 1, udp6(anywhere, host, 8), ""},
		{"from the link-local address", 1, udp6(linkLocal, router, 8), ""},
		{"another IPv4 address", 1, udp4(host4, four, 53, 8), "foreign_source"},
		{"another IPv6 network", 1, udp6(host, six, 8), "foreign_source"},
		{"another link-local address", 1, udp6(router, linkLocal, 8), "foreign_source"},
		{"by another link", 2, udp4(four, host4, 53, 8), "foreign_source"},
		{"Neighbor Discovery of the stack", 1, packet.AppendICMPv6(nil, linkLocal, packet.AllNodes, 255, packet.ICMPv6NeighborAdvert, 0, make([]byte, 20)), "neighbor_discovery"},
		{"nothing", 1, nil, "not_ip"},
		{"half a header", 1, udp6(six, host, 8)[:39], "not_ip"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
				w := newWorld(t, Settings{})
				key := w.attach(v, gtp.PDPTypeIPv4v6)
				w.advertise(key, defaultRA())
				before := w.info(key).Traffic
				w.clear()
				w.e.HandleUE(row.link, row.ip, w.now, &w.out)
				if row.drop != "" {
					if w.none(); w.drops(row.drop) != 1 {
						t.Error("not counted")
					}
					continue
				}
				i := w.info(key)
				d, h := w.next()
				if !bytes.Equal(h.Payload, row.ip) || d.To.Addr() != theirs || h.TEID != i.RemoteData && v == gtp.V1 || v == gtp.V0 && (uint32(h.FlowLabel) != i.RemoteData || h.TID != key) {
					t.Errorf("%+v %+v", d, h)
				}
				if i.Traffic.UpPackets != before.UpPackets+1 || i.Traffic.UpOctets != before.UpOctets+uint64(len(row.ip)) {
					t.Errorf("%+v, then %+v", before, i.Traffic)
				}
			}
		})
	}
}

// TestDownlink gives each terminal what is for it.
func TestDownlink(t *testing.T) {
	for _, row := range []struct {
		name string
		ip   []byte
		drop string
	}{
		{"IPv4", udp4(host4, four, 53, 8), ""},
		{"IPv6", udp6(host, six, 8), ""},
		{"to a group", udp6(router, packet.AllNodes, 8), ""},
		{"to another address", udp4(four, host4, 53, 8), "foreign_destination"},
		{"to another network", udp6(six, host, 8), "foreign_destination"},
		{"cut off", udp6(host, six, 8)[:45], "not_ip"},
		{"nothing", nil, "not_ip"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
				w := newWorld(t, Settings{})
				key := w.attach(v, gtp.PDPTypeIPv4v6)
				w.advertise(key, defaultRA())
				w.clear()
				w.down(key, row.ip)
				if row.drop != "" {
					if len(w.out.IP) != 0 || w.drops(row.drop) != 1 {
						t.Errorf("%d packets", len(w.out.IP))
					}
					continue
				}
				if len(w.out.IP) != 1 || !bytes.Equal(w.out.IP[0], row.ip) || w.out.Links[0] != 1 {
					t.Errorf("%x", w.out.IP)
				}
			}
		})
	}
}

// TestCongestion: a terminal's traffic class stands outside, too, and what G-PDUs have met comes to the terminal
// (RFC 6040).
func TestCongestion(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.attach(gtp.V1, gtp.PDPTypeIPv4)
	p := udp4(four, host4, 53, 8)
	packet.SetTrafficClass(p, 46<<2|packet.ECT0)
	w.clear()
	w.e.HandleUE(1, p, w.now, &w.out)
	if d, _ := w.next(); d.Class != 46<<2|packet.ECT0 {
		t.Errorf("outside %#x", d.Class)
	}
	w.class = packet.CE
	for _, tt := range []struct {
		inner   uint8
		dropped uint64
	}{{packet.ECT0, 0}, {packet.NotECT, 1}} {
		p := udp4(host4, four, 53, 8)
		packet.SetTrafficClass(p, tt.inner)
		w.clear()
		w.down(key, p)
		if passed := len(w.out.IP) == 1 && packet.TrafficClass(w.out.IP[0]) == packet.CE; passed != (tt.dropped == 0) || w.drops("congestion") != tt.dropped {
			t.Errorf("inside %02b: %x, %d dropped", tt.inner, w.out.IP, w.drops("congestion"))
		}
	}
}

// TestDownlinkOfStranger is a user packet from another peer than the context's.
func TestDownlinkOfStranger(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.attach(gtp.V1, gtp.PDPTypeIPv4)
	b, _ := gtp.Encapsulate(nil, &gtp.Header{Version: gtp.V1, TEID: w.info(key).TEIDData}, udp4(host4, four, 53, 8))
	w.send(Socket(0, PlaneUser), other, b)
	if len(w.out.IP) != 0 || w.drops("foreign_peer") != 1 {
		t.Error("it was taken")
	}
}

// TestSecondary sends by the context whose filter matches, the lowest precedence first, and all
// else by the primary one.
func TestSecondary(t *testing.T) {
	w := newWorld(t, Settings{})
	primary := w.attach(gtp.V1, gtp.PDPTypeIPv4)
	udp := gtp.Some(uint8(17))
	sip := w.secondary(primary, 6, template(gtp.PacketFilter{ID: 1, Direction: gtp.FilterUp, Precedence: 10, Protocol: udp, RemotePort: gtp.Some(gtp.PortRange{First: 5060, Last: 5061})}))
	all := w.secondary(primary, 7, template(
		gtp.PacketFilter{ID: 1, Direction: gtp.FilterBoth, Precedence: 20, Protocol: udp, Remote: gtp.Match{Address: host4, Mask: netip.MustParseAddr("255.255.255.0")}},
		gtp.PacketFilter{ID: 2, Direction: gtp.FilterDown, Precedence: 1, Protocol: udp}))
	for _, row := range []struct {
		name string
		ip   []byte
		by   gtp.TID
	}{
		{"the first filter", udp4(four, host4, 5061, 8), sip},
		{"the second filter", udp4(four, host4, 53, 8), all},
		{"a filter of packets to the terminal alone", udp4(four, netip.MustParseAddr("192.0.2.99"), 53, 8), primary},
	} {
		w.clear()
		w.e.HandleUE(1, row.ip, w.now, &w.out)
		if _, h := w.next(); h.TEID != w.info(row.by).RemoteData {
			t.Errorf("%s: by %x", row.name, h.TEID)
		}
	}
	w.order(w.e.Detach(sip, false, w.now, &w.out))
	d, h := w.next()
	w.say(d.Socket, reply(h, w.info(sip).TEIDControl), &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
	w.order(w.e.Detach(primary, true, w.now, &w.out))
	d, h = w.next()
	w.say(d.Socket, reply(h, w.info(primary).TEIDControl), &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
	w.empty()
}

// TestUserSequence numbers the packets of a context.
func TestUserSequence(t *testing.T) {
	w := newWorld(t, Settings{UserSequence: true})
	w.attach(gtp.V1, gtp.PDPTypeIPv4)
	w.clear()
	for n := range uint16(3) {
		w.e.HandleUE(1, udp4(four, host4, 53, 8), w.now, &w.out)
		if _, h := w.next(); !h.HasSequence || h.Sequence != n {
			t.Errorf("%+v, want %d", h, n)
		}
	}
}

// TestNoAllocations carries packets of a settled terminal.
func TestNoAllocations(t *testing.T) {
	for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
		w := newWorld(t, Settings{UserSequence: true})
		key := w.online(v)
		i := w.info(key)
		up, down := udp6(six, host, 200), udp6(host, six, 200)
		h := gtp.Header{Version: v, TEID: i.TEIDData, FlowLabel: uint16(i.TEIDData), TID: key}
		b, _ := gtp.Encapsulate(nil, &h, down)
		socket := Socket(0, PlaneUser)
		if v == gtp.V0 {
			socket = Socket(0, PlaneV0)
		}
		if n := testing.AllocsPerRun(1000, func() {
			w.clear()
			w.e.HandleUE(1, up, w.now, &w.out)
			w.send(socket, theirs, b)
		}); n != 0 || len(w.out.IP) != 1 || len(w.out.UDP) != 1 {
			t.Errorf("GTPv%d: %v allocations, %d packets", v, n, len(w.out.IP))
		}
	}
}

func BenchmarkGPDU(b *testing.B) {
	w := newWorld(&testing.T{}, Settings{})
	key, _ := w.e.Attach(attachment(gtp.V1, gtp.PDPTypeIPv4), w.now, &w.out)
	w.accept(nil)
	up, down := udp4(four, host4, 53, 1200), udp4(host4, four, 53, 1200)
	for _, way := range []string{"up", "down"} {
		b.Run(way, func(b *testing.B) {
			g, _ := gtp.Encapsulate(nil, &gtp.Header{Version: gtp.V1, TEID: w.info(key).TEIDData}, down)
			for b.Loop() {
				w.clear()
				if way == "up" {
					w.e.HandleUE(1, up, w.now, &w.out)
				} else {
					w.send(Socket(0, PlaneUser), theirs, g)
				}
			}
		})
	}
}

// TestPacketsBeforeTheAnswer takes packets that have overtaken the response that opens their context, some of them, and
// from its GGSN alone.
func TestPacketsBeforeTheAnswer(t *testing.T) {
	for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
		w := newWorld(t, Settings{})
		key, err := w.e.Attach(attachment(v, gtp.PDPTypeIPv4v6), w.now, &w.out)
		w.order(err)
		w.advertise(key, defaultRA())
		for range maxEarly {
			w.down(key, udp4(host4, four, 53, 8))
		}
		if len(w.out.IP) > 0 || w.drops("context_not_open") != 1 {
			t.Errorf("%d packets came before their context, %d were dropped", len(w.out.IP), w.drops("context_not_open"))
		}
		w.accept(nil)
		if i := w.info(key); len(i.IPv6) != 1 || len(w.out.IP) != maxEarly || i.Traffic.DownPackets != maxEarly {
			t.Errorf("%+v, and %d packets", i, len(w.out.IP)) // with an advertisement of ours
		}
		w.clear()
		w.now = w.now.Add(time.Hour)
		w.e.Tick(w.now, &w.out)
		w.none() // nobody has to be asked for an advertisement

		next := attachment(v, gtp.PDPTypeIPv4)
		next.NSAPI = 9
		key, err = w.e.Attach(next, w.now, &w.out)
		w.order(err)
		w.down(key, udp4(host4, four, 53, 8))
		w.accept(func(r *gtp.CreateResponse) { r.AddressUser = gtp.Some(other) })
		if w.drops("foreign_peer") != 1 {
			t.Error("a packet of another node than the context's was taken")
		}
		w.e.Abandon(w.now, &w.out)
		w.empty()
	}
}
