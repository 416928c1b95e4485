// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

var (
	clientAddr = netip.MustParseAddr("2001:0:cb00:7101:0:f220:34ff:8ef5")
	fromAddr   = netip.MustParseAddrPort("192.168.1.2:3551")
	toAddr     = netip.MustParseAddrPort("203.0.113.1:3544")
)

// frame puts an Ethernet, an IPv4 and a UDP header before a payload.
func frame(payload []byte) []byte {
	b := make([]byte, ethernetLen, 128)
	binary.BigEndian.PutUint16(b[12:], ethernetIPv4)
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(ipv4MinLen+packet.UDPHeaderLen+len(payload)))
	b = append(b, 0, 0, 0, 0, 64, packet.ProtoUDP, 0, 0)
	b = append(b, fromAddr.Addr().AsSlice()...)
	b = append(b, toAddr.Addr().AsSlice()...)
	for _, v := range []int{int(fromAddr.Port()), int(toAddr.Port()), packet.UDPHeaderLen + len(payload), 0} {
		b = binary.BigEndian.AppendUint16(b, uint16(v))
	}
	return append(b, payload...)
}

// captured puts frames into a capture, one millisecond apart.
func captured(frames ...[]byte) []byte {
	b := make([]byte, captureHeader)
	for i, f := range frames {
		for _, v := range []int{1, i * 1e6, len(f), len(f)} {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
		b = append(b, f...)
	}
	return b
}

func TestReadCapture(t *testing.T) {
	one := frame([]byte("payload"))
	arp := slices.Clone(one)
	binary.BigEndian.PutUint16(arp[12:], 0x0806)
	tcp := slices.Clone(one)
	tcp[ethernetLen+9] = packet.ProtoTCP
	long := slices.Clone(one)
	binary.BigEndian.PutUint16(long[ethernetLen+ipv4MinLen+4:], 1000)
	all, err := readCapture(captured(arp, tcp, long, one, one[:20], one))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 {
		t.Fatalf("found %d datagrams, want the 2 whole ones", len(all))
	}
	d := all[0]
	if d.from != fromAddr || d.to != toAddr || string(d.payload) != "payload" || !d.at.Equal(time.Unix(1, 3e6)) {
		t.Errorf("found %+v", d)
	}
	cut := captured(one)
	for _, bad := range [][]byte{nil, cut[:captureHeader-1], cut[:len(cut)-1]} {
		if _, err := readCapture(bad); err == nil {
			t.Errorf("a capture of %d bytes is taken for whole", len(bad))
		}
	}
}

// An answer to the test that finds the relay is not one to a ping.
func TestConnectivityTestIsTold(t *testing.T) {
	server, relay, client := netip.MustParseAddrPort("203.0.113.1:3544"), netip.MustParseAddrPort("203.0.113.3:3545"), netip.MustParseAddrPort("192.168.1.2:3551")
	echo := func(from, to netip.AddrPort, kind byte, body string) seen {
		return seen{from: from, to: to, payload: packet.AppendICMPv6(nil, clientAddr, hostAddr, 64, kind, 0, []byte(body))}
	}
	tests := connectivityTests{}
	for _, step := range []struct {
		what seen
		want string
	}{
		{echo(client, server, packet.ICMPv6EchoRequest, "test 123"), ", to find the relay"},
		{echo(server, client, packet.ICMPv6EchoReply, "test 123"), ", to what was to find the relay, by the server"},
		{echo(relay, client, packet.ICMPv6EchoReply, "test 123"), ", to what was to find the relay"},
		{echo(client, relay, packet.ICMPv6EchoRequest, "ping 123"), ""},
		{echo(relay, client, packet.ICMPv6EchoReply, "ping 123"), ""},
		{seen{payload: []byte("garbage")}, ""},
	} {
		if got := tests.remark(step.what); got != step.want {
			t.Errorf("%v > %v is remarked as %q, want %q", step.what.from, step.what.to, got, step.want)
		}
	}
}

func TestDescribe(t *testing.T) {
	nonce := teredo.Auth{}
	bubble := teredo.AppendBubble(nil, clientAddr, clientAddr)
	trailers := teredo.Trailers{HasNonce: true, Nonce: 1}
	advertisement := teredo.RouterAdvertisement{
		Src: netip.MustParseAddr("fe80::1"), Dst: netip.MustParseAddr("fe80::2"), Prefix: netip.MustParsePrefix("2001:0:cb00:7101::/64"),
	}
	for _, c := range []struct {
		situation string
		payload   []byte
		want      string
	}{
		{"solicitation with nonce", teredo.AppendRouterSolicitation(nonce.AppendTo(nil), netip.MustParseAddr("fe80::1")), "router solicitation [nonce]"},
		{"advertisement with origin", advertisement.AppendTo(teredo.AppendOrigin(nil, toAddr)),
			"router advertisement of 2001:0:cb00:7101::/64 [origin 203.0.113.1:3544]"},
		{"bubble", bubble, "bubble"},
		{"bubble with trailer", trailers.AppendTo(slices.Clone(bubble)), "bubble [nonce trailer]"},
		{"echo request", packet.AppendICMPv6(nil, clientAddr, hostAddr, 64, packet.ICMPv6EchoRequest, 0, make([]byte, 8)), "echo request to 2001:db8::5"},
		{"echo reply", packet.AppendICMPv6(nil, hostAddr, clientAddr, 64, packet.ICMPv6EchoReply, 0, make([]byte, 8)), "echo reply from 2001:db8::5"},
		{"other ICMPv6", packet.AppendICMPv6(nil, hostAddr, clientAddr, 64, packet.ICMPv6PacketTooBig, 0, make([]byte, 8)), "ICMPv6 type 2"},
		{"TCP", packet.AppendIPv6Header(nil, packet.ProtoTCP, 64, 0, clientAddr, hostAddr), "TCP to 2001:db8::5"},
		{"garbage", []byte("garbage"), "not Teredo"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			if got := describe(c.payload); !strings.HasPrefix(got, c.want) {
				t.Errorf("described as %q, want %q", got, c.want)
			}
		})
	}
}
