// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

func TestUplink(t *testing.T) {
	addr := netip.MustParseAddr
	w := newWorld(t, func(s *Settings) {
		s.APNs[2].Router4, s.APNs[2].Router6 = addr("10.46.0.1"), addr("2001:db8:7000:1::1")
	})
	c := w.open(1, "dual", gtp.PDPTypeIPv4v6)
	four, six := w.open(2, "internet", gtp.PDPTypeIPv4), w.open(3, "inet6", gtp.PDPTypeIPv6)
	cut := func(b []byte, n int) []byte { return b[:n] }
	tests := []struct {
		name string
		of   context
		ip   []byte
		want Reason
	}{
		{"IPv4", c, udp4(c.four(), server, 64, 100), none},
		{"IPv4 with a hop limit of 2", c, udp4(c.four(), server, 2, 0), none},
		{"IPv4 with a hop limit of 1", c, udp4(c.four(), server, 1, 0), HopLimit},
		{"IPv4 with a hop limit of 0", c, udp4(c.four(), server, 0, 0), HopLimit},
		{"IPv4 of another terminal", c, udp4(four.four(), server, 64, 0), SpoofedIPv4},
		{"IPv4 of a stranger", c, udp4(server, server, 64, 0), SpoofedIPv4},
		{"IPv4 in a context of IPv6", six, udp4(c.four(), server, 64, 0), WrongFamily},
		{"IPv4 for a group", c, udp4(c.four(), addr("224.0.0.251"), 64, 0), Multicast},
		{"IPv4 for all", c, udp4(c.four(), addr("255.255.255.255"), 64, 0), BadDestination},
		{"IPv4 for loopback", c, udp4(c.four(), addr("127.0.0.1"), 64, 0), BadDestination},
		{"IPv4 link-local", c, udp4(c.four(), addr("169.254.1.1"), 64, 0), BadDestination},
		{"IPv4 for itself", c, udp4(c.four(), c.four(), 64, 0), BadDestination},
		{"IPv4 for the node", c, udp4(c.four(), node4, 64, 0), OwnAddress},
		{"IPv4 for an address that no terminal has", c, udp4(c.four(), addr("10.46.200.200"), 64, 0), NoContext},
		{"IPv4 for one of another access point", c, udp4(c.four(), addr("10.45.200.200"), 64, 0), NoContext},
		{"IPv4 for a static one", c, udp4(c.four(), addr("10.47.0.200"), 64, 0), NoContext},
		{"IPv4 for the router", c, udp4(c.four(), addr("10.46.0.1"), 64, 0), none},
		{"IPv4 cut in the header", c, cut(udp4(c.four(), server, 64, 0), 19), NotIP},
		{"IPv4 cut behind it", c, cut(udp4(c.four(), server, 64, 9), 30), NotIP},
		{"IPv4 with a header of 4 octets", c, append([]byte{0x41}, udp4(c.four(), server, 64, 0)[1:]...), NotIP},
		{"IPv6", c, udp6(c.six(), host6, 64, 100), none},
		{"IPv6 with a hop limit of 1", c, udp6(c.six(), host6, 1, 0), HopLimit},
		{"IPv6 of another terminal", c, udp6(six.six(), host6, 64, 0), SpoofedIPv6},
		{"IPv6 of a group", c, udp6(addr("ff02::1"), host6, 64, 0), SpoofedIPv6},
		{"IPv6 of loopback", c, udp6(addr("::1"), host6, 64, 0), SpoofedIPv6},
		{"IPv6 in a context of IPv4", four, udp6(c.six(), host6, 64, 0), WrongFamily},
		{"IPv6 of another's link-local address", c, udp6(six.local(), addr("ff02::2"), 255, 0), SpoofedLinkLocal},
		{"IPv6 of the router's link-local address", c, udp6(addr("fe80::1"), addr("ff02::2"), 255, 0), SpoofedLinkLocal},
		{"IPv6 of its link-local address for elsewhere", c, udp6(c.local(), host6, 64, 0), LinkScope},
		{"IPv6 of no address for elsewhere", c, udp6(netip.IPv6Unspecified(), host6, 64, 0), LinkScope},
		{"IPv6 for another's link-local address", c, udp6(c.local(), six.local(), 64, 0), LinkControl},
		{"IPv6 for a group of the site", c, udp6(c.six(), addr("ff05::2"), 64, 0), Multicast},
		{"IPv6 for a group of the world", c, udp6(c.six(), addr("ff0e::101"), 64, 0), Multicast},
		{"IPv6 for a group of the link that this node is not in", c, udp6(c.local(), addr("ff02::fb"), 255, 0), LinkControl},
		{"IPv6 for itself", c, udp6(c.six(), c.EndUserAddress.Value.IPv6, 64, 0), BadDestination},
		{"IPv6 for the node", c, udp6(c.six(), node6, 64, 0), OwnAddress},
		{"IPv6 for loopback", c, udp6(c.six(), addr("::1"), 64, 0), BadDestination},
		{"IPv6 for a prefix that no terminal has", c, udp6(c.six(), addr("2001:db8:7000:ffff::1"), 64, 0), NoContext},
		{"IPv6 for the router", c, udp6(c.six(), addr("2001:db8:7000:1::1"), 64, 0), none},
		{"IPv6 for what shares its prefix", c, udp6(c.six(), addr("2001:db8:7000:1::2"), 64, 0), none},
		{"IPv6 cut in the header", c, cut(udp6(c.six(), host6, 64, 0), 39), NotIP},
		{"IPv6 cut behind it", c, cut(udp6(c.six(), host6, 64, 9), 50), NotIP},
		{"neither", c, []byte{0x50, 0, 0, 0}, NotIP},
		{"nothing", c, nil, NotIP},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before, want := w.e.stats.Dropped, slices.Clone(tt.ip)
			w.up(tt.of, slices.Clone(tt.ip))
			if tt.want != none {
				if len(w.out.IP) != 0 || w.e.stats.Dropped[tt.want] != before[tt.want]+1 {
					t.Errorf("%d packets, dropped %v", len(w.out.IP), w.dropped())
				}
				return
			}
			if len(w.out.IP) != 1 || w.out.VRF[0] != 0 || w.e.stats.Dropped != before {
				t.Fatalf("%d packets, dropped %v", len(w.out.IP), w.dropped())
			}
			if want[0]>>4 == 4 {
				want[8]--
				fill4(want)
			} else {
				want[7]--
			}
			if !bytes.Equal(w.out.IP[0], want) {
				t.Errorf("sent\n%x, want\n%x", w.out.IP[0], want)
			}
		})
	}
}

