// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

var (
	host   = netip.MustParseAddr("2001:db8::2")
	client = netip.MustParseAddr("2001:0:c633:6401::1")
	outer4 = netip.MustParseAddr("192.0.2.1")
	relay4 = netip.MustParseAddr("198.51.100.1")
	noon   = time.Date(2026, 1, 2, 12, 0, 0, 123456000, time.UTC)
)

// inner6 is an IPv6 packet with UDP from port 1000 to port 9.
func inner6() []byte {
	p := packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, 8, client, host)
	return append(p, 0x03, 0xe8, 0, 9, 0, 8, 0, 0)
}

// outer is payload in UDP and IPv4, from port 4096 to port 3545.
func outer(payload []byte) []byte {
	b := make([]byte, 20, 28+len(payload))
	b[0], b[8], b[9] = 0x45, 63, packet.ProtoUDP
	b[3] = byte(28 + len(payload))
	copy(b[12:], outer4.AsSlice())
	copy(b[16:], relay4.AsSlice())
	b = append(b, 0x10, 0, 0x0d, 0xd9, 0, byte(8+len(payload)), 0, 0)
	return append(b, payload...)
}

// gPDU is a packet in GTP-U and IPv4, at the port of a GGSN.
func gPDU(port uint16, header, inner []byte) []byte {
	b := outer(append(slices.Clone(header), inner...))
	binary.BigEndian.PutUint16(b[22:], port)
	return b
}

// frame puts an Ethernet header with a VLAN tag before an IPv4 packet.
func frame(ip []byte) []byte {
	return append([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0, 0, 5, 8, 0}, ip...)
}

func sample(link Link, data []byte) *Sample {
	return &Sample{
		Time: noon, Instance: "relay", Path: Fast, Hook: "xdp", Device: "eth0",
		Verdict: Drop, Reason: "no_peer", Link: link, Length: len(data), Data: data,
	}
}

