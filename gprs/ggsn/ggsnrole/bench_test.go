// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/packet"
)

var (
	sgsn   = netip.MustParseAddr("198.51.100.1")
	other  = netip.MustParseAddr("198.51.100.2")
	rnc    = netip.MustParseAddr("203.0.113.9")
	host4  = netip.MustParseAddr("9.9.9.9")
	host6  = netip.MustParseAddr("2600::1")
	source = own{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:9::1")}
)

// baseNode and baseAPN are the keys of a section, and of its only access point, where a test
// does not set them.
var (
	baseNode = []string{`gsn_address4 = "192.0.2.1"`, `gsn_address6 = "2001:db8:9::1"`, `peers = ["198.51.100.0/24"]`, `echo_interval = "0s"`}
	baseAPN  = []string{`name = "internet"`, `pool4 = ["10.45.0.0/16"]`, `pool6 = ["2001:db8:6000::/44"]`}
)

// written are the settings of a section with these lines, and those of its access point.
func written(t testing.TB, node, apn string) Settings {
	t.Helper()
	text := "[announce]\nmethod = \"route\"\n[[ggsn]]\n"
	add := func(base []string, lines string) {
		for _, line := range base {
			name, _, _ := strings.Cut(line, "=")
			if !strings.Contains("\n"+lines, "\n"+name+"=") {
				text += line + "\n"
			}
		}
		text += lines + "\n"
	}
	add(baseNode, node)
	text += "[[ggsn.apn]]\n"
	add(baseAPN, apn)
	return *configtest.One(t, Role.Section, text).(*Settings)
}

// bench is the engine of a section, in virtual time.
type bench struct {
	*ggsn.Engine
	t     testing.TB
	now   time.Time
	out   ggsn.Output
	codec gtp.Codec
	seq   uint16
}

func benchOf(t testing.TB, node, apn string) *bench {
	t.Helper()
	cfg := written(t, node, apn)
	who, err := readSubscribers(cfg.SubscribersFile)
	if err != nil {
		t.Fatal(err)
	}
	settings, err := engineSettings(&cfg, who, map[string]own{"": source}, 7)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, now: time.Unix(1_800_000_000, 0)}
	if b.Engine, err = ggsn.New(settings, b.now, rand.Reader); err != nil {
		t.Fatal(err)
	}
	return b
}

// hand gives the engine a message by the socket of its kind.
func (b *bench) hand(n ggsn.Socket, from netip.Addr, h gtp.Header, m gtp.Message) {
	b.t.Helper()
	b.seq++
	h.HasSequence, h.Sequence = true, b.seq
	datagram, err := b.codec.Append(nil, h, m)
	if err != nil {
		b.t.Fatal(err)
	}
	b.out.Reset()
	b.HandleUDP(n, netip.AddrPortFrom(from, n.Port()), 0, datagram, b.now, &b.out)
}

// request asks for a context of a subscriber.
func request(n int, from netip.Addr, kind gtp.PDPType) *gtp.CreateRequest {
	imsi, err := gtp.ParseIMSI(fmt.Sprintf("24001%010d", n))
	if err != nil {
		panic(err)
	}
	apn, err := gtp.ParseAPN("internet")
	if err != nil {
		panic(err)
	}
	return &gtp.CreateRequest{
		IMSI: gtp.Some(imsi), SelectionMode: gtp.Some(gtp.SelectionVerified), TEIDData: 0x1000 + uint32(n), TEIDControl: gtp.Some(0x2000 + uint32(n)), NSAPI: 5,
		EndUserAddress: gtp.Some(gtp.EndUserAddress{Type: kind}), APN: gtp.Some(apn), AddressControl: from, AddressUser: from,
		QoS: gtp.Profile{Class: gtp.ClassBackground, MaxUp: 8640, MaxDown: 8640}.QoS(12), CommonFlags: gtp.Some(gtp.FlagDualAddressBearer),
	}
}

// create asks for a context, and returns the answer; its cause is 0 if there is none.
func (b *bench) create(from netip.Addr, m *gtp.CreateRequest) (r gtp.CreateResponse) {
	b.t.Helper()
	b.hand(ggsn.SocketControl, from, gtp.Header{Version: gtp.V1}, m)
	for _, d := range b.out.UDP {
		h, err := gtp.ParseHeader(d.Payload)
		if err == nil && h.Type == r.Type() {
			if _, err := b.codec.Parse(&h, &r); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	return r
}

// open makes a context with both families.
func (b *bench) open(n int) gtp.CreateResponse {
	b.t.Helper()
	r := b.create(sgsn, request(n, sgsn, gtp.PDPTypeIPv4v6))
	if !r.Cause.Accepted() {
		b.t.Fatalf("the context is refused: %v", r.Cause)
	}
	return r
}

// up sends a packet of a terminal, and returns how many come out behind the node.
func (b *bench) up(r *gtp.CreateResponse, from netip.Addr, ip []byte) int {
	b.t.Helper()
	datagram, err := gtp.Encapsulate(nil, &gtp.Header{Version: gtp.V1, Type: gtp.TypeGPDU, TEID: r.TEIDData.Value}, ip)
	if err != nil {
		b.t.Fatal(err)
	}
	b.out.Reset()
	b.HandleUDP(ggsn.SocketUser, netip.AddrPortFrom(from, ggsn.SocketUser.Port()), 0, datagram, b.now, &b.out)
	return len(b.out.IP)
}

// down sends a packet from the network, and returns how many G-PDUs come out.
func (b *bench) down(ip []byte) int {
	b.out.Reset()
	b.HandleIP(0, ip, b.now, &b.out)
	return len(b.out.UDP)
}

// pass lets time pass, and returns the messages that come out on the way.
func (b *bench) pass(d time.Duration) (sent [][]byte) {
	until := b.now.Add(d)
	for {
		next := b.Next()
		if next.IsZero() || next.After(until) {
			b.now = until
			return sent
		}
		if next.After(b.now) {
			b.now = next
		}
		b.out.Reset()
		b.Tick(b.now, &b.out)
		for _, d := range b.out.UDP {
			sent = append(sent, append([]byte(nil), d.Payload...))
		}
	}
}

// of counts messages of a type.
func of(kind gtp.MessageType, sent [][]byte) (n int) {
	for _, p := range sent {
		if p[1] == byte(kind) {
			n++
		}
	}
	return n
}

// wants compares two values.
func (b *bench) wants(what string, got, want any) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// udp is a packet of UDP of so many octets of data, of the family of its addresses.
func udp(src, dst netip.Addr, hops byte, n int) []byte {
	if src.Is6() {
		b := packet.AppendIPv6Header(nil, packet.ProtoUDP, hops, 8+n, src, dst)
		return append(append(b, 0x13, 0x88, 0, 53, byte((8+n)>>8), byte(8+n), 0, 0), make([]byte, n)...)
	}
	b := make([]byte, 28+n)
	b[0], b[8], b[9] = 0x45, hops, packet.ProtoUDP
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	s, d := src.As4(), dst.As4()
	copy(b[12:], s[:])
	copy(b[16:], d[:])
	binary.BigEndian.PutUint16(b[10:], ^packet.Fold(packet.Sum(0, b[:20])))
	binary.BigEndian.PutUint16(b[24:], uint16(8+n))
	return b
}

// local is the terminal's link-local address.
func local(r *gtp.CreateResponse) netip.Addr {
	raw := r.EndUserAddress.Value.IPv6.As16()
	copy(raw[:8], []byte{0xfe, 0x80, 0, 0, 0, 0, 0, 0})
	return netip.AddrFrom16(raw)
}
