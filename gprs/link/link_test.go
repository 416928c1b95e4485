// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// message makes an ICMPv6 message from a terminal, whose hop limit no router took from.
func message(src, dst netip.Addr, typ, code byte, body ...byte) packet.IPv6 {
	return packet.AppendICMPv6(nil, src, dst, packet.NDHopLimit, typ, code, body)
}

func solicitation(src netip.Addr, options ...byte) packet.IPv6 {
	return message(src, packet.AllRouters, packet.ICMPv6RouterSolicitation, 0, append([]byte{0, 0, 0, 0}, options...)...)
}

func neighbor(src, dst, target netip.Addr, options ...byte) packet.IPv6 {
	raw := target.As16()
	return message(src, dst, packet.ICMPv6NeighborSolicitation, 0, append(append([]byte{0, 0, 0, 0}, raw[:]...), options...)...)
}

// with returns a packet in which an octet was changed, with a right checksum.
func with(p packet.IPv6, at int, octet byte) packet.IPv6 {
	p[at] = octet
	packet.FillICMPv6Checksum(p)
	return p
}

// behind puts an extension header between the header and the rest.
func behind(p packet.IPv6, proto byte, rest ...byte) packet.IPv6 {
	extension := append([]byte{p.NextHeader(), 0}, rest...)
	b := packet.AppendIPv6Header(nil, proto, p.HopLimit(), len(p.Payload())+len(extension), p.Src(), p.Dst())
	return append(append(b, extension...), p.Payload()...)
}

var linkLayer = []byte{packet.NDSourceLinkLayer, 1, 2, 0, 0, 0, 0, 1}

