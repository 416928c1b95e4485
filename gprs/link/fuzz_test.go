// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// FuzzAnswer has any packet answered. An answer is whole, from the router, has a right
// checksum and fits the link; no octet of the question is in it but those that belong
// there.
func FuzzAnswer(f *testing.F) {
	r := delegating(f)
	for _, p := range []packet.IPv6{
		solicitation(terminal.Address(), linkLayer...), solicitation(nobody),
		neighbor(terminal.Address(), packet.SolicitedNode(RouterAddress), RouterAddress, linkLayer...),
		message(global, RouterAddress, 128, 0, 0, 1, 0, 1, 'x'),
		question6(DHCPServers, 11, goldenOptions(f)), question6(RouterAddress, 1, goldenOptions(f)),
		question6(DHCPServers, 1, testutil.Unhex(f, clientID+pdHint+rapid+exclude)), question6(DHCPServers, 3, testutil.Unhex(f, clientID+serverID+pd7+addresses+temporary)),
		question6(DHCPServers, 5, testutil.Unhex(f, clientID+serverID+pd7+pd8+wantsAll)), question6(DHCPServers, 8, testutil.Unhex(f, clientID+serverID+pd7)),
		question6(DHCPServers, 8, testutil.Unhex(f, clientID+serverID+newOut+its+exclude)),
		behind(solicitation(terminal.Address()), packet.ProtoHopByHop, 1, 4, 0, 0, 0, 0),
	} {
		f.Add([]byte(p))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		p, _, ok := packet.ParseIPv6(input)
		if !ok {
			return
		}
		mend(p)
		var s State
		l := terminal
		l.Delegations = new(oneDelegation)
		b, v := r.Answer(nil, l, &s, p, start)
		if v == none || v.Answered() != (len(b) > 0) {
			t.Fatalf("%v with %d octets", v, len(b))
		}
		if len(b) == 0 {
			return
		}
		a, rest, ok := packet.ParseIPv6(b)
		if !ok || len(rest) > 0 || len(a) > r.mtu || len(a) > Room(p) || a.Src() != RouterAddress ||
			a.Dst() != p.Src() && !(p.Src().IsUnspecified() && a.Dst() == packet.AllNodes) ||
			packet.Checksum(a.SrcBytes(), a.DstBytes(), a.NextHeader(), a.Payload()) != 0 {
			t.Fatalf("%v: %x", v, b)
		}
	})
}

// mend gives a packet the right checksum, so that more is tried than that.
func mend(p packet.IPv6) {
	proto, at, ok := p.UpperLayer()
	place := map[byte]int{packet.ProtoICMPv6: 2, packet.ProtoUDP: 6}[proto]
	if !ok || place == 0 || len(p) < at+8 {
		return
	}
	m := p[at:]
	binary.BigEndian.PutUint16(m[place:], 0)
	binary.BigEndian.PutUint16(m[place:], packet.Checksum(p.SrcBytes(), p.DstBytes(), proto, m))
}
