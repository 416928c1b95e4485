// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitbpf_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/translatebpf/translatebpftest"
)

// protocols are those that the programs carry, by their numbers in IPv6.
var protocols = []byte{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoICMPv6}

// Packets leave as the engine makes them, all of them and at either hook.
func TestSIITForwards(t *testing.T) {
	w := newSIITWorld(t)
	for _, proto := range protocols {
		smallest := map[byte]int{packet.ProtoTCP: 20}[proto]
		type row struct {
			name string
			size int // of the message
			six  []translatebpftest.Change
			four []translatebpftest.Change
		}
		rows := []row{
			{"plain", 100, nil, nil},
			{"odd length", 101, nil, nil},
			{"smallest", max(smallest, 8), nil, nil},
			{"largest without DF", 1240, nil, nil},
			{"one more", 1241, nil, nil},
			{"largest", 1460, nil, nil},
			{"traffic class and flow label", 64, []translatebpftest.Change{translatebpftest.Put(0, 0x6b, 0x9f, 0xed, 0xcb)}, []translatebpftest.Change{translatebpftest.Header(1, 0xb9)}},
			{"without DF", 64, nil, []translatebpftest.Change{translatebpftest.Header(6, 0)}},
			{"two hops left", 64, []translatebpftest.Change{translatebpftest.Put(7, 2)}, []translatebpftest.Change{translatebpftest.Header(8, 2)}},
			{"255 hops left", 64, []translatebpftest.Change{translatebpftest.Put(7, 255)}, []translatebpftest.Change{translatebpftest.Header(8, 255)}},
			{"wrong checksum", 64, []translatebpftest.Change{translatebpftest.Put(40+60, 0xee)}, []translatebpftest.Change{translatebpftest.Put(20+60, 0xee)}},
			{"UDP without a checksum", 64, []translatebpftest.Change{func(ip []byte) []byte {
				if ip[6] == packet.ProtoUDP {
					ip[46], ip[47] = 0, 0
				}
				return ip
			}}, nil},
			{"reply, or FIN", 64, []translatebpftest.Change{func(ip []byte) []byte {
				if ip[6] == packet.ProtoICMPv6 {
					return translatebpftest.Body(40, 129)(ip)
				}
				return translatebpftest.Body(53, 0x11)(ip)
			}}, []translatebpftest.Change{func(ip []byte) []byte {
				if ip[9] == 1 {
					return translatebpftest.Body(20, 0)(ip)
				}
				return translatebpftest.Body(33, 0x12)(ip)
			}}},
			{"bytes that are a code, or a port", 64, []translatebpftest.Change{translatebpftest.Body(41, 7)}, []translatebpftest.Change{translatebpftest.Body(21, 7)}},
		}
		for _, at := range runtest.Hooks {
			f := siitUsual(proto)
			for _, tt := range rows {
				t.Run(fmt.Sprintf("%s/%d/%s", at, proto, tt.name), func(t *testing.T) {
					six, four := w.packet6(f, tt.size), w.packet4(f, tt.size)
					for _, c := range tt.six {
						six = c(six)
					}
					for _, c := range tt.four {
						four = c(four)
					}
					w.forwards(t, at, six, "to4_forwarded")
					w.forwards(t, at, four, "to6_forwarded")
				})
			}
		}
	}
}