// TestSolicitations has every rule of RFC 4861 sections 6.1.1 and 7.1.1.
func TestSolicitations(t *testing.T) {
	own := terminal.Address()
	for _, row := range []struct {
		name string
		p    packet.IPv6
		want Verdict
	}{
		{"solicitation", solicitation(own), Advertised},
		{"from nobody", solicitation(nobody), Advertised},
		{"from an address of the prefix", solicitation(global), Advertised},
		{"to the router alone", message(own, RouterAddress, 133, 0, 0, 0, 0, 0), Advertised},
		{"with a link-layer address that means nothing", solicitation(own, linkLayer...), Advertised},
		{"with an option nobody knows", solicitation(nobody, 253, 1, 0, 0, 0, 0, 0, 0), Advertised},
		{"behind a Hop-by-Hop header", behind(solicitation(own), packet.ProtoHopByHop, 1, 4, 0, 0, 0, 0), Advertised},
		{"from nobody with a link-layer address", solicitation(nobody, linkLayer...), Malformed},
		{"link-layer address of nobody as second option", solicitation(nobody, append([]byte{253, 1, 0, 0, 0, 0, 0, 0}, linkLayer...)...), Malformed},
		{"hop limit of 254", with(solicitation(own), 7, 254), BadHopLimit},
		{"code 1", with(solicitation(own), 41, 1), Malformed},
		{"checksum", func() packet.IPv6 { p := solicitation(own); p[47]++; return p }(), BadChecksum},
		{"cut short", message(own, packet.AllRouters, 133, 0, 0, 0, 0), Malformed},
		{"option of length 0", solicitation(own, 1, 0, 0, 0, 0, 0, 0, 0), Malformed},
		{"option beyond the end", solicitation(own, 1, 2, 0, 0, 0, 0, 0, 0), Malformed},
		{"octets behind", solicitation(own, 1), Malformed},
		{"another's link-local address", solicitation(netip.MustParseAddr("fe80::7")), ForeignSource},
		{"the router's address", solicitation(RouterAddress), ForeignSource},
		{"another's prefix", solicitation(stranger), ForeignSource},
		{"a whole packet in a Fragment Header", behind(solicitation(own), packet.ProtoFragment, 0, 0, 0, 0, 0, 1), Fragment},
		{"first fragment", behind(solicitation(own), packet.ProtoFragment, 0, 1, 0, 0, 0, 1), Fragment},
		{"later fragment", behind(solicitation(own), packet.ProtoFragment, 0, 8, 0, 0, 0, 1), Fragment},
		{"Fragment Header behind another", behind(behind(solicitation(own), packet.ProtoFragment, 0, 0, 0, 0, 0, 1), packet.ProtoDestOpts, 1, 4, 0, 0, 0, 0), Fragment},
		{"extension header cut short", behind(solicitation(own), packet.ProtoDestOpts, 1, 4, 0, 0, 0, 0)[:44:44], Malformed},

		{"for the router", neighbor(own, packet.SolicitedNode(RouterAddress), RouterAddress), NeighborAdvertised},
		{"is the router there?", neighbor(global, RouterAddress, RouterAddress, linkLayer...), NeighborAdvertised},
		{"somebody wants the router's address", neighbor(nobody, packet.SolicitedNode(RouterAddress), RouterAddress), NeighborAdvertised},
		{"somebody wants it, from the wrong group", neighbor(nobody, RouterAddress, RouterAddress), Malformed},
		{"somebody wants it, with a link-layer address", neighbor(nobody, packet.SolicitedNode(RouterAddress), RouterAddress, linkLayer...), Malformed},
		{"for duplicates of its own", neighbor(nobody, packet.SolicitedNode(global), global), OtherNeighbor},
		{"for another host", neighbor(own, packet.SolicitedNode(stranger), stranger), OtherNeighbor},
		{"for a group", neighbor(own, RouterAddress, packet.AllNodes), Malformed},
		{"for the router, forwarded", with(neighbor(own, RouterAddress, RouterAddress), 7, 64), BadHopLimit},
		{"for the router, code 1", with(neighbor(own, RouterAddress, RouterAddress), 41, 1), Malformed},
		{"without a target", message(own, RouterAddress, 135, 0, make([]byte, 19)...), Malformed},
		{"for the router, option of length 0", neighbor(own, RouterAddress, RouterAddress, 1, 0, 0, 0, 0, 0, 0, 0), Malformed},

		{"echo", message(own, RouterAddress, 128, 0, 0, 1, 0, 1, 'x'), EchoReplied},
		{"echo from the prefix", message(global, RouterAddress, 128, 0, 0, 1, 0, 1), EchoReplied},
		{"echo to all nodes", message(own, packet.AllNodes, 128, 0, 0, 1, 0, 1), NotServed},
		{"echo from nobody", message(nobody, RouterAddress, 128, 0, 0, 1, 0, 1), NotServed},
		{"echo larger than the link takes back", message(own, RouterAddress, 128, 0, make([]byte, 1400)...), NotServed},
		{"router advertisement", message(own, packet.AllNodes, 134, 0, make([]byte, 12)...), Unasked},
		{"neighbour advertisement", message(own, packet.AllNodes, 136, 0, make([]byte, 20)...), Unasked},
		{"redirect", message(own, RouterAddress, 137, 0, make([]byte, 36)...), Unasked},
		{"listener report", behind(message(own, netip.MustParseAddr("ff02::16"), 143, 0, 0, 0, 0, 0), packet.ProtoHopByHop, 5, 2, 0, 0, 1, 0), ListenerReport},
		{"listener report of version 1", message(own, packet.SolicitedNode(own), 131, 0, make([]byte, 20)...), ListenerReport},
		{"listener done", message(own, packet.AllRouters, 132, 0, make([]byte, 20)...), ListenerReport},
		{"listener query", message(own, packet.AllNodes, 130, 0, make([]byte, 20)...), NotServed},
		{"an error", message(own, RouterAddress, 1, 0, 0, 0, 0, 0), NotServed},
		{"no next header", packet.AppendIPv6Header(nil, packet.ProtoNone, 64, 0, own, RouterAddress), NotServed},
		{"ICMPv6 without a message", packet.AppendIPv6Header(nil, packet.ProtoICMPv6, 64, 0, own, RouterAddress), Malformed},
	} {
		var s State
		b, v := router(t).Answer(nil, terminal, &s, row.p, start)
		if v != row.want || v.Answered() != (len(b) > 0) {
			t.Errorf("%s: %v, want %v; %d octets", row.name, v, row.want, len(b))
		}
	}
}

