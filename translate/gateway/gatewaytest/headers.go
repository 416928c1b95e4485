// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gatewaytest

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
)

// Ends of packets, for which a translator is to be configured: of a host with the IPv4
// address Host4, which has port 5000, and of a server.
const (
	Host6   = "2001:db8:1::c"
	Host4   = "192.0.2.66"
	Server4 = "198.51.100.2"
	Server6 = "2001:db8:64::198.51.100.2" // by Pool6
	Pool6   = "2001:db8:64::/96"

	router6 = "2001:db8:1:fff::1"
	global  = "8.8.8.8"  // has a form by the well-known prefix,
	router4 = "10.0.0.9" // and this has none
)

// Handle hands a packet to a translator and returns what comes out.
type Handle func(ip []byte) [][]byte

// Headers sees what becomes of packets by the keys of headers, errors and their sources.
// start makes a translator of lines of a file; Pool6 is its pool6 where they do not say, and
// there is no rate of errors to one host.
func Headers(t *testing.T, start func(t *testing.T, lines string) Handle) {
	to4 := Packet{Src: Host6, Dst: Server6, Proto: 17, Payload: UDP(5000, 53, 10)}
	to6 := Packet{Src: Server4, Dst: Host4, Proto: 17, TOS: 0x28, Payload: UDP(53, 5000, 10)}
	// came is what the host received, and went what the server did.
	came := Packet{Src: Server6, Dst: Host6, Proto: 17, Payload: UDP(53, 5000, 10)}.Bytes()
	went := func(to string) []byte {
		return Packet{Src: Host4, Dst: to, Proto: 17, DF: true, Payload: UDP(5000, 53, 1472)}.Bytes()
	}
	with := func(p Packet, change func(*Packet)) Packet { change(&p); return p }
	long := func(p Packet, n int) Packet {
		p.Payload = append(p.Payload, make([]byte, n-len(p.Payload))...)
		binary.BigEndian.PutUint16(p.Payload[4:], uint16(n))
		return p
	}
	unreachable := Packet{Src: router6, Dst: Server6, Proto: 58, Payload: ICMP(1, 0, 0, came)}
	for _, tt := range []struct {
		name, lines string
		in          Packet
		times       int // 0: once
		ok          func(out [][]byte) bool
	}{
		{"pool6", `pool6 = ["2001:db8:99::/96"]`, with(to4, func(p *Packet) { p.Dst = "2001:db8:99::198.51.100.2" }), 0,
			func(out [][]byte) bool { return out[0][0]>>4 == 4 && destination(out[0]) == Server4 }},
		{"allow_non_global", "pool6 = [\"64:ff9b::/96\"]\nallow_non_global = true", with(to4, func(p *Packet) { p.Dst = "64:ff9b::10.0.0.1" }), 0,
			func(out [][]byte) bool { return out[0][0]>>4 == 4 && destination(out[0]) == "10.0.0.1" }},
		{"address4", `address4 = "192.0.2.200"`, with(to6, func(p *Packet) { p.Hop = 1 }), 0,
			func(out [][]byte) bool { return source(out[0]) == "192.0.2.200" }},
		{"address6", `address6 = "2001:db8::200"`, with(to4, func(p *Packet) { p.Hop = 1 }), 0,
			func(out [][]byte) bool { return source(out[0]) == "2001:db8::200" }},
		{"router_pool4", `router_pool4 = ["198.51.100.128/25"]`, unreachable, 0,
			func(out [][]byte) bool {
				return netip.MustParsePrefix("198.51.100.128/25").Contains(netip.MustParseAddr(source(out[0])))
			}},
		{"interface_object", "router_pool4 = [\"198.51.100.128/25\"]\ninterface_object = true", unreachable, 0,
			func(out [][]byte) bool { a := netip.MustParseAddr(router6).As16(); return bytes.Contains(out[0], a[:]) }},
		{"router_pool6", "pool6 = [\"64:ff9b::/96\"]\nrouter_pool6 = [\"2001:db8:77::/112\"]",
			Packet{Src: router4, Dst: Host4, Proto: 1, Payload: ICMP(3, 1, 0, went(global))}, 0,
			func(out [][]byte) bool {
				return netip.MustParsePrefix("2001:db8:77::/112").Contains(netip.MustParseAddr(source(out[0])))
			}},
		{"ipv4_mtu", `ipv4_mtu = 1400`, long(to4, 1460), 0,
			func(out [][]byte) bool { return out[0][40] == 2 && binary.BigEndian.Uint32(out[0][44:]) == 1420 }},
		{"ipv6_mtu", `ipv6_mtu = 1400`, with(long(to6, 1480), func(p *Packet) { p.DF = true }), 0,
			func(out [][]byte) bool { return out[0][20] == 3 && binary.BigEndian.Uint16(out[0][26:]) == 1380 }},
		{"lowest_ipv6_mtu", `lowest_ipv6_mtu = 1400`, long(to6, 1480), 0,
			func(out [][]byte) bool { return len(out) == 2 && len(out[0]) > 1380 }},
		{"plateaus", `plateaus = [1450]`, Packet{Src: Server4, Dst: Host4, Proto: 1, Payload: ICMP(3, 4, 0, went(Server4))}, 0,
			func(out [][]byte) bool { return out[0][40] == 2 && binary.BigEndian.Uint32(out[0][44:]) == 1470 }},
		{"udp_zero_checksum", `udp_zero_checksum = "forward"`, with(to6, func(p *Packet) { p.Payload = append(bytes.Clone(p.Payload[:6]), make([]byte, 12)...) }), 0,
			func(out [][]byte) bool { return out[0][6] == 17 && out[0][46] == 0 && out[0][47] == 0 }},
		{"traffic_class", `traffic_class = 0`, to6, 0, func(out [][]byte) bool { return out[0][0] == 0x60 && out[0][1] == 0 }},
		{"tos", `tos = 7`, to4, 0, func(out [][]byte) bool { return out[0][1] == 7 }},
		{"icmp_errors_off", `icmp_errors_off = ["hop_limit"]`, with(to4, func(p *Packet) { p.Hop = 1 }), 0,
			func(out [][]byte) bool { return out[0][0] == 0 }},
		{"icmp_rate", `icmp_rate = 1`, with(to4, func(p *Packet) { p.Hop = 1 }), 10, func(out [][]byte) bool { return len(out) < 5 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lines := tt.lines
			if !strings.HasPrefix(lines, "pool6") {
				lines += "\npool6 = [\"" + Pool6 + "\"]"
			}
			handle := start(t, lines)
			first := to4.Bytes() // after which the server is no stranger
			if strings.Contains(lines, "64:ff9b") {
				first = with(to4, func(p *Packet) { p.Dst = "64:ff9b::" + global }).Bytes()
			}
			handle(first)
			var out [][]byte
			for range max(tt.times, 1) {
				out = append(out, handle(tt.in.Bytes())...)
			}
			if len(out) == 0 {
				out = [][]byte{make([]byte, 64)} // which is no packet
			}
			if !tt.ok(out) {
				t.Errorf("there came\n%x\nand went\n%x", tt.in.Bytes(), out)
			}
		})
	}
}

func source(ip []byte) string      { return address(ip, 0) }
func destination(ip []byte) string { return address(ip, 1) }

// address reads the n-th address of a header.
func address(ip []byte, n int) string {
	if ip[0]>>4 == 4 {
		return netip.AddrFrom4([4]byte(ip[12+4*n:])).String()
	}
	return netip.AddrFrom16([16]byte(ip[8+16*n:])).String()
}