// TestUplinkTail: what stands behind a packet is left out.
func TestUplinkTail(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "dual", gtp.PDPTypeIPv4v6)
	for _, ip := range [][]byte{udp4(c.four(), server, 64, 3), udp6(c.six(), host6, 64, 3)} {
		w.up(c, append(slices.Clone(ip), 1, 2, 3))
		if len(w.out.IP) != 1 || len(w.out.IP[0]) != len(ip) {
			t.Errorf("sent %x", w.out.IP)
		}
	}
}

// TestHopChecksum: the checksum is right for each hop limit and each old checksum.
func TestHopChecksum(t *testing.T) {
	for id := range 1 << 16 {
		b := udp4(server, node4, byte(2+id%254), 0)
		b[4], b[5] = byte(id>>8), byte(id)
		fill4(b)
		hop(b)
		if !right4(b) || b[8] != byte(1+id%254) {
			t.Fatalf("%x is wrong", b[:20])
		}
	}
}

func TestOuterSource(t *testing.T) {
	tests := []struct {
		name string
		any  bool
		from netip.Addr
		want Reason
	}{
		{"the node that has the user plane", false, sgsn, none},
		{"another peer", false, other, OuterSource},
		{"a stranger", false, rnc, OuterSource},
		{"a stranger where that does not matter", true, rnc, none},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(s *Settings) { s.APNs[0].AnyOuterSource = tt.any })
			c := w.open(1, "internet", gtp.PDPTypeIPv4)
			w.from = tt.from
			w.up(c, udp4(c.four(), server, 64, 0))
			if tt.want == none && len(w.out.IP) != 1 || tt.want != none && w.e.stats.Dropped[tt.want] != 1 {
				t.Errorf("%d packets, dropped %v", len(w.out.IP), w.dropped())
			}
		})
	}
}

