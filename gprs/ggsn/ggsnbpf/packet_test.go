// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnbpf_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/ggsn/ggsnbpf"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// transports are those of which the programs know the checksum, and one that they do not.
var transports = []byte{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoICMPv6, packet.ProtoICMPv4, 132}

// lessHop is a packet that has crossed a router.
func lessHop(ip []byte) []byte {
	ip = bytes.Clone(ip)
	if ip[0]>>4 == 6 {
		ip[7]--
		return ip
	}
	ip[8]--
	binary.BigEndian.PutUint16(ip[10:], 0)
	binary.BigEndian.PutUint16(ip[10:], checksum(0, ip[:20]))
	return ip
}

// ends are the terminal's and another's addresses of one family.
type ends struct{ terminal, host netip.Addr }

var families = []ends{{terminal4, host4}, {terminal6, host6}}

// ethernet is what must stand in front of a packet to the route of that number.
func (w *world) ethernet(number int, kind uint16) []byte {
	r := ways[number]
	return binary.BigEndian.AppendUint16(append(bytes.Clone(r.mac), w.ports[r.port].mac...), kind)
}

// forwards gives a packet to a program, and fails unless it leaves, counted as that and for its context.
func (w *world) forwards(t *testing.T, at runtest.Hook, ip []byte, reason string, octets int) []byte {
	t.Helper()
	of := &w.context.Up
	if reason == "down_forwarded" {
		of = &w.context.Down
	}
	before := *of
	verdict, out := w.run(t, at, ip)
	if diff := cmp.Diff(map[string]uint64{reason: 1}, w.counted(t)); diff != "" || verdict != fastpath.Forward {
		t.Fatalf("%s; counters (-want +got):\n%s", verdict, diff)
	}
	if of.Packets-before.Packets != 1 || of.Octets-before.Octets != uint64(octets) {
		t.Errorf("the context counts %d packets and %d octets, want %d", of.Packets-before.Packets, of.Octets-before.Octets, octets)
	}
	return out
}

// form is how a packet looks beside its addresses and transport.
type form struct {
	octets, padding int
	sequence        bool // of the G-PDU
	ecn             byte
}

var forms = []form{{20, 0, false, 0}, {20, 9, true, 1}, {21, 0, true, 2}, {333, 9, false, 1}, {1400, 0, false, 0}, {1400, 9, true, 0}}

func TestUplink(t *testing.T) {
	w := newWorld(t)
	for _, at := range runtest.Hooks {
		for i, f := range families {
			for _, proto := range transports {
				for _, form := range forms {
					t.Run(fmt.Sprint(at, i, proto, form), func(t *testing.T) {
						ip := inside(f.terminal, f.host, proto, form.octets)
						frame := append(gpdu(node, teid, form.sequence, ip), make([]byte, form.padding)...)
						out := w.forwards(t, at, frame, "up_forwarded", len(ip))
						want := append(w.ethernet(2+i, []uint16{0x0800, 0x86dd}[i]), lessHop(ip)...)
						if diff := cmp.Diff(want, out); diff != "" {
							t.Errorf("(-want +got):\n%s", diff)
						}
					})
				}
			}
		}
	}
	if late := time.Duration(w.context.Seen)*time.Second - time.Since(w.epoch); late > 0 || late < -time.Hour {
		t.Errorf("the terminal was seen %s from now", late)
	}
}