// Addresses of either side by prefixes and mappings of all kinds.
func TestSIITMaps(t *testing.T) {
	w := newSIITWorld(t)
	type row struct {
		name         string
		source, dest string // of the family that is sent
	}
	rows := []row{
		{"IPv4 to the end of a prefix", "198.51.100.7", "192.0.2.137"},
		{"IPv4 to the lower half", "198.51.100.7", "192.0.2.147"},
		{"IPv4 to the upper half, by the longer mapping", "198.51.100.7", "192.0.2.157"},
		{"IPv4 further up", "198.51.100.7", "192.0.2.165"},
		{"IPv4 across both halves", "198.51.100.7", "192.0.2.173"},
		{"IPv4 to a host whose address is made by pool6", "198.51.100.7", "192.0.2.179"},
		{"IPv4 from a mapping", "198.51.100.201", "192.0.2.130"},
		{"IPv4 from the longer mapping", "198.51.100.200", "192.0.2.130"},
		{"IPv4 from an address of ours", "192.0.2.147", "192.0.2.130"},
		{"IPv6 of the end of a prefix", "2001:db8:1:20::5", "2001:db8:64::198.51.100.7"},
		{"IPv6 of the lower half", "2001:db8:1:1::a7", "2001:db8:64::198.51.100.7"},
		{"IPv6 of the upper half", "2001:db8:1:1d::ffff", "2001:db8:64::198.51.100.7"},
		{"IPv6 further up", "2001:db8:1:3b:8000::", "2001:db8:64::198.51.100.7"},
		{"IPv6 across both halves", "2001:db8:1:12:ffff::9", "2001:db8:64::198.51.100.7"},
		{"IPv6 from an address that pool6 makes", "2001:db8:64::192.0.2.179", "2001:db8:64::198.51.100.7"},
		{"IPv6 from an address of another prefix", "3fff:300:1:c000:2:b300::", "2001:db8:64::198.51.100.7"},
		{"IPv6 to a suffix of any kind", "2001:db8:1::5", "3fff:300:1:c633:64:700:1234:5678"},
	}
	for i := range translatebpftest.Pool6[2:] {
		rows = append(rows, row{fmt.Sprintf("IPv6 to %s", translatebpftest.Pool6[2+i]), "2001:db8:1::5", w.choice.engine.Translate.Prefixes[2+i].Embed(translatebpftest.ServerAddr).String()})
	}
	rows = append(rows, row{"IPv6 by the well-known prefix", "2001:db8:1::5", "64:ff9b::198.41.0.4"})
	for _, at := range runtest.Hooks {
		for _, proto := range protocols {
			for _, tt := range rows {
				t.Run(fmt.Sprintf("%s/%d/%s", at, proto, tt.name), func(t *testing.T) {
					from, to := netip.MustParseAddr(tt.source), netip.MustParseAddr(tt.dest)
					f := siitUsual(proto)
					if from.Is4() {
						w.forwards(t, at, translatebpftest.To4(tt.dest)(translatebpftest.From4(tt.source)(w.packet4(f, 40))), "to6_forwarded")
						return
					}
					w.forwards(t, at, translatebpftest.Seal(translatebpftest.Body(24, to.AsSlice()...)(translatebpftest.Body(8, from.AsSlice()...)(w.packet6(f, 40)))), "to4_forwarded")
				})
			}
		}
	}
}