func TestTimeExceeded(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "dual", gtp.PDPTypeIPv4v6)
	for _, ip := range [][]byte{udp4(c.four(), server, 1, 40), udp6(c.six(), host6, 1, 40)} {
		w.up(c, slices.Clone(ip))
		h, got := w.tunnelled()
		if h.TEID != 0x1001 {
			t.Fatalf("%d datagrams, TEID %#x", len(w.out.UDP), h.TEID)
		}
		checkError(t, got, ip, complainExceeded)
	}
	for _, ip := range [][]byte{udp4(server, c.four(), 1, 40), udp6(host6, c.six(), 1, 40)} {
		w.down(slices.Clone(ip))
		if len(w.out.IP) != 1 || len(w.out.UDP) != 0 {
			t.Fatalf("%d packets", len(w.out.IP))
		}
		checkError(t, w.out.IP[0], ip, complainExceeded)
	}
	w = newWorld(t, func(s *Settings) { s.APNs[0].SilentICMP = true })
	c = w.open(1, "internet", gtp.PDPTypeIPv4)
	w.up(c, udp4(c.four(), server, 1, 40))
	if len(w.out.UDP)+len(w.out.IP) != 0 {
		t.Error("not silent")
	}
}

// checkError wants an ICMP error about a packet, from the node's address of the access point.
func checkError(t *testing.T, got, about []byte, what complaint) {
	t.Helper()
	if about[0]>>4 == 4 {
		if len(got) < 28 || !right4(got) || netip.AddrFrom4([4]byte(got[12:16])) != netip.MustParseAddr("192.0.2.254") ||
			!bytes.Equal(got[16:20], about[12:16]) || got[20] != what.type4 || got[21] != what.code4 ||
			packet.Fold(packet.Sum(0, got[20:])) != 0xffff || !bytes.HasPrefix(about, got[28:]) {
			t.Errorf("error %x about %x", got, about)
		}
		return
	}
	p, _, ok := packet.ParseIPv6(got)
	m, right := []byte(nil), false
	if ok {
		m, right = p.ICMPv6()
	}
	if !right || p.Src() != netip.MustParseAddr("2001:db8:9::fe") || p.Dst() != packet.IPv6(about).Src() ||
		m[0] != what.type6 || m[1] != what.code6 || !bytes.HasPrefix(about, m[8:]) {
		t.Errorf("error %x about %x", got, about)
	}
}

// TestICMPErrorsBounded: no more errors are sent than their rate allows, and one terminal
// leaves others theirs.
func TestICMPErrorsBounded(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Limits.ICMPRate = 40 })
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	for range 100 {
		w.up(c, udp4(c.four(), server, 1, 0))
	}
	sent := w.e.stats.ICMPErrors
	if s := w.e.stats; sent < 1 || sent > 10 || s.ICMPLimited != 100-sent || s.Dropped[HopLimit] != 100 {
		t.Errorf("%d errors, %d limited", sent, s.ICMPLimited)
	}
	for n := range 100 {
		d := w.open(2+n, "inet6", gtp.PDPTypeIPv6)
		w.up(d, udp6(d.six(), host6, 1, 0))
		if n == 0 && w.e.stats.ICMPErrors != sent+1 {
			t.Error("another terminal got none")
		}
	}
	if n := w.e.stats.ICMPErrors; n > 40 {
		t.Errorf("%d errors in no time", n)
	}
}

