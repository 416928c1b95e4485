// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// Two UEs register by AKA, call each other through all servers of an IMS, and one moves.
func TestIMS(t *testing.T) {
	t.Parallel()
	runShort(t, ims)
}

// over6 puts Ethernet and IPv6 before what a protocol carries.
func over6(protocol byte, from, to netip.Addr, carried []byte) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 12), ethernetIPv6)
	b = binary.BigEndian.AppendUint16(append(b, 0x60, 0, 0, 0), uint16(len(carried)))
	b = append(append(append(b, protocol, 64), from.AsSlice()...), to.AsSlice()...)
	return append(b, carried...)
}

// udp6 is a datagram.
func udp6(from, to netip.AddrPort, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(packet.UDPHeaderLen+len(payload)))
	return over6(packet.ProtoUDP, from.Addr(), to.Addr(), append(append(b, 0, 0), payload...))
}

// tcp6 is a segment.
func tcp6(from, to netip.AddrPort, number uint32, flags byte, data string) []byte {
	b := binary.BigEndian.AppendUint16(nil, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint32(b, number)
	b = append(b, 0, 0, 0, 0, 5<<4, flags, 0, 0, 0, 0, 0, 0)
	return over6(packet.ProtoTCP, from.Addr(), to.Addr(), append(b, data...))
}

// TestTunnelled takes the packets that go to one end of a tunnel out of it.
func TestTunnelled(t *testing.T) {
	a, b := netip.MustParseAddrPort("[2001:db8::1]:5060"), netip.MustParseAddrPort("[2001:db8::2]:5060")
	inner := udp6(a, b, []byte("hello"))[ethernetLen:]
	carry := func(to netip.Addr, port uint16, kind gtp.MessageType, payload []byte) []byte {
		h := gtp.Header{Version: gtp.V1, Type: kind, TEID: 1}
		head, err := h.AppendTo(nil, len(payload))
		if err != nil {
			t.Fatal(err)
		}
		return udp6(netip.AddrPortFrom(core6.sgsn, port), netip.AddrPortFrom(to, port), append(head, payload...))
	}
	var frames []frameSeen
	for n, f := range [][]byte{
		carry(core6.ggsn, gtp.PortUser, gtp.TypeGPDU, inner),
		carry(core6.sgsn, gtp.PortUser, gtp.TypeGPDU, inner),
		carry(core6.ggsn, gtpPort, gtp.TypeGPDU, inner),
		carry(core6.ggsn, gtp.PortUser, gtp.TypeErrorIndication, inner),
		carry(core6.ggsn, gtp.PortUser, gtp.TypeGPDU, nil),
		carry(core6.ggsn, gtp.PortUser, gtp.TypeGPDU, []byte{0x45}),
		udp6(a, netip.AddrPortFrom(core6.ggsn, gtp.PortUser), []byte("no GTP")),
	} {
		frames = append(frames, frameSeen{time.Unix(int64(n+1), 0), f})
	}
	got := datagramsOf(tunnelled(frames, core6.ggsn))
	if len(got) != 1 || got[0].from != a || got[0].to != b || string(got[0].payload) != "hello" || got[0].at.Unix() != 1 {
		t.Errorf("%+v", got)
	}
}

// TestMessagesOf finds messages in streams, whole and once, whatever segments they come in.
func TestMessagesOf(t *testing.T) {
	a, b := netip.MustParseAddrPort("[2001:db8::1]:40000"), netip.MustParseAddrPort("[2001:db8::2]:5060")
	text := func(n int) string {
		return fmt.Sprintf("OPTIONS sip:%d@example.net SIP/2.0\r\nContent-Length: 4\r\n\r\nbody", n)
	}
	const syn, ack = 2, 16
	one := uint32(len(text(1)))
	for _, tt := range []struct {
		name   string
		frames [][]byte
		want   []string
	}{
		{"one in a segment", [][]byte{tcp6(a, b, 99, syn, ""), tcp6(a, b, 100, ack, text(1))}, []string{text(1)}},
		{"no SYN was seen", [][]byte{tcp6(a, b, 100, ack, text(1))}, []string{text(1)}},
		{"one in two", [][]byte{tcp6(a, b, 100, ack, text(1)[:30]), tcp6(a, b, 130, ack, text(1)[30:])}, []string{text(1)}},
		{"two in one, and a keep-alive", [][]byte{tcp6(a, b, 100, ack, text(1)+"\r\n\r\n"+text(2))}, []string{text(1), text(2)}},
		{"sent again", [][]byte{tcp6(a, b, 100, ack, text(1)), tcp6(a, b, 100, ack, text(1)+text(2)[:5]), tcp6(a, b, 105+one, ack, text(2)[5:])}, []string{text(1), text(2)}},
		{"another connection from the same port", [][]byte{tcp6(a, b, 100, ack, text(1)[:30]), tcp6(a, b, 7, syn, ""), tcp6(a, b, 8, ack, text(2))}, []string{text(2)}},
		{"datagrams beside it", [][]byte{tcp6(a, b, 100, ack, text(1)[:30]), udp6(a, b, []byte("x")), tcp6(a, b, 130, ack, text(1)[30:])}, []string{"x", text(1)}},
		{"both ways", [][]byte{tcp6(a, b, 100, ack, text(1)[:30]), tcp6(b, a, 100, ack, text(2)), tcp6(a, b, 130, ack, text(1)[30:])}, []string{text(2), text(1)}},
		{"no message", [][]byte{tcp6(a, b, 100, ack, "\r\n\r\n"), tcp6(a, b, 104, ack, "x\r\n\r\n"), tcp6(a, b, 109, ack, text(1)), tcp6(a, b, 100, ack, text(1))[:60]}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var frames []frameSeen
			for n, f := range tt.frames {
				frames = append(frames, frameSeen{time.Unix(int64(n), 0), f})
			}
			var got []string
			for _, d := range messagesOf(frames) {
				got = append(got, string(d.payload))
			}
			if strings.Join(got, "|") != strings.Join(tt.want, "|") {
				t.Errorf("%q\nwant %q", got, tt.want)
			}
		})
	}
}

// TestConnections counts those that one end has asked the other one for in a time.
func TestConnections(t *testing.T) {
	a, b := netip.MustParseAddrPort("[2001:db8::1]:40000"), netip.MustParseAddrPort("[2001:db8::2]:5060")
	const syn, ack = 2, 16
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	frames := []frameSeen{
		{at(1), tcp6(a, b, 1, syn, "")}, {at(2), tcp6(a, b, 1, syn, "")}, {at(3), tcp6(b, a, 1, syn|ack, "")}, {at(3), tcp6(b, a, 1, syn, "")},
		{at(4), tcp6(a, b, 2, ack, "")}, {at(5), tcp6(a, b, 1, syn, "")}, {at(4), udp6(a, b, nil)},
	}
	if n := connections(frames, a.Addr(), b.Addr(), at(2), at(5)); n != 1 {
		t.Errorf("%d were counted, not the one of the second second", n)
	}
}