// Random payloads meet all values of a checksum that are special.
func TestSIITChecksums(t *testing.T) {
	w := newSIITWorld(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, proto := range protocols {
		f := siitUsual(proto)
		for i := range 600 {
			word := []byte{byte(r.Uint32()), byte(r.Uint32())}
			six, four := translatebpftest.Body(40+30, word...)(w.packet6(f, 40)), translatebpftest.Body(20+30, word...)(w.packet4(f, 40))
			if i%3 == 0 {
				// Have the new checksum be zero, or its twin.
				six, four = w.aim(t, six), w.aim(t, four)
			}
			for _, ip := range [][]byte{six, four} {
				_, out := w.translateAt(t, runtest.Hooks[i%2], w.Frame(ip))
				w.equal(t, out, ip)
			}
			if t.Failed() {
				t.Fatalf("at %s, packet %d", runtest.Hooks[i%2], i)
			}
		}
	}
}

// aim changes a word of the payload so that the translated checksum becomes zero.
func (w *siitWorld) aim(t *testing.T, ip []byte) []byte {
	out := w.model(t, ip, []byte{0, 0})
	header, old, proto := 20, 40, out[9]
	if ip[0]>>4 == 4 {
		header, old, proto = 40, 20, out[6]
	}
	at := map[byte]int{6: 16, 17: 6, 1: 2, 58: 2}[proto]
	word := ip[old+32 : old+34]
	binary.BigEndian.PutUint16(word, packet.Fold(uint64(binary.BigEndian.Uint16(word))+uint64(binary.BigEndian.Uint16(out[header+at:]))))
	return translatebpftest.Seal(ip)
}

// Special-purpose addresses that are forwarded are no reason to leave a packet.
func TestSIITSpecialAddresses(t *testing.T) {
	w := newSIITWorld(t)
	udp := siitUsual(packet.ProtoUDP)
	for name, ip := range translatebpftest.SpecialPassed(w.packet6(udp, 40), w.packet4(udp, 40)) {
		for _, at := range runtest.Hooks {
			w.translateAt(t, at, w.Frame(ip))
			if c := w.counted(t); c["illegal_address"] != 0 {
				t.Errorf("%s, %s: %v", at, name, c)
			}
		}
	}
}

// What the programs do not handle passes as it came, counted by its reason.
func TestSIITLeaves(t *testing.T) {
	w := newSIITWorld(t)
	udp, icmp := siitUsual(packet.ProtoUDP), siitUsual(packet.ProtoICMPv6)
	slim6, slim4, lost := udp, udp, udp
	slim6.ours = netip.MustParseAddr("192.0.2.131")
	slim4.other, lost.other = translatebpftest.SlimServer, translatebpftest.LostServer
	w.LeavesRows(t, w.fast, append(translatebpftest.OddForms(func(proto uint8) (six, four []byte) {
		return w.packet6(siitUsual(proto), 40), w.packet4(siitUsual(proto), 40)
	}), []translatebpftest.LeftRow{
		{Name: "IPv6 to elsewhere", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("2001:db8:1::9"), Want: ""},
		{Name: "IPv6 to a mapping outside of pool6", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("2001:db8:1:1::a7"), Want: ""},
		{Name: "IPv6 error to elsewhere", Packet: w.packet6(icmp, 40), Change: func(ip []byte) []byte { return translatebpftest.To6("2001:db8:1::9")(translatebpftest.Body(40, 1)(ip)) }, Want: ""},
		{Name: "IPv4 to elsewhere", Packet: w.packet4(udp, 40), Change: translatebpftest.To4("192.0.2.199"), Want: ""},
		{Name: "IPv4 to elsewhere, between ours", Packet: w.packet4(udp, 40), Change: translatebpftest.To4("192.0.2.133"), Want: ""},
		{Name: "IPv4 fragment to elsewhere", Packet: w.packet4(udp, 40), Change: func(ip []byte) []byte {
			return translatebpftest.To4("192.0.2.133")(translatebpftest.Header(6, 0x20)(ip))
		}, Want: ""},
		{Name: "IPv4 error to elsewhere", Packet: w.packet4(icmp, 40), Change: func(ip []byte) []byte { return translatebpftest.To4("192.0.2.133")(translatebpftest.Body(20, 3)(ip)) }, Want: ""},
		{Name: "another protocol to elsewhere", Packet: w.packet4(udp, 40), Change: func(ip []byte) []byte { return translatebpftest.To4("192.0.2.133")(translatebpftest.Header(9, 47)(ip)) }, Want: ""},
		{Name: "unreachable", Packet: w.packet6(icmp, 64), Change: translatebpftest.Body(40, 1), Want: "icmp_error"},
		{Name: "too big", Packet: w.packet6(icmp, 64), Change: translatebpftest.Body(40, 2), Want: "icmp_error"},
		{Name: "unreachable in IPv4", Packet: w.packet4(icmp, 64), Change: translatebpftest.Body(20, 3), Want: "icmp_error"},
		{Name: "time exceeded in IPv4", Packet: w.packet4(icmp, 64), Change: translatebpftest.Body(20, 11), Want: "icmp_error"},
		{Name: "from IPv4 loopback, in a prefix", Packet: w.packet6(udp, 40), Change: translatebpftest.From6("2001:db8:64::127.0.0.1"), Want: "illegal_address"},
		{Name: "to a private address by the well-known prefix", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("64:ff9b::10.0.0.1"), Want: "well_known_prefix_non_global"},
		{Name: "from one", Packet: w.packet6(udp, 40), Change: translatebpftest.From6("64:ff9b::10.0.0.1"), Want: "well_known_prefix_non_global"},
		{Name: "without a mapping", Packet: w.packet6(udp, 40), Change: translatebpftest.From6("2001:db8:1::6"), Want: "source_unmapped"},
		{Name: "to a mapping by way of pool6", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("2001:db8:64::192.0.2.147"), Want: "hairpin"},
		{Name: "to pool4 by way of pool6", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("2001:db8:64::192.0.2.179"), Want: "hairpin"},
		{Name: "to a mapping inside of pool6", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("2001:db8:64::203.0.113.9"), Want: "hairpin"},
		{Name: "without a route", Packet: w.packet6(lost, 40), Change: nil, Want: "no_next_hop"},
		{Name: "to a mapping of addresses that begin with nothing", Packet: w.packet4(udp, 40), Change: translatebpftest.To4("192.0.2.180"), Want: "no_next_hop"},
		{Name: "back into pool6", Packet: w.packet4(udp, 40), Change: translatebpftest.To4("192.0.2.132"), Want: "no_next_hop"},
		{Name: "too big for the link", Packet: w.packet6(slim4, 1000), Change: nil, Want: "too_big"},
		{Name: "too big for the IPv6 link", Packet: w.packet4(slim6, 1280), Change: nil, Want: "too_big"},
		{Name: "too big for IPv6 without DF", Packet: w.packet4(udp, 1241), Change: translatebpftest.Header(6, 0), Want: "to_be_cut"},
	}...))
}

// Frames for others, and by devices that are not served, are not looked at.
func TestSIITLeavesOthers(t *testing.T) {
	w := newSIITWorld(t)
	f := siitUsual(packet.ProtoUDP)
	for _, ip := range [][]byte{w.packet6(f, 40), w.packet4(f, 40)} {
		frame := w.Frame(ip)
		frame[5]++
		for _, at := range runtest.Hooks {
			if verdict, _ := w.translateAt(t, at, frame); verdict != fastpath.Punt {
				t.Errorf("for another, at %s: %s", at, verdict)
			}
		}
	}
	w.fast.RemoveDevice(1)
	w.fast.RemoveDevice(w.Ports[0].Index)
	for _, at := range runtest.Hooks {
		if verdict, _ := w.translateAt(t, at, w.Frame(w.packet6(f, 40))); verdict != fastpath.Punt {
			t.Errorf("not served, at %s: %s", at, verdict)
		}
	}
	if got := w.counted(t); len(got) != 0 {
		t.Errorf("counted: %v", got)
	}
}

// A frame whose checksum a local sender left to hardware gets a whole one; by a wire it
// stays as wrong as it is.
func TestSIITFinishesChecksums(t *testing.T) {
	w := newSIITWorld(t)
	for _, proto := range protocols[:2] {
		f := siitUsual(proto)
		for _, n := range []int{20, 101, 1400} {
			for _, whole := range [][]byte{w.packet6(f, n), w.packet4(f, n)} {
				partial := translatebpftest.Half(append([]byte{}, whole...))
				w.arriveBy(t, true)
				_, out := w.translateAt(t, runtest.InXDP, w.Frame(partial))
				w.equal(t, out, whole)
				w.arriveBy(t, false)
				_, out = w.translateAt(t, runtest.InXDP, w.Frame(partial))
				w.equal(t, out, partial)
			}
		}
	}
}

// What the settings say, the programs do as the engine does.
func TestSIITSettings(t *testing.T) {
	w := newSIITWorld(t)
	usual := w.choice
	udp := siitUsual(packet.ProtoUDP)
	noDF := translatebpftest.Header(6, 0)
	for _, tt := range []struct {
		name   string
		change func(*siitChoice)
		packet func() []byte
		want   string
	}{
		{"traffic class copied", func(*siitChoice) {}, func() []byte { return translatebpftest.Header(1, 0xb9)(w.packet4(udp, 40)) }, "to6_forwarded"},
		{"traffic class zero", func(c *siitChoice) { c.engine.Translate.ZeroTrafficClass = true },
			func() []byte { return translatebpftest.Header(1, 0xb9)(w.packet4(udp, 40)) }, "to6_forwarded"},
		{"fixed TOS", func(c *siitChoice) { c.engine.Translate.FixedTOS, c.engine.Translate.TOS = true, 0x48 },
			func() []byte { return translatebpftest.Put(0, 0x6b, 0x90)(w.packet6(udp, 40)) }, "to4_forwarded"},
		{"as large as IPv4 takes", func(c *siitChoice) { c.engine.MTU4 = 1000 }, func() []byte { return w.packet6(udp, 980) }, "to4_forwarded"},
		{"larger than IPv4 takes", func(c *siitChoice) { c.engine.MTU4 = 1000 }, func() []byte { return w.packet6(udp, 981) }, "too_big"},
		{"no IPv4 network takes less than 68", func(c *siitChoice) { c.engine.MTU4 = 1 }, func() []byte { return w.packet6(udp, 48) }, "to4_forwarded"},
		{"as large as IPv6 takes", func(c *siitChoice) { c.engine.MTU6 = 1400 }, func() []byte { return w.packet4(udp, 1360) }, "to6_forwarded"},
		{"larger than IPv6 takes", func(c *siitChoice) { c.engine.MTU6 = 1400 }, func() []byte { return w.packet4(udp, 1361) }, "too_big"},
		{"no IPv6 network takes less than 1280", func(c *siitChoice) { c.engine.MTU6 = 1 }, func() []byte { return w.packet4(udp, 1240) }, "to6_forwarded"},
		{"without DF up to the lowest MTU", func(c *siitChoice) { c.engine.Translate.LowestIPv6MTU = 1400 },
			func() []byte { return noDF(w.packet4(udp, 1360)) }, "to6_forwarded"},
		{"without DF above it", func(c *siitChoice) { c.engine.Translate.LowestIPv6MTU = 1400 },
			func() []byte { return noDF(w.packet4(udp, 1361)) }, "to_be_cut"},
		{"without DF above the MTU, below the lowest", func(c *siitChoice) { c.engine.Translate.LowestIPv6MTU, c.engine.MTU6 = 1500, 1300 },
			func() []byte { return noDF(w.packet4(udp, 1261)) }, "to_be_cut"},
		{"source of simple hairpinning", func(c *siitChoice) { c.engine.Translate.Hairpin = translate.HairpinSimple },
			func() []byte { return translatebpftest.From4("192.0.2.147")(w.packet4(udp, 40)) }, "to6_forwarded"},
		{"source without hairpinning", func(c *siitChoice) { c.engine.Translate.Hairpin = translate.HairpinOff },
			func() []byte { return translatebpftest.From4("192.0.2.147")(w.packet4(udp, 40)) }, "to6_forwarded"},
		{"well-known prefix for any address", func(c *siitChoice) { c.engine.Translate.NonGlobal = true },
			func() []byte { return translatebpftest.To6("64:ff9b::198.51.100.7")(w.packet6(udp, 40)) }, "to4_forwarded"},
		{"well-known prefix first, strictly", func(c *siitChoice) { c.engine.Translate.Prefixes = c.engine.Translate.Prefixes[1:] },
			func() []byte { return w.packet4(udp, 40) }, "well_known_prefix_non_global"},
		{"well-known prefix first, a global address", func(c *siitChoice) { c.engine.Translate.Prefixes = c.engine.Translate.Prefixes[1:] },
			func() []byte { return translatebpftest.From4("198.41.0.4")(w.packet4(udp, 40)) }, "to6_forwarded"},
		{"well-known prefix first, to pool4", func(c *siitChoice) { c.engine.Translate.Prefixes = c.engine.Translate.Prefixes[1:] },
			func() []byte {
				return translatebpftest.To4("192.0.2.179")(translatebpftest.From4("198.51.100.201")(w.packet4(udp, 40)))
			}, "well_known_prefix_non_global"},
		{"mappings alone, both mapped", func(c *siitChoice) { c.engine.Translate.Prefixes = nil },
			func() []byte { return translatebpftest.From4("198.51.100.201")(w.packet4(udp, 40)) }, "to6_forwarded"},
		{"mappings alone, an unknown source", func(c *siitChoice) { c.engine.Translate.Prefixes = nil },
			func() []byte { return w.packet4(udp, 40) }, "source_unmapped"},
		{"mappings alone, pool4", func(c *siitChoice) { c.engine.Translate.Prefixes = nil },
			func() []byte {
				return translatebpftest.To4("192.0.2.179")(translatebpftest.From4("198.51.100.201")(w.packet4(udp, 40)))
			}, "destination_unmapped"},
		{"mappings alone, from IPv6", func(c *siitChoice) { c.engine.Translate.Prefixes = nil },
			func() []byte {
				return translatebpftest.To6("2001:db8:64::198.51.100.7")(w.packet6(siitFlow{proto6: 17, ours: udp.ours, other: udp.other}, 40))
			}, ""},
		{"prefixes alone", func(c *siitChoice) { c.mappings = nil },
			func() []byte { return translatebpftest.To4("192.0.2.179")(w.packet4(udp, 40)) }, "to6_forwarded"},
		{"prefixes alone, the other way", func(c *siitChoice) { c.mappings = nil },
			func() []byte { return translatebpftest.From6("2001:db8:64::192.0.2.179")(w.packet6(udp, 40)) }, "to4_forwarded"},
		{"prefixes alone, a mapping that is gone", func(c *siitChoice) { c.mappings = nil },
			func() []byte { return translatebpftest.To4("192.0.2.147")(w.packet4(udp, 40)) }, ""},
		{"nothing at all", func(c *siitChoice) { c.mappings, c.pool4 = nil, nil },
			func() []byte { return w.packet4(udp, 40) }, ""},
	} {
		for _, at := range runtest.Hooks {
			t.Run(string(at)+"/"+tt.name, func(t *testing.T) {
				w.set(t, usual)
				ip := tt.packet()
				c := usual
				tt.change(&c)
				w.set(t, c)
				if tt.want == "to4_forwarded" || tt.want == "to6_forwarded" {
					w.forwards(t, at, ip, tt.want)
				} else {
					w.leaves(t, at, ip, tt.want)
				}
			})
		}
	}
}