// TestAnswers shows to whom answers go and what they say.
func TestAnswers(t *testing.T) {
	own := terminal.Address()
	for _, row := range []struct {
		name string
		p    packet.IPv6
		to   netip.Addr
		hop  byte
		want string // of the message, without its checksum
	}{
		{"to who solicited", solicitation(own), own, 255, "8600"},
		{"to all, since nobody solicited", solicitation(nobody), packet.AllNodes, 255, "8600"},
		{"the router's address", neighbor(own, RouterAddress, RouterAddress), own, 255,
			"8800 c0000000 fe800000000000000000000000000001"},
		{"the same, defended", neighbor(nobody, packet.SolicitedNode(RouterAddress), RouterAddress), packet.AllNodes, 255,
			"8800 80000000 fe800000000000000000000000000001"},
		{"echo", message(own, RouterAddress, 128, 0, 0xab, 1, 0, 7, 'h', 'i'), own, 64, "8100 ab010007 6869"},
	} {
		var s State
		b, _ := router(t).Answer(nil, terminal, &s, row.p, start)
		p, rest, ok := packet.ParseIPv6(b)
		if !ok || len(rest) > 0 || p.Src() != RouterAddress || p.Dst() != row.to || p.HopLimit() != row.hop {
			t.Errorf("%s: %x", row.name, b)
			continue
		}
		m, ok := p.ICMPv6()
		if !ok {
			t.Errorf("%s: wrong checksum", row.name)
		}
		got := append(append([]byte{}, m[:2]...), m[4:]...)
		if want := testutil.Unhex(t, row.want); len(want) == 2 && string(got[:2]) != string(want) || len(want) > 2 && string(got) != string(want) {
			t.Errorf("%s: %x, want %x", row.name, got, want)
		}
	}
}

// TestLinksDiffer in prefix alone: each terminal hears of its own.
func TestLinksDiffer(t *testing.T) {
	var s State
	other := Link{Prefix: terminal.Prefix + 1, ID: 5}
	b, _ := router(t).Answer(nil, other, &s, solicitation(other.Address()), start)
	if got := binary.BigEndian.Uint64(b[advertisedPrefix:]); got != other.Prefix {
		t.Errorf("prefix %x", got)
	}
	if _, ok := packet.IPv6(b).ICMPv6(); !ok {
		t.Error("wrong checksum")
	}
}

// TestAnswersAreLimited bounds what one terminal makes the router send.
func TestAnswersAreLimited(t *testing.T) {
	r := router(t)
	var s, other State
	p := solicitation(terminal.Address())
	answers := 0
	for range 1000 {
		if _, v := r.Answer(nil, terminal, &s, p, start); v == Advertised {
			answers++
		} else if v != Limited {
			t.Fatal(v)
		}
	}
	if answers != 40 {
		t.Errorf("%d answers at once", answers)
	}
	if _, v := r.Answer(nil, terminal, &s, p, start.Add(time.Second/20)); v != Advertised {
		t.Errorf("after a twentieth of a second: %v", v)
	}
	if _, v := r.Answer(nil, terminal, &other, p, start); v != Advertised {
		t.Errorf("on another link: %v", v)
	}
}

// TestAnswerAllocatesNothing where there is room for the answer.
func TestAnswerAllocatesNothing(t *testing.T) {
	r := router(t)
	b := make([]byte, 0, 2048)
	for name, p := range map[string]packet.IPv6{
		"router": solicitation(terminal.Address()), "neighbour": neighbor(global, RouterAddress, RouterAddress),
		"echo": message(global, RouterAddress, 128, 0, 0, 1, 0, 1), "DHCP": question6(DHCPServers, 11, goldenOptions(t)),
	} {
		var s State
		now := start
		if n := testing.AllocsPerRun(100, func() {
			now = now.Add(time.Second)
			if _, v := r.Answer(b, terminal, &s, p, now); !v.Answered() {
				t.Fatal(name, v)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestNames are all there, and each of one verdict.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for v := range Verdict(NumVerdicts + 1) {
		if v.String() == "" || seen[v.String()] {
			t.Errorf("%d is called %q", v, v)
		}
		seen[v.String()] = true
	}
}
