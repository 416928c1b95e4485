// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// A stateful translator has given the client's port 12345 the port 40000 of an address
// of its own.
const (
	client   = "2001:db8:1::c"
	server6  = "2001:db8:64::198.51.100.2"
	publicIP = "203.0.113.1"
)

func ends(src string, srcPort uint16, dst string, dstPort uint16) Endpoints {
	return Endpoints{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Ports: true, SrcPort: srcPort, DstPort: dstPort}
}

// ported is a message with other ports, or an ICMP query with another identifier.
func ported(m []byte, src, dst uint16) []byte {
	m = slices.Clone(m)
	m[0], m[1], m[2], m[3] = byte(src>>8), byte(src), byte(dst>>8), byte(dst)
	return m
}

func identified(m []byte, id uint16) []byte {
	m = slices.Clone(m)
	m[4], m[5] = byte(id>>8), byte(id)
	return m
}

// TestBound rewrites addresses, ports and identifiers as a binding says, in the packet
// and in what an ICMP error quotes.
func TestBound(t *testing.T) {
	out4 := &Binding{Outer: ends(publicIP, 40000, host4, 53)}
	in6 := &Binding{Outer: ends(server6, 53, client, 12345)}
	// An error about what the client sent, and one about what it received.
	error6 := &Binding{Outer: ends(router6, 0, client, 0), Inner: ends(client, 12345, server6, 53)}
	error4 := &Binding{Outer: ends(publicIP, 0, host4, 0), Inner: ends(host4, 53, publicIP, 40000)}
	u := udp(9)
	tests := []struct {
		name     string
		binding  *Binding
		in, want []byte
	}{
		{"UDP out", out4, v6{src: client, dst: server6, hop: 64, payload: u}.bytes(),
			v4{src: publicIP, dst: host4, id: 0x1234, ttl: 63, payload: ported(u, 40000, 53)}.bytes()},
		{"TCP out", out4, v6{src: client, dst: server6, hop: 64, proto: 6, payload: tcp(9)}.bytes(),
			v4{src: publicIP, dst: host4, id: 0x1234, ttl: 63, proto: 6, payload: ported(tcp(9), 40000, 53)}.bytes()},
		{"echo out", out4, v6{src: client, dst: server6, hop: 64, proto: 58, payload: echo(128, 9)}.bytes(),
			v4{src: publicIP, dst: host4, id: 0x1234, ttl: 63, proto: 1, payload: identified(echo(8, 9), 40000)}.bytes()},
		{"later fragment out has no ports, and no identification of its own", out4, v6{src: client, dst: server6, hop: 64, frag: true, id: 5, offset: 8, payload: data(9)}.bytes(),
			v4{src: publicIP, dst: host4, id: 0x5678, ttl: 63, offset: 8, payload: data(9)}.bytes()},
		{"UDP in", in6, v4{dst: publicIP, payload: ported(u, 53, 40000)}.bytes(),
			v6{src: server6, dst: client, payload: ported(u, 53, 12345)}.bytes()},
		{"echo in", &Binding{Outer: ends(server6, 777, client, 0)}, v4{dst: publicIP, proto: 1, payload: echo(0, 9)}.bytes(),
			v6{src: server6, dst: client, proto: 58, payload: identified(echo(129, 9), 777)}.bytes()},
		{"error in", error6,
			v4{src: router4, dst: publicIP, proto: 1, payload: icmp(3, 3, 0, v4{src: publicIP, dst: host4, ttl: 60, payload: ported(u, 40000, 53)}.bytes())}.bytes(),
			v6{src: router6, dst: client, proto: 58, payload: icmp(1, 4, 0, v6{src: client, dst: server6, hop: 60, payload: ported(u, 12345, 53)}.bytes())}.bytes()},
		{"error about an echo in", error6,
			v4{src: router4, dst: publicIP, proto: 1, payload: icmp(11, 0, 0, v4{src: publicIP, dst: host4, ttl: 60, proto: 1, payload: echo(8, 9)}.bytes())}.bytes(),
			v6{src: router6, dst: client, proto: 58, payload: icmp(3, 0, 0, v6{src: client, dst: server6, hop: 60, proto: 58, payload: identified(echo(128, 9), 12345)}.bytes())}.bytes()},
		{"error out", error4,
			v6{src: client, dst: server6, hop: 64, proto: 58, payload: icmp(1, 4, 0, v6{src: server6, dst: client, hop: 60, payload: ported(u, 53, 12345)}.bytes())}.bytes(),
			v4{src: publicIP, dst: host4, id: 0x1234, ttl: 63, proto: 1, payload: icmp(3, 3, 0, v4{src: host4, dst: publicIP, id: 0x1234, ttl: 60, payload: ported(u, 53, 40000)}.bytes())}.bytes()},
	}
	tr := translator(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out packet.Batch
			res := bound(tr, tt.in, tt.binding, &out)
			if res.Verdict != Translated || len(out.IP) != 1 || !slices.Equal(out.IP[0], tt.want) {
				t.Errorf("%v %v:\n%x, want\n%x", res.Verdict, res.Reason, out.IP, tt.want)
			}
		})
	}
	for _, tt := range tests {
		var out packet.Batch
		mixed := *tt.binding
		mixed.Outer.Dst = netip.MustParseAddr(map[byte]string{4: host4, 6: host6}[tt.in[0]>>4])
		if res := bound(tr, tt.in, &mixed, &out); res.Reason != ReasonSourceUnmapped || len(out.IP) != 0 {
			t.Errorf("%s with a destination of the other family: %v %v", tt.name, res.Verdict, res.Reason)
		}
		if res := bound(tr, tt.in, &Binding{}, &out); res.Reason != ReasonSourceUnmapped || len(out.IP) != 0 {
			t.Errorf("%s with an empty binding: %v %v", tt.name, res.Verdict, res.Reason)
		}
		if half := (&Binding{Outer: tt.binding.Outer}); tt.binding.Inner.Ports {
			if res := bound(tr, tt.in, half, &out); res.Reason != ReasonInnerUnmapped || len(out.IP) != 0 {
				t.Errorf("%s without inner addresses: %v %v", tt.name, res.Verdict, res.Reason)
			}
		}
	}
}

func bound(tr *Translator, in []byte, b *Binding, out *packet.Batch) Result {
	if in[0]>>4 == 4 {
		return tr.IPv4Bound(in, b, testPath, out)
	}
	return tr.IPv6Bound(in, b, testPath, out)
}