func TestText(t *testing.T) {
	const head = "12:00:00.123456 relay fast   xdp  eth0 drop (no_peer): "
	const outside = "192.0.2.1:4096 > 198.51.100.1:3545 udp hops 63, "
	const inside = " | [2001:0:c633:6401::1]:1000 > [2001:db8::2]:9 udp hops 64, 48 bytes"
	origin := append([]byte{0, 0, 1, 2, 3, 4, 5, 6}, inner6()...)
	authentication := append([]byte{0, 1, 1, 1, 'k', 'v', 1, 2, 3, 4, 5, 6, 7, 8, 0}, origin...)
	const ggsn = "192.0.2.1:4096 > 198.51.100.1:2152 udp hops 63, "
	gtp1, gtp0 := []byte{0x30, 255, 0, 48, 0, 0, 0, 1}, append([]byte{0x1e, 255}, make([]byte, 18)...)
	numbered := []byte{0x32, 255, 0, 52, 0, 0, 0, 1, 0, 7, 0, 0x40}
	extended := []byte{0x34, 255, 0, 56, 0, 0, 0, 1, 0, 0, 0, 0x40, 1, 8, 104, 0}
	text := []byte("in text, which may begin as IPv6 packets do, is none")[:49]
	fragment := outer(inner6())
	fragment[7] = 10
	icmp := append(packet.AppendIPv6Header(nil, packet.ProtoDestOpts, 3, 16, host, client),
		packet.ProtoICMPv6, 0, 0, 0, 0, 0, 0, 0, 128, 0, 0, 0, 0, 0, 0, 0)
	for _, c := range []struct {
		name string
		s    *Sample
		want string
	}{
		{"Ethernet with a VLAN tag", sample(Ethernet, frame(outer(inner6()))), head + outside + "76 bytes" + inside},
		{"behind an origin indication", sample(IP, outer(origin)), head + outside + "84 bytes" + inside},
		{"behind both indications", sample(IP, outer(authentication)), head + outside + "99 bytes" + inside},
		{"a later fragment", sample(IP, fragment), head + "192.0.2.1 > 198.51.100.1 udp fragment hops 63, 76 bytes"},
		{"ICMPv6 behind options", sample(IP, icmp), head + "2001:db8::2 > 2001:0:c633:6401::1 icmp6 128/0 hops 3, 56 bytes"},
		{"G-PDU with IPv6", sample(IP, gPDU(2152, gtp1, inner6())), head + ggsn + "84 bytes" + inside},
		{"G-PDU with IPv4", sample(IP, gPDU(2152, gtp1, outer([]byte("x")))), head + ggsn + "65 bytes | " + outside + "29 bytes"},
		{"G-PDU with an extension header", sample(IP, gPDU(2152, extended, inner6())), head + ggsn + "92 bytes" + inside},
		{"G-PDU with a number", sample(IP, gPDU(2152, numbered, inner6())), head + ggsn + "88 bytes" + inside},
		{"G-PDU with an extension header of no length", sample(IP, gPDU(2152, append(extended[:12:12], 0, 0, 0, 0), inner6())), head + ggsn + "92 bytes"},
		{"G-PDU that is cut off", sample(IP, gPDU(2152, gtp1, inner6())[:80]), head + ggsn + "84 bytes" + inside},
		{"G-PDU of version 0", sample(IP, gPDU(3386, gtp0, inner6())), head + strings.Replace(ggsn, "2152", "3386", 1) + "96 bytes" + inside},
		{"G-PDU at another port", sample(IP, gPDU(2153, gtp1, inner6())), head + strings.Replace(ggsn, "2152", "2153", 1) + "84 bytes"},
		{"an echo request", sample(IP, gPDU(2152, append([]byte{0x30, 1}, gtp1[2:]...), inner6())), head + ggsn + "84 bytes"},
		{"a text", sample(IP, outer(text)), head + outside + "77 bytes"},
		{"nothing", sample(IP, nil), head[:len(head)-2] + ": no IP, 0 bytes"},
		{"ARP", sample(Ethernet, make([]byte, 60)), head[:len(head)-2] + ": no IP, 60 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.s.Text(); got != c.want {
				t.Errorf("text\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestFilter(t *testing.T) {
	s := sample(Ethernet, frame(outer(inner6())))
	for text, want := range map[string]bool{
		"":                                     true,
		"host 192.0.2.1":                       true,
		"host 2001:db8::/32":                   true,
		"src 2001:db8::/32":                    false,
		"dst 2001:db8::2 and src 192.0.2.0/24": true,
		"port 9":                               true,
		"port 4096 and port 3545":              true,
		"port 53":                              false,
		"udp":                                  true,
		"tcp or icmp6":                         false,
		"proto 17":                             true,
		"drop":                                 true,
		"not drop":                             false,
		"not (forward or punt)":                true,
		"reason no_peer and fast":              true,
		"engine or hook udp":                   false,
		"hook xdp and device eth0":             true,
		"instance other":                       false,
		"forward or drop and port 53":          false,
		"(forward or drop) and port 9":         true,
	} {
		f, err := ParseFilter(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := f.Match(s); got != want {
			t.Errorf("%q matches: %v, want %v", text, got, want)
		}
	}
}

func TestFilterErrors(t *testing.T) {
	for text, want := range map[string]string{
		"and":            `"and" is no word of a filter: isthmus trace --help shows those that are`,
		"host":           `"host" needs a value behind it`,
		"host somewhere": `"somewhere" is no address and no prefix: write one as 192.0.2.1 or 2001:db8::/32`,
		"port 70000":     `"70000" is no port: write a number from 0 to 65535`,
		"proto quic":     `"quic" is no protocol: write tcp, udp, icmp, icmp6, sctp, none or a number up to 255`,
		"(drop":          "a parenthesis of the filter is not closed: write )",
		"drop forward":   `"forward" stands where the filter might end: write and, or or before it`,
		"drop and":       "the filter ends where something is missing: isthmus trace --help shows the words",
	} {
		if _, err := ParseFilter(text); err == nil || err.Error() != want {
			t.Errorf("%q: error\n got %v\nwant %s", text, err, want)
		}
	}
}

// FuzzSample gives filter and text whatever may come.
func FuzzSample(f *testing.F) {
	f.Add(frame(outer(inner6())), "drop and not host 2001:db8::/32")
	f.Add(gPDU(2152, []byte{0x34, 255, 0, 56, 0, 0, 0, 1, 0, 0, 0, 0x40, 1, 8, 104, 0}, inner6()), "src 2001:db8::/32")
	f.Add(inner6(), "(port 9 or icmp6) and engine")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		filter, err := ParseFilter(text)
		for _, link := range []Link{Ethernet, IP} {
			s := sample(link, data)
			if s.Text() == "" {
				t.Error("a sample has no text")
			}
			if err == nil {
				filter.Match(s)
			}
		}
	})
}

func TestMeter(t *testing.T) {
	m := NewMeter(Sampling{Every: 3, PerSecond: 2})
	var taken []int
	for i := range 20 {
		if m.Take(noon.Add(time.Duration(i) * 100 * time.Millisecond)) {
			taken = append(taken, i)
		}
	}
	// Every third, two in the second that begins with the first of them.
	want := []int{2, 5, 14, 17}
	if len(taken) != len(want) {
		t.Fatalf("taken %v, want %v", taken, want)
	}
	for i := range want {
		if taken[i] != want[i] {
			t.Fatalf("taken %v, want %v", taken, want)
		}
	}
	if new(Meter).Take(noon) {
		t.Error("the zero meter lets samples through")
	}
}
