// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

const (
	clientA = "2001:0:cb00:7178:0:efff:3fff:fdfe"
	clientB = "2001:0:c633:6476:0:dfff:3fff:fdf5"

	// bubbleAB is a bubble from client A to client B.
	bubbleAB = "60000000 0000 3b ff" +
		"20010000 cb007178 0000 efff 3ffffdfe" +
		"20010000 c6336476 0000 dfff 3ffffdf5"
)

func TestOrigin(t *testing.T) {
	got := AppendOrigin(nil, netip.MustParseAddrPort("1.2.3.4:337")) // RFC 4380 section 5.1.1, example
	if want := testutil.Unhex(t, "0000 feae fefdfcfb"); !bytes.Equal(got, want) {
		t.Errorf("AppendOrigin = %x, want %x", got, want)
	}
}

func TestParse(t *testing.T) {
	const (
		origin = "0000 feae fefdfcfb"
		auth   = "0001 02 03 c1c2 a1a2a3 0102030405060708 09"
		noAuth = "0001 00 00 0102030405060708 00"
	)
	tests := []struct {
		name, bytes string
		want        Packet
		err         error
	}{
		{"bubble alone", bubbleAB, Packet{IPv6: testutil.Unhex(t, bubbleAB), Trailers: []byte{}}, nil},
		{
			"origin", origin + bubbleAB,
			Packet{Origin: netip.MustParseAddrPort("1.2.3.4:337"), IPv6: testutil.Unhex(t, bubbleAB), Trailers: []byte{}}, nil,
		},
		{
			"authentication with identifier and value, then origin", auth + origin + bubbleAB,
			Packet{
				HasAuth: true,
				Auth: Auth{
					ClientID: []byte{0xc1, 0xc2}, Value: []byte{0xa1, 0xa2, 0xa3},
					Nonce: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}, Confirmation: 9,
				},
				Origin: netip.MustParseAddrPort("1.2.3.4:337"), IPv6: testutil.Unhex(t, bubbleAB), Trailers: []byte{},
			}, nil,
		},
		{
			"authentication with nonce alone", noAuth + bubbleAB,
			Packet{
				HasAuth: true, Auth: Auth{ClientID: []byte{}, Value: []byte{}, Nonce: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}},
				IPv6: testutil.Unhex(t, bubbleAB), Trailers: []byte{},
			}, nil,
		},
		{
			"trailers behind the packet", bubbleAB + "0104 11223344",
			Packet{IPv6: testutil.Unhex(t, bubbleAB), Trailers: testutil.Unhex(t, "0104 11223344")}, nil,
		},
		{"empty", "", Packet{}, FaultTruncated},
		{"IPv4 packet", strings.Repeat("45", 40), Packet{}, FaultNotIPv6},
		{"unknown indication", "0002" + bubbleAB, Packet{}, FaultNotIPv6},
		{"half a header", "60000000 0000 3b ff 20010000", Packet{}, FaultTruncated},
		{"payload length beyond the datagram", strings.Replace(bubbleAB, "0000 3b", "0001 3b", 1), Packet{}, FaultLength},
		{"origin cut short", "0000 feae fefd", Packet{}, FaultTruncated},
		{"origin and nothing behind it", origin, Packet{}, FaultTruncated},
		{"origin twice", origin + origin + bubbleAB, Packet{}, FaultIndicationOrder},
		{"authentication twice", noAuth + noAuth + bubbleAB, Packet{}, FaultIndicationOrder},
		{"authentication behind origin", origin + noAuth + bubbleAB, Packet{}, FaultIndicationOrder},
		{"authentication cut short", "0001 00 00 0102", Packet{}, FaultTruncated},
		{"identifier longer than the datagram", "0001 ff 00 0102030405060708 00" + bubbleAB, Packet{}, FaultTruncated},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := testutil.Unhex(t, tt.bytes)
			got, err := Parse(b)
			if err != tt.err {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got, compareNetip); diff != "" {
				t.Errorf("Parse (-want +got):\n%s", diff)
			}
			if err != nil {
				return
			}
			if back := got.appendTo(nil); !bytes.Equal(back, b) {
				t.Errorf("built again: %x, want %x", back, b)
			}
		})
	}
}

// appendTo builds the payload again from its parts, as senders do.
func (p *Packet) appendTo(b []byte) []byte {
	if p.HasAuth {
		b = p.Auth.AppendTo(b)
	}
	if p.Origin.IsValid() {
		b = AppendOrigin(b, p.Origin)
	}
	return append(append(b, p.IPv6...), p.Trailers...)
}

func TestBubble(t *testing.T) {
	got := AppendBubble(nil, netip.MustParseAddr(clientA), netip.MustParseAddr(clientB))
	if want := testutil.Unhex(t, bubbleAB); !bytes.Equal(got, want) {
		t.Errorf("AppendBubble = %x, want %x", got, want)
	}
	if !IsBubble(packet.IPv6(got)) {
		t.Error("IsBubble = false for a bubble")
	}
	data := packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, 0, netip.MustParseAddr(clientA), netip.MustParseAddr(clientB))
	if IsBubble(packet.IPv6(data)) {
		t.Error("IsBubble = true for an empty UDP packet")
	}
}

func TestLocalDiscoveryBubble(t *testing.T) {
	got := AppendLocalDiscovery(nil, netip.MustParseAddr(clientA))
	want := testutil.Unhex(t, "60000000 0000 3b 01 20010000cb0071780000efff3ffffdfe ff020000000000000000000000000001")
	if !bytes.Equal(got, want) {
		t.Errorf("AppendLocalDiscovery = %x, want %x", got, want)
	}
}

func TestEchoTest(t *testing.T) {
	src, dst := netip.MustParseAddr(clientA), netip.MustParseAddr("2001:db8::1")
	nonce := [EchoNonceLen]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	request := AppendEchoTest(nil, src, dst, &nonce)
	want := testutil.Unhex(t, "60000000 0018 3a 40 20010000cb0071780000efff3ffffdfe 20010db8000000000000000000000001"+
		"80 00 0000 0000 0000 0102030405060708090a0b0c0d0e0f10")
	packet.FillICMPv6Checksum(want)
	if !bytes.Equal(request, want) {
		t.Errorf("AppendEchoTest = %x, want %x", request, want)
	}
	if _, ok := EchoTestReply(packet.IPv6(request)); ok {
		t.Error("a request was taken for a reply")
	}

	reply := packet.AppendICMPv6(nil, dst, src, 60, packet.ICMPv6EchoReply, 0, echoIDSeq[:], nonce[:])
	if got, ok := EchoTestReply(packet.IPv6(reply)); !ok || got != nonce {
		t.Errorf("EchoTestReply = %x, %v", got, ok)
	}
	reply[50]++
	if _, ok := EchoTestReply(packet.IPv6(reply)); ok {
		t.Error("a damaged reply was accepted")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(testutil.Unhex(f, bubbleAB))
	f.Add(testutil.Unhex(f, "0001 02 03 c1c2 a1a2a3 0102030405060708 09 0000 feae fefdfcfb"+bubbleAB+"0104 11223344"))
	f.Add(testutil.Unhex(f, "0001 ff ff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if err != nil {
			if _, ok := err.(Fault); !ok {
				t.Fatalf("error %T is no Fault", err)
			}
			return
		}
		if back := p.appendTo(nil); !bytes.Equal(back, b) {
			t.Fatalf("built again: %x, want %x", back, b)
		}
	})
}
