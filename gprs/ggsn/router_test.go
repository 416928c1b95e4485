// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// adverts counts the router advertisements in datagrams.
func adverts(t *testing.T, list []packet.Datagram) (n int) {
	t.Helper()
	for _, d := range ofType(list, gtp.TypeGPDU) {
		h, err := gtp.Decapsulate(d.Payload)
		p, _, ok := packet.ParseIPv6(h.Payload)
		if err != nil || !ok {
			t.Fatalf("%x", d.Payload)
		}
		if m, right := p.ICMPv6(); right && m[0] == packet.ICMPv6RouterAdvert && p.Src() == link.RouterAddress {
			n++
		}
	}
	return n
}

// TestUnsolicited: an advertisement goes out with the context, two more follow 3 s apart, and
// then one in time before they end. None is sent to a context of IPv4.
func TestUnsolicited(t *testing.T) {
	w := newWorld(t, func(s *Settings) {
		for i := range s.APNs {
			s.APNs[i].AdvertInterval = 600 * time.Second
		}
	})
	w.open(1, "inet6", gtp.PDPTypeIPv6)
	if n := adverts(t, w.out.UDP); n != 1 || w.out.UDP[0].Payload[1] != byte(gtp.TypeCreateResponse) {
		t.Errorf("%d with the answer", n)
	}
	var at []int
	for i := 1; i <= 30; i++ {
		if adverts(t, w.tick(time.Second)) > 0 {
			at = append(at, i)
		}
	}
	if !slices.Equal(at, []int{3, 6}) {
		t.Errorf("more after %v s", at)
	}
	if n := adverts(t, w.tick(time.Hour)); n < 6 || n > 9 {
		t.Errorf("%d in an hour", n)
	}
	w.open(2, "internet", gtp.PDPTypeIPv4)
	if n := adverts(t, w.out.UDP); n != 0 {
		t.Errorf("%d for IPv4", n)
	}
}

// TestSolicited: a terminal has its answers by the context it asked by, from its link-local
// address or none, and only with a right hop limit.
func TestSolicited(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "inet6", gtp.PDPTypeIPv6)
	w.tick(time.Minute)
	solicit := func(src netip.Addr, hops byte) []byte {
		return packet.AppendICMPv6(nil, src, netip.MustParseAddr("ff02::2"), hops, packet.ICMPv6RouterSolicitation, 0, make([]byte, 4))
	}
	for _, src := range []netip.Addr{c.local(), netip.IPv6Unspecified()} {
		w.up(c, solicit(src, 255))
		if n := adverts(t, w.out.UDP); n != 1 || len(w.out.IP) != 0 {
			t.Errorf("from %v: %d answers, dropped %v", src, n, w.dropped())
		}
		_, ip := w.tunnelled()
		if prefix := c.EndUserAddress.Value.IPv6.As16(); binary.BigEndian.Uint64(ip[72:]) != binary.BigEndian.Uint64(prefix[:]) {
			t.Errorf("prefix in %x", ip)
		}
		w.tick(10 * time.Second)
	}
	w.up(c, solicit(c.local(), 64))
	w.silent(LinkControl, 0)
	echo := packet.AppendICMPv6(nil, c.local(), link.RouterAddress, 64, packet.ICMPv6EchoRequest, 0, []byte{0, 1, 0, 1})
	w.up(c, echo)
	if _, ip := w.tunnelled(); len(ip) == 0 || ip[40] != packet.ICMPv6EchoReply {
		t.Errorf("echo: %x, dropped %v", ip, w.dropped())
	}
	if s := w.e.stats.Link; s[link.Advertised] != 2 || s[link.BadHopLimit] != 1 || s[link.EchoReplied] != 1 {
		t.Errorf("counted %v", s)
	}
}

// TestReload: terminals learn at once what changed for them.
func TestReload(t *testing.T) {
	w := newWorld(t, nil)
	w.open(1, "inet6", gtp.PDPTypeIPv6)
	c := w.open(2, "internet", gtp.PDPTypeIPv4)
	w.tick(time.Minute)
	s := testSettings()
	s.APNs[1].MTU = 1300
	s.APNs[1].PREF64 = prefixes("64:ff9b::/96")
	s.APNs[0].Pools4 = prefixes("10.99.0.0/24")
	if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	told := func(lifetime string) {
		t.Helper()
		list := w.tick(0)
		if n := adverts(t, list); n != 1 || !bytes.Contains(list[0].Payload, []byte("\x26\x02"+lifetime+"\x00\x64\xff\x9b")) {
			t.Errorf("%d advertisements: %v", n, list)
		}
	}
	told("\xfd\x20")
	w.tick(time.Minute)
	s.APNs[1].PREF64 = nil
	if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	told("\x00\x00")
	w.up(c, udp4(c.four(), server, 64, 0))
	if len(w.out.IP) != 1 {
		t.Errorf("a context of the old pool: dropped %v", w.dropped())
	}
	if d := w.open(3, "internet", gtp.PDPTypeIPv4); !netip.MustParsePrefix("10.99.0.0/24").Contains(d.four()) {
		t.Errorf("address %v", d.four())
	}
	s.APNs = s.APNs[1:]
	if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	for _, d := range ofType(w.tick(0), gtp.TypeDeleteRequest) {
		w.reply(d, &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
	}
	if w.e.stats.Ended[EndSettings] != 2 || w.e.contexts.used() != 1 {
		t.Errorf("ended %v, %d contexts", w.e.stats.Ended, w.e.contexts.used())
	}
	if got := w.create(w.createRequest(testIMSI(9), "internet", gtp.PDPTypeIPv4)); got.Cause != gtp.CauseUnknownAPN {
		t.Errorf("an access point that is gone: %v", got.Cause)
	}
	s.APNs[0].MTU = 100
	if err := w.e.Reconfigure(s, w.now, &w.out); err == nil || w.e.apns[1].MTU == 100 {
		t.Error("wrong settings were taken")
	}
}