// checkGPDU compares a frame with the G-PDU that has to carry a packet.
func (w *world) checkGPDU(t *testing.T, out, ip []byte, class byte, isSummed bool) {
	t.Helper()
	if len(out) != 14+36+len(ip) {
		t.Fatalf("%d octets left: %x", len(out), out)
	}
	want := w.ethernet(0, 0x0800)
	head := []byte{0x45, class, 0, 0, out[18], out[19], 0, 0, 64, packet.ProtoUDP, 0, 0}
	binary.BigEndian.PutUint16(head[2:], uint16(36+len(ip)))
	head = append(append(head, own.AsSlice()...), node.AsSlice()...)
	u := []byte{2152 >> 8, 2152 & 0xff, 2152 >> 8, 2152 & 0xff, 0, 0, 0, 0, 0x30, 255, 0, 0}
	binary.BigEndian.PutUint16(u[4:], uint16(16+len(ip)))
	binary.BigEndian.PutUint16(u[10:], uint16(len(ip)))
	u = binary.BigEndian.AppendUint32(u, nodeTEID)
	g := seal(append(append(head, u...), lessHop(ip)...))
	if !isSummed {
		g[26], g[27] = 0, 0
	}
	if diff := cmp.Diff(append(want, g...), out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDownlink(t *testing.T) {
	w := newWorld(t)
	for _, at := range runtest.Hooks {
		for i, f := range families {
			for _, proto := range transports {
				for _, form := range forms {
					t.Run(fmt.Sprint(at, i, proto, form), func(t *testing.T) {
						ip := inside(f.host, f.terminal, proto, form.octets)
						setECN(ip, form.ecn)
						out := w.forwards(t, at, append(bytes.Clone(ip), make([]byte, form.padding)...), "down_forwarded", len(ip))
						known := proto == packet.ProtoTCP || proto == packet.ProtoUDP ||
							proto == packet.ProtoICMPv6 && i == 1 || proto == packet.ProtoICMPv4 && i == 0
						w.checkGPDU(t, out, ip, 46<<2|form.ecn, known)
					})
				}
			}
		}
	}
	if w.context.Seen != 0 {
		t.Error("a packet for the terminal counts as its own")
	}
}

// row is a packet that a program leaves, or drops.
type row struct {
	name   string
	ip     []byte
	reason string // empty: it is not counted
	change func(*ggsn.SharedContext)
}

// put overwrites octets of a packet, and makes its checksums right again.
func put(at int, octets ...byte) func([]byte) []byte {
	return func(ip []byte) []byte {
		copy(ip[at:], octets)
		return seal(ip)
	}
}

// raw overwrites octets and leaves checksums as they were.
func raw(ip []byte, at int, octets ...byte) []byte {
	copy(ip[at:], octets)
	return ip
}

func TestUplinkLeft(t *testing.T) {
	w := newWorld(t)
	four, six := inside(terminal4, host4, packet.ProtoUDP, 100), inside(terminal6, host6, packet.ProtoUDP, 100)
	up := func(ip []byte) []byte { return gpdu(node, teid, false, ip) }
	change := func(ip []byte, f func([]byte) []byte) []byte { return f(bytes.Clone(ip)) }
	w.leaves(t, []row{
		{"echo request", datagram(node, own, []byte{0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}), "not_gpdu", nil},
		{"short message", datagram(node, own, []byte{0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0}), "not_gpdu", nil},
		{"shorter than a header", datagram(node, own, []byte{0x32, 1, 0}), "", nil},
		{"another port", put(22, 0x08, 0x69)(up(six)), "", nil},
		{"another address", datagram(node, host4, up(six)[28:]), "", nil},
		{"version 2", put(28, 0x50)(up(six)), "not_gpdu", nil},
		{"GTP'", put(28, 0x20)(up(six)), "not_gpdu", nil},
		{"extension header", put(28, 0x34)(up(six)), "extension", nil},
		{"N-PDU number", put(28, 0x31)(up(six)), "extension", nil},
		{"length of GTP", put(30, 0, 1)(up(six)), "odd_length", nil},
		{"length of UDP", raw(up(six), 24, 0, 40), "odd_length", nil},
		{"fragment", put(6, 0x20)(up(six)), "outer_fragment", nil},
		{"later fragment", put(6, 0, 9)(up(six)), "", nil},
		{"outer checksum", raw(up(six), 26, 1, 1), "bad_checksum", nil},
		{"outer checksum of what is not known", raw(up(inside(terminal6, host6, 132, 100)), 26, 1, 1), "bad_checksum", nil},
		{"outer header's checksum", raw(up(six), 10, 1, 1), "bad_checksum", nil},
		{"unknown TEID", gpdu(node, teid+1, false, six), "no_record", nil},
		{"other node", gpdu(stranger, teid, false, six), "outer_source", nil},
		{"congestion", put(1, 3)(up(six)), "marked", nil},
		{"ECT(0) around Not-ECT", put(1, 2)(up(six)), "marked", nil},
		{"no IP", up(change(six, func(b []byte) []byte { return raw(b, 0, 0x50) })), "wrong_family", nil},
		{"no IPv4", up(four), "wrong_family", func(c *ggsn.SharedContext) { c.Flags = ggsn.SharedIPv6 }},
		{"no IPv6", up(six), "wrong_family", func(c *ggsn.SharedContext) { c.Flags = ggsn.SharedIPv4 }},
		{"another's address", up(inside(netip.MustParseAddr("10.45.0.10"), host4, packet.ProtoUDP, 100)), "other_source", nil},
		{"another's prefix", up(inside(netip.MustParseAddr("2001:db8:45:a::7"), host6, packet.ProtoUDP, 100)), "other_source", nil},
		{"nobody's address", up(inside(host4, host4, packet.ProtoUDP, 100)), "spoofed", nil},
		{"nobody's prefix", up(inside(host6, host6, packet.ProtoUDP, 100)), "spoofed", nil},
		{"from the node itself", gpdu(own, teid, false, six), "outer_source", nil},
		{"from loopback", gpdu(netip.MustParseAddr("127.0.0.1"), teid, false, six), "outer_source", func(c *ggsn.SharedContext) { c.Flags |= ggsn.SharedAnySource }},
		{"header's checksum inside", up(change(four, func(b []byte) []byte { return raw(b, 10, 1, 1) })), "inner_checksum", nil},
		{"first fragment of TCP", up(change(inside(terminal4, host4, packet.ProtoTCP, 40), put(6, 0x20))), "first_fragment", nil},
		{"fragment of IPv6", up(inside(terminal6, host6, 44, 40)), "ip_options", nil},
		{"options of IPv4", up(change(four, func(b []byte) []byte { return raw(b, 0, 0x46) })), "ip_options", nil},
		{"options for each hop", up(inside(terminal6, host6, 0, 100)), "ip_options", nil},
		{"longer inside", up(change(six, func(b []byte) []byte { return raw(b, 4, 0, 101) })), "odd_length", nil},
		{"shorter inside", up(change(four, put(2, 0, 119))), "odd_length", nil},
		{"short transport", up(inside(terminal6, host6, packet.ProtoUDP, 7)), "short_payload", nil},
		{"short TCP", up(inside(terminal6, host6, packet.ProtoTCP, 19)), "short_payload", nil},
		{"SYN", up(change(inside(terminal6, host6, packet.ProtoTCP, 20), put(53, 2))), "tcp_syn", nil},
		{"SYN of IPv4", up(change(inside(terminal4, host4, packet.ProtoTCP, 20), put(33, 0x12))), "tcp_syn", nil},
		{"hop limit", up(change(six, put(7, 1))), "hop_limit", nil},
		{"time to live", up(change(four, put(8, 1))), "hop_limit", nil},
		{"too big", up(inside(terminal6, host6, packet.ProtoUDP, 1411)), "too_big", nil},
		{"too big for the way", up(inside(terminal6, slim6, packet.ProtoUDP, 1361)), "too_big", nil},
		{"to be cut", up(change(inside(terminal4, host4, packet.ProtoUDP, 1431), put(6, 0))), "to_be_cut", nil},
		{"to be cut for the way", up(change(inside(terminal4, slim4, packet.ProtoUDP, 1381), put(6, 0))), "to_be_cut", nil},
		{"too big for the way, of IPv4", up(inside(terminal4, slim4, packet.ProtoUDP, 1381)), "too_big", nil},
		{"router solicitation", up(inside(terminal6, netip.MustParseAddr("ff02::2"), packet.ProtoICMPv6, 8)), "on_link", nil},
		{"link-local", up(inside(terminal6, netip.MustParseAddr("fe80::1"), packet.ProtoICMPv6, 8)), "on_link", nil},
		{"multicast", up(inside(terminal4, netip.MustParseAddr("224.0.0.5"), packet.ProtoUDP, 8)), "illegal_address", nil},
		{"another terminal", up(inside(terminal6, netip.MustParseAddr("2001:db8:45:a::7"), packet.ProtoUDP, 8)), "inside", nil},
		{"another terminal by IPv4", up(inside(terminal4, netip.MustParseAddr("10.45.0.10"), packet.ProtoUDP, 8)), "inside", nil},
		{"another terminal that is routed elsewhere", up(inside(terminal6, netip.MustParseAddr("2001:db8:1:8000::7"), packet.ProtoUDP, 8)), "inside", nil},
		{"another terminal that is routed elsewhere by IPv4", up(inside(terminal4, netip.MustParseAddr("203.0.113.200"), packet.ProtoUDP, 8)), "inside", nil},
		{"the node itself", up(inside(terminal4, own, packet.ProtoUDP, 8)), "no_next_hop", nil},
		{"nowhere", up(inside(terminal6, lost6, packet.ProtoUDP, 8)), "no_next_hop", nil},
		{"nowhere by IPv4", up(inside(terminal4, lost4, packet.ProtoUDP, 8)), "no_next_hop", nil},
		{"redirect", up(change(inside(terminal6, host6, packet.ProtoICMPv6, 40), put(40, 137))), "redirect", nil},
		{"record full", up(six), "volume", func(c *ggsn.SharedContext) { c.Left = 140 }},
		{"record changes", up(six), "no_record", func(c *ggsn.SharedContext) { c.State = 4 }},
		{"no traffic at all", up(six), "over_rate", func(c *ggsn.SharedContext) { c.Up.Rate.Cost = ^uint64(0) }},
		{"ahead of the rate", up(six), "over_rate", func(c *ggsn.SharedContext) { c.Up.Rate = ggsn.SharedRate{Cost: 8000 << 16, Arrival: 1 << 60} }},
	})
}

func TestDownlinkLeft(t *testing.T) {
	w := newWorld(t)
	four, six := inside(host4, terminal4, packet.ProtoUDP, 100), inside(host6, terminal6, packet.ProtoUDP, 100)
	change := func(ip []byte, f func([]byte) []byte) []byte { return f(bytes.Clone(ip)) }
	w.leaves(t, []row{
		{"another terminal", inside(host6, netip.MustParseAddr("2001:db8:45:a::7"), packet.ProtoUDP, 100), "", nil},
		{"another terminal by IPv4", inside(host4, netip.MustParseAddr("10.45.0.10"), packet.ProtoUDP, 100), "", nil},
		{"no IPv4", four, "no_record", func(c *ggsn.SharedContext) { c.Flags = ggsn.SharedIPv6 }},
		{"no IPv6", six, "no_record", func(c *ggsn.SharedContext) { c.Flags = ggsn.SharedIPv4 }},
		{"length", raw(bytes.Clone(six), 4, 2, 0), "odd_length", nil},
		{"header's checksum", raw(bytes.Clone(four), 10, 1, 1), "bad_checksum", nil},
		{"options of IPv4", raw(bytes.Clone(four), 0, 0x46), "ip_options", nil},
		{"options for each hop", inside(host6, terminal6, 0, 100), "ip_options", nil},
		{"hop limit", change(six, put(7, 1)), "hop_limit", nil},
		{"time to live", change(four, put(8, 1)), "hop_limit", nil},
		{"too big", inside(host6, terminal6, packet.ProtoUDP, 1411), "too_big", nil},
		{"too big, of IPv4", inside(host4, terminal4, packet.ProtoUDP, 1431), "too_big", nil},
		{"to be cut", change(inside(host4, terminal4, packet.ProtoUDP, 1431), put(6, 0)), "to_be_cut", nil},
		{"to be cut on the way to the node", inside(host6, terminal6, packet.ProtoUDP, 1410), "to_be_cut", func(c *ggsn.SharedContext) { c.Node = fastpath.IPv4Word(farNode) }},
		{"SYN", change(inside(host6, terminal6, packet.ProtoTCP, 20), put(53, 2)), "tcp_syn", nil},
		{"redirect", change(inside(host6, terminal6, packet.ProtoICMPv6, 40), put(40, 137)), "redirect", nil},
		{"redirect of IPv4", change(inside(host4, terminal4, packet.ProtoICMPv4, 40), put(20, 5)), "redirect", nil},
		{"from a terminal", inside(netip.MustParseAddr("2001:db8:45:a::7"), terminal6, packet.ProtoUDP, 100), "inside", nil},
		{"from a terminal by IPv4", inside(netip.MustParseAddr("10.45.0.10"), terminal4, packet.ProtoUDP, 100), "inside", nil},
		{"from a terminal that is routed elsewhere", inside(netip.MustParseAddr("2001:db8:1:8000::7"), terminal6, packet.ProtoUDP, 100), "inside", nil},
		{"from a terminal that is routed elsewhere by IPv4", inside(netip.MustParseAddr("203.0.113.200"), terminal4, packet.ProtoUDP, 100), "inside", nil},
		{"first fragment of ICMP", change(inside(host4, terminal4, packet.ProtoICMPv4, 40), put(6, 0x20)), "first_fragment", nil},
		{"TCP behind an extension header", inside(host6, terminal6, 60, 40), "ip_options", nil},
		{"from a link", inside(netip.MustParseAddr("fe80::1"), terminal6, packet.ProtoUDP, 100), "illegal_address", nil},
		{"from loopback", inside(netip.MustParseAddr("127.0.0.1"), terminal4, packet.ProtoUDP, 100), "illegal_address", nil},
		{"no way to the node", six, "no_next_hop", func(c *ggsn.SharedContext) { c.Node = fastpath.IPv4Word(lost4) }},
		{"record full", six, "volume", func(c *ggsn.SharedContext) { c.Left = 140 }},
		{"record changes", six, "no_record", func(c *ggsn.SharedContext) { c.State = 4 }},
		{"no traffic at all", six, "over_rate", func(c *ggsn.SharedContext) { c.Down.Rate.Cost = ^uint64(0) }},
		{"rates of all", six, "over_rate", func(c *ggsn.SharedContext) { c.Aggregate = 5 }},
	})
}

// leaves fails unless packets pass as they came, or are dropped, counted by their reason, while the context is changed.
func (w *world) leaves(t *testing.T, rows []row) {
	plain := *w.context
	w.shared.Aggregates[5].Down = ggsn.SharedRate{Cost: 8000 << 16, Arrival: 1 << 60}
	for _, tt := range rows {
		for _, at := range runtest.Hooks {
			t.Run(fmt.Sprint(at, "/", tt.name), func(t *testing.T) {
				*w.context = plain
				if tt.change != nil {
					tt.change(w.context)
				}
				verdict, out := w.run(t, at, tt.ip)
				want, counters := fastpath.Punt, map[string]uint64{}
				if tt.reason != "" {
					counters[tt.reason] = 1
				}
				if tt.reason == "over_rate" || tt.reason == "bad_checksum" {
					want = fastpath.Drop
				}
				if diff := cmp.Diff(counters, w.counted(t)); diff != "" || verdict != want {
					t.Errorf("%s, want %s; counters (-want +got):\n%s", verdict, want, diff)
				}
				if frame := w.frame(tt.ip); !bytes.Equal(out, frame) {
					t.Errorf("it was changed:\n%x\n%x", frame, out)
				}
				over := uint64(0)
				if tt.reason == "over_rate" {
					over = 1
				}
				if n := w.context.Up.Over + w.context.Down.Over; n != over || w.context.Up.Packets+w.context.Down.Packets != 0 {
					t.Errorf("the context counts %d above its rate: %+v", n, w.context)
				}
			})
		}
	}
	*w.context = plain
}

// An engine that goes on with what another has written counts from a time before this machine was started, perhaps.
func TestEpochBeforeStart(t *testing.T) {
	w := newWorld(t)
	w.epoch = time.Now().Add(-fastpath.Monotonic() - time.Hour)
	w.fast.Shared(w.epoch)
	for _, at := range runtest.Hooks {
		ip := inside(terminal6, host6, packet.ProtoUDP, 100)
		w.forwards(t, at, gpdu(node, teid, false, ip), "up_forwarded", len(ip))
	}
	if late := time.Duration(w.context.Seen)*time.Second - time.Since(w.epoch); late > 0 || late < -time.Minute {
		t.Errorf("the terminal was seen %s from now", late)
	}
}

// More prefixes than there is room for are refused.
func TestTooManyInside(t *testing.T) {
	w := newWorld(t)
	var list []netip.Prefix
	for i := range ggsnbpf.MaxInside + 1 {
		list = append(list, netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8), byte(i)}), 32))
	}
	if err := w.fast.SetInside(list); err == nil {
		t.Error("there is room for more prefixes than there should be")
	}
	if err := w.fast.SetInside(pools); err != nil {
		t.Error(err)
	}
}
