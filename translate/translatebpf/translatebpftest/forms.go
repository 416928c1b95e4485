// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translatebpftest

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/special"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// LeftRow is a packet that programs do not translate.
type LeftRow struct {
	Name   string
	Packet []byte
	Change Change
	Want   string // "": not even counted
}

// OddForms are those that no translator's programs take. plain gives packets with 40
// bytes of a protocol that would be translated, of IPv6 and of IPv4.
func OddForms(plain func(proto uint8) (six, four []byte)) []LeftRow {
	udp6, udp4 := plain(packet.ProtoUDP)
	tcp6, tcp4 := plain(packet.ProtoTCP)
	icmp6, icmp4 := plain(packet.ProtoICMPv6)
	return append(SpecialForms(udp6, udp4), []LeftRow{
		{"version 5", udp6, Put(0, 0x50), "odd_length"},
		{"longer than its frame", udp6, Put(4, 0, 41), "odd_length"},
		{"IPv4 longer than its frame", udp4, Header(2, 0, 61), "odd_length"},
		{"one hop left", udp6, Put(7, 1), "hop_limit_exceeded"},
		{"no hop left", udp6, Put(7, 0), "hop_limit_exceeded"},
		{"one hop left in IPv4", udp4, Header(8, 1), "hop_limit_exceeded"},
		{"options", udp4, Header(0, 0x46), "ip_options"},
		{"first fragment", udp4, Header(6, 0x20), "fragment"},
		{"later fragment", udp4, Header(6, 0, 9), "fragment"},
		{"hop-by-hop options", udp6, Put(6, 0), "next_header"},
		{"fragment header", udp6, Put(6, 44), "next_header"},
		{"SCTP", udp6, Put(6, 132), "next_header"},
		{"GRE", udp4, Header(9, 47), "next_header"},
		{"half a UDP header", udp6, Put(4, 0, 7), "short_payload"},
		{"half a TCP header", tcp6, Put(4, 0, 19), "short_payload"},
		{"half a UDP header in IPv4", udp4, Header(2, 0, 27), "short_payload"},
		{"half a TCP header in IPv4", tcp4, Header(2, 0, 39), "short_payload"},
		{"less than an IPv4 header", udp4, Header(2, 0, 19), "short_payload"},
		{"UDP over IPv4 without a checksum", udp4, Put(26, 0, 0), "udp_zero_checksum"},
		{"neighbour solicitation", icmp6, Body(40, 135), "icmp_type"},
		{"ICMPv6 type 0", icmp6, Body(40, 0), "icmp_type"},
		{"ICMPv6 error of an unknown type", icmp6, Body(40, 5), "icmp_type"},
		{"source quench", icmp4, Body(20, 4), "icmp_type"},
		{"timestamp", icmp4, Body(20, 13), "icmp_type"},
		{"from a multicast address", udp6, From6("ff02::5"), "illegal_address"},
		{"from a link-local address", udp6, From6("fe80::5"), "illegal_address"},
		{"from nowhere", udp6, From6("::"), "illegal_address"},
		{"from the loopback address", udp6, From6("::1"), "illegal_address"},
		{"to IPv4 multicast", udp6, To6("2001:db8:64::224.0.0.1"), "illegal_address"},
		{"to IPv4 loopback", udp6, To6("2001:db8:64::127.0.0.1"), "illegal_address"},
		{"from IPv4 broadcast", udp4, From4("255.255.255.255"), "illegal_address"},
		{"wrong checksum of the header", udp4, Put(8, 63), "bad_header_checksum"},
	}...)
}

// SpecialForms are those that have a special-purpose address which is not forwarded
// (RFC 6890).
func SpecialForms(udp6, udp4 []byte) (rows []LeftRow) {
	for _, row := range special.IPv4 {
		for _, a := range testutil.Ends(row.Prefix) {
			if !special.Forwarded4(a.As4()) {
				rows = append(rows,
					LeftRow{"to " + a.String() + ", " + row.Name, udp6, To6("2001:db8:64::" + a.String()), "illegal_address"},
					LeftRow{"from " + a.String() + ", " + row.Name, udp4, From4(a.String()), "illegal_address"})
			}
		}
	}
	for _, row := range special.IPv6 {
		for _, a := range testutil.Ends(row.Prefix) {
			if raw := a.As16(); !special.Forwarded6(&raw) {
				rows = append(rows, LeftRow{"from " + a.String() + ", " + row.Name, udp6, From6(a.String()), "illegal_address"})
			}
		}
	}
	return rows
}

// SpecialPassed are packets with each special-purpose address that is forwarded and that
// programs know to be so: those of 192.0.0.0/24 are the engine's.
func SpecialPassed(udp6, udp4 []byte) (packets map[string][]byte) {
	packets = make(map[string][]byte)
	add := func(name string, ip []byte, c Change) { packets[name] = c(append([]byte{}, ip...)) }
	for _, row := range special.IPv4 {
		for _, a := range testutil.Ends(row.Prefix) {
			if special.Forwarded4(a.As4()) && !netip.MustParsePrefix("192.0.0.0/24").Contains(a) {
				add("to "+a.String()+", "+row.Name, udp6, To6("2001:db8:64::"+a.String()))
				add("from "+a.String()+", "+row.Name, udp4, From4(a.String()))
			}
		}
	}
	for _, row := range special.IPv6 {
		for _, a := range testutil.Ends(row.Prefix) {
			if raw := a.As16(); special.Forwarded6(&raw) {
				add("from "+a.String()+", "+row.Name, udp6, From6(a.String()))
			}
		}
	}
	return packets
}