func TestUserToUser(t *testing.T) {
	tests := []struct {
		name   string
		policy UserToUser
		want   Reason
	}{
		{"denied", UserDeny, UserDenied}, {"denied in silence", UserSilent, UserDenied}, {"allowed", UserAllow, none}, {"by the network", UserExternal, none},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(s *Settings) { s.APNs[2].UserToUser = tt.policy })
			a, b := w.open(1, "dual", gtp.PDPTypeIPv4v6), w.open(2, "dual", gtp.PDPTypeIPv4v6)
			for _, ip := range [][]byte{udp4(a.four(), b.four(), 64, 9), udp6(a.six(), b.six(), 64, 9)} {
				before := w.e.stats.Dropped[UserDenied]
				w.up(a, slices.Clone(ip))
				h, got := w.tunnelled()
				switch tt.policy {
				case UserDeny:
					if h.TEID != 0x1001 {
						t.Fatalf("%d datagrams, to %#x", len(w.out.UDP), h.TEID)
					}
					checkError(t, got, ip, complainProhibited)
				case UserSilent:
					if len(w.out.UDP)+len(w.out.IP) != 0 {
						t.Error("not silent")
					}
				case UserAllow:
					if h.TEID != 0x1002 || len(got) != len(ip) || hopLimit(got) != 63 {
						t.Errorf("to %#x: %x", h.TEID, got)
					}
				case UserExternal:
					if len(w.out.IP) != 1 || hopLimit(w.out.IP[0]) != 63 {
						t.Fatalf("%d packets", len(w.out.IP))
					}
					w.down(slices.Clone(w.out.IP[0]))
					if h, got = w.tunnelled(); h.TEID != 0x1002 || hopLimit(got) != 62 {
						t.Errorf("back: to %#x: %x", h.TEID, got)
					}
				}
				if n := w.e.stats.Dropped[UserDenied] - before; (n == 1) != (tt.want == UserDenied) {
					t.Errorf("%d dropped", n)
				}
			}
			w.up(a, udp6(a.local(), b.local(), 255, 9)) // never across
			if len(w.out.UDP)+len(w.out.IP) != 0 {
				t.Error("link-local packet crossed")
			}
		})
	}
}

// TestUserToUserAcross: from one access point to another packets pass only by a way that both
// have.
func TestUserToUserAcross(t *testing.T) {
	tests := []struct {
		name     string
		from, to UserToUser
		across   bool // handed to the other
		out      bool // to the network
		told     bool
	}{
		{"both allow", UserAllow, UserAllow, true, false, false},
		{"both by the network", UserExternal, UserExternal, false, true, false},
		{"the receiver denies", UserAllow, UserDeny, false, false, true},
		{"the receiver denies in silence", UserAllow, UserSilent, false, false, false},
		{"the sender denies", UserDeny, UserAllow, false, false, true},
		{"the sender denies in silence", UserSilent, UserDeny, false, false, false},
		{"by the network, to one that denies", UserExternal, UserDeny, false, false, true},
		{"by the network, to one that has no such way", UserExternal, UserAllow, false, false, true},
		{"to one that is reached by the network", UserAllow, UserExternal, false, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(s *Settings) {
				s.APNs[1].Pools4, s.APNs[1].Types = prefixes("10.48.0.0/16"), TypeIPv4|TypeIPv6
				s.APNs[1].UserToUser, s.APNs[2].UserToUser = tt.from, tt.to
			})
			b := w.open(9, "dual", gtp.PDPTypeIPv4v6)
			four, six := w.open(1, "inet6", gtp.PDPTypeIPv4), w.open(2, "inet6", gtp.PDPTypeIPv6)
			for _, one := range []struct {
				of context
				ip []byte
			}{{four, udp4(four.four(), b.four(), 64, 9)}, {six, udp6(six.six(), b.six(), 64, 9)}} {
				before := w.e.stats.Dropped[UserDenied]
				w.up(one.of, slices.Clone(one.ip))
				h, got := w.tunnelled()
				if (h.TEID == 0x1009) != tt.across || (len(w.out.IP) == 1) != tt.out || (got != nil && !tt.across) != tt.told ||
					(w.e.stats.Dropped[UserDenied] > before) != (!tt.across && !tt.out) {
					t.Errorf("%d packets; to %#x; dropped %v", len(w.out.IP), h.TEID, w.dropped())
				}
			}
		})
	}
}
