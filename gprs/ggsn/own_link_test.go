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
	"github.com/isthmus-net/isthmus/internal/packet"
)

// linked opens a context with what it is granted, and returns the name servers and the MTU that its options have.
func (w *world) linked(g Grant) (c context, dns []netip.Addr, mtu int) {
	w.Helper()
	m := w.createRequest(testIMSI(1), "dual", gtp.PDPTypeIPv4v6)
	m.CommonFlags = gtp.Some(gtp.FlagDualAddressBearer)
	m.TEIDData = 0x1001
	m.PCO = gtp.Some(pcoOf(gtp.ContainerDNS6, nil, gtp.ContainerMTU4, nil))
	_, a := w.asks(m)
	if w.answer(w.authorize(a.Ticket, g), &c.CreateResponse); !c.Cause.Accepted() {
		w.Fatal(c.Cause)
	}
	for container, value := range c.PCO.Value.All() {
		switch container {
		case gtp.ContainerDNS6:
			server, _ := netip.AddrFromSlice(value)
			dns = append(dns, server)
		case gtp.ContainerMTU4:
			mtu = int(binary.BigEndian.Uint16(value))
		}
	}
	return c, dns, mtu
}

// TestOwnLink tells a terminal the name servers and the MTU that it was granted in place of its access point's, by
// options and advertisements, and keeps that MTU both ways, also after a restart.
func TestOwnLink(t *testing.T) {
	own := addrs("2001:db8:53::1", "2001:db8:53::2")
	w := newAuthorized(t, nil)
	c, dns, mtu := w.linked(Grant{DNS6: own, MTU: 1300})
	if !slices.Equal(dns, own) || mtu != 1300 {
		t.Errorf("options have %v and %d", dns, mtu)
	}
	check := func(when string) {
		t.Helper()
		w.tick(2 * minEcho)
		w.solicit(c)
		_, ip := w.tunnelled()
		if !bytes.Contains(ip, own[0].AsSlice()) || !bytes.Contains(ip, own[1].AsSlice()) || bytes.Contains(ip, netip.MustParseAddr("2001:db8::53").AsSlice()) || !bytes.Contains(ip, []byte{5, 1, 0, 0, 0, 0, 1300 >> 8, 1300 & 0xff}) {
			t.Errorf("%s, the advertisement is %x", when, ip)
		}
		for size, passes := range map[int]bool{1300 - 48: true, 1301 - 48: false} {
			before := w.e.stats.Dropped[TooBig]
			w.up(c, udp6(c.six(), host6, 64, size))
			w.down(udp6(host6, c.six(), 64, size))
			if dropped := w.e.stats.Dropped[TooBig] - before; (dropped == 0) != passes || !passes && dropped != 2 {
				t.Errorf("%s, of packets of %d octets %d were too big", when, size+48, dropped)
			}
		}
		w.tick(time.Second)
		if w.down(udp6(host6, c.six(), 64, 1301-48)); len(w.out.IP) != 1 || w.out.IP[0][40] != packet.ICMPv6PacketTooBig || binary.BigEndian.Uint32(w.out.IP[0][44:]) != 1300 {
			t.Errorf("%s, the network was told %x", when, w.out.IP)
		}
	}
	check("at first")
	if lost := w.succeed(w.e.settings, w.e.AppendState(nil)); lost != 0 {
		t.Fatal(lost)
	}
	check("after a restart")
	if w.remove(w.only().TEIDControl, 5, true); len(w.e.ownLinks) != 0 {
		t.Error("something is left")
	}
	w.empty()
}

// TestOwnLinkBounds leaves out what no link can have.
func TestOwnLinkBounds(t *testing.T) {
	usual := addrs("2001:db8::53")
	for _, one := range []struct {
		what string
		g    Grant
		dns  []netip.Addr
		mtu  int
	}{
		{"nothing", Grant{}, usual, DefaultMTU},
		{"an MTU below that of IPv6", Grant{MTU: 64}, usual, 1280},
		{"one that is larger than the access point's", Grant{MTU: 65535}, usual, DefaultMTU},
		{"no servers", Grant{DNS6: addrs("::1", "ff02::1", "::", "::ffff:192.0.2.1")}, usual, DefaultMTU},
		{"one of several", Grant{DNS6: addrs("ff02::1", "2001:db8:53::1")}, addrs("2001:db8:53::1"), DefaultMTU},
		{"more than there is room for", Grant{DNS6: addrs("2001:db8:53::1", "2001:db8:53::2", "2001:db8:53::3", "2001:db8:53::4", "2001:db8:53::5")},
			addrs("2001:db8:53::1", "2001:db8:53::2", "2001:db8:53::3", "2001:db8:53::4"), DefaultMTU},
	} {
		w := newAuthorized(t, nil)
		if _, dns, mtu := w.linked(one.g); !slices.Equal(dns, one.dns) || mtu != one.mtu {
			t.Errorf("%s: %v and %d", one.what, dns, mtu)
		}
	}
	w := newAuthorized(t, nil)
	if w.enters(1, gtp.PDPTypeIPv4, Grant{DNS6: usual}); len(w.e.ownLinks) != 0 {
		t.Error("a context of IPv4 has name servers of its own")
	}
}
