// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clat

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/packet"
)

var (
	own     = netip.MustParseAddr("2001:db8:1::c1a7")
	other   = netip.MustParseAddr("2001:db8:1::2")
	site4   = netip.MustParseAddr("198.51.100.7")
	site6   = netip.MustParseAddr("2001:db8:64::c633:6407") // site4 by the prefix
	lanHost = netip.MustParseAddr("192.168.7.9")
	lan6    = netip.MustParseAddr("2001:db8:1:46::c0a8:709") // lanHost by the LAN's prefix
	mac     = []byte{2, 0, 0, 0, 0, 1}
	start   = time.Unix(1_800_000_000, 0)
)

func settings() Settings {
	return Settings{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")},
		Address:  own, MAC: mac, MTU6: 1500,
	}
}

func engine(t testing.TB, s Settings) *Engine {
	t.Helper()
	e, err := New(s, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// owning returns an engine that has claimed its address.
func owning(t testing.TB, s Settings) *Engine {
	t.Helper()
	e := engine(t, s)
	var out packet.Batch
	e.Tick(start, &out)
	e.Tick(start.Add(detectionTime), &out)
	if e.Claim() != Owned {
		t.Fatalf("the claim is %s after detection", e.Claim())
	}
	return e
}

func ping4(src, dst netip.Addr, ttl byte) []byte {
	p := make([]byte, 28, 32)
	p[0], p[3], p[8], p[9] = 0x45, 32, ttl, 1
	copy(p[12:], src.AsSlice())
	copy(p[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(p[10:], ^packet.Fold(packet.Sum(0, p[:20])))
	p[20] = 8
	p = append(p, "abcd"...)
	binary.BigEndian.PutUint16(p[22:], ^packet.Fold(packet.Sum(0, p[20:])))
	return p
}

// solicit is a Neighbor Solicitation for target; from :: it is of duplicate address
// detection.
func solicit(from, target netip.Addr, hops byte) []byte {
	raw := target.As16()
	return packet.AppendICMPv6(nil, from, packet.SolicitedNode(target), hops, packet.ICMPv6NeighborSolicitation, 0, make([]byte, 4), raw[:])
}

func advert(from, target netip.Addr) []byte {
	raw := target.As16()
	return packet.AppendICMPv6(nil, from, packet.AllNodes, 255, packet.ICMPv6NeighborAdvert, 0, []byte{flagOverride, 0, 0, 0}, raw[:])
}

func TestDetection(t *testing.T) {
	none := netip.IPv6Unspecified()
	for _, tt := range []struct {
		name  string
		hear  []byte // while detection runs
		after []byte // when it is over
		want  Claim
	}{
		{"silence", nil, nil, Owned},
		{"another has it", advert(other, own), nil, Taken},
		{"another wants it at once", solicit(none, own, 255), nil, Taken},
		{"somebody looks for it", solicit(other, own, 255), nil, Owned},
		{"from beyond the link", solicit(none, own, 254), nil, Owned},
		{"about another address", advert(other, other), nil, Owned},
		{"another wants it later", nil, solicit(none, own, 255), Owned},
		{"another says it has it later", nil, advert(other, own), Owned},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := engine(t, settings())
			var out packet.Batch
			e.Tick(start, &out)
			if len(out.IP) != 1 || !packet.IPv6(out.IP[0]).Src().IsUnspecified() || packet.IPv6(out.IP[0]).HopLimit() != 255 {
				t.Fatalf("detection sent %x", out.IP)
			}
			if at := e.Next(); !at.Equal(start.Add(detectionTime)) {
				t.Errorf("detection ends at %v", at)
			}
			if len(tt.hear) > 0 {
				e.HandleLink(tt.hear, start, &out)
			}
			e.Tick(start.Add(detectionTime-1), &out)
			if e.Claim() == Owned {
				t.Error("detection ended early")
			}
			e.Tick(start.Add(detectionTime), &out)
			if len(tt.after) > 0 {
				e.HandleLink(tt.after, start, &out)
			}
			if e.Claim() != tt.want {
				t.Errorf("the claim is %s, want %s", e.Claim(), tt.want)
			}
		})
	}
}

// TestLoopedDetection has a link that brings the solicitation back (RFC 7527), as it is or as
// another would ask.
func TestLoopedDetection(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(solicitation []byte)
		want   Claim
	}{
		{"our own", func([]byte) {}, Owned},
		{"another's, with a nonce", func(p []byte) { p[len(p)-1] ^= 1 }, Taken},
		{"another's, with another option", func(p []byte) { p[len(p)-8] = packet.NDSourceLinkLayer }, Taken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := engine(t, settings())
			var out packet.Batch
			e.Tick(start, &out)
			back := bytes.Clone(out.IP[0])
			tt.change(back)
			packet.FillICMPv6Checksum(back)
			e.HandleLink(back, start, &out)
			e.Tick(start.Add(detectionTime), &out)
			if e.Claim() != tt.want {
				t.Errorf("the claim is %s, want %s", e.Claim(), tt.want)
			}
		})
	}
}

func TestAnswer(t *testing.T) {
	none := netip.IPv6Unspecified()
	for _, tt := range []struct {
		name string
		in   []byte
		to   netip.Addr
		flag byte
	}{
		{"asked", solicit(other, own, 255), other, flagSolicited | flagOverride},
		{"defended", solicit(none, own, 255), packet.AllNodes, flagOverride},
		{"from beyond the link", solicit(other, own, 254), netip.Addr{}, 0},
		{"for another", solicit(other, other, 255), netip.Addr{}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := owning(t, settings())
			var out packet.Batch
			e.HandleLink(tt.in, start, &out)
			if !tt.to.IsValid() {
				if len(out.IP) != 0 {
					t.Errorf("answered %x", out.IP)
				}
				return
			}
			if len(out.IP) != 1 {
				t.Fatalf("%d answers", len(out.IP))
			}
			p := packet.IPv6(out.IP[0])
			m, ok := p.ICMPv6()
			if !ok || p.Src() != own || p.Dst() != tt.to || p.HopLimit() != 255 || m[4] != tt.flag || !bytes.Equal(m[24:], append([]byte{2, 1}, mac...)) {
				t.Errorf("answered %x", p)
			}
		})
	}
}

func TestBothWays(t *testing.T) {
	withLAN := settings()
	withLAN.LAN = netip.MustParsePrefix("2001:db8:1:46::/96")
	for _, tt := range []struct {
		name string
		s    Settings
		src4 netip.Addr
		src6 netip.Addr
	}{
		{"host", settings(), HostIPv4, own},
		{"host with a network behind it", withLAN, HostIPv4, own},
		{"behind the host", withLAN, lanHost, lan6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := owning(t, tt.s)
			var out packet.Batch
			e.HandleHost(ping4(tt.src4, site4, 64), start, &out)
			if len(out.IP) != 1 {
				t.Fatalf("%d packets to the network", len(out.IP))
			}
			p := packet.IPv6(bytes.Clone(out.IP[0]))
			if p.Src() != tt.src6 || p.Dst() != site6 || p.HopLimit() != 63 {
				t.Errorf("sent %v > %v, hop limit %d", p.Src(), p.Dst(), p.HopLimit())
			}
			out.Reset()
			back := e.HandleLink
			if tt.src6 == lan6 {
				back = e.HandleHost // the kernel's routes lead it to the device
			}
			back(packet.AppendICMPv6(nil, site6, tt.src6, 60, packet.ICMPv6EchoReply, 0, make([]byte, 4)), start, &out)
			if len(out.IP) != 1 || netip.AddrFrom4([4]byte(out.IP[0][16:20])) != tt.src4 || out.IP[0][8] != 59 {
				t.Errorf("received %x", out.IP)
			}
		})
	}
}

// TestForeignSource has packets from neither the host nor the network behind it. None leaves as
// from the NAT64's prefix, and its sender hears of it.
func TestForeignSource(t *testing.T) {
	specific, wellKnown, withLAN := settings(), settings(), settings()
	wellKnown.Prefixes = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")}
	withLAN.LAN = netip.MustParsePrefix("2001:db8:1:46::/96")
	private, global := netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("9.9.9.9")
	far := netip.MustParseAddr("8.8.8.8") // global to the well-known prefix, too
	// unreachable is an error about a packet from afar that was for a host.
	unreachable := func(src, of netip.Addr) []byte {
		p := packet.AppendICMPv4Error(nil, src, 0, 3, 1, 0, ping4(of, of, 60)[:28])
		copy(p[16:], far.AsSlice())
		copy(p[40:], far.AsSlice())
		fill := func(b []byte, at int) {
			b[at], b[at+1] = 0, 0
			binary.BigEndian.PutUint16(b[at:], ^packet.Fold(packet.Sum(0, b)))
		}
		fill(p[28:48], 10)
		fill(p[20:], 2)
		fill(p[:20], 10)
		return p
	}
	for _, tt := range []struct {
		name    string
		s       Settings
		in      []byte
		passes  bool
		answers int
	}{
		{"a private one", specific, ping4(private, far, 64), false, 1},
		{"a global one", specific, ping4(global, far, 64), false, 1},
		{"a private one, by the well-known prefix", wellKnown, ping4(private, far, 64), false, 1},
		{"a global one, by the well-known prefix", wellKnown, ping4(global, far, 64), false, 1},
		{"a global one, beside the network behind the host", withLAN, ping4(global, far, 64), false, 1},
		{"the translator's own", withLAN, ping4(ErrorIPv4, far, 64), false, 1},
		{"none", withLAN, ping4(netip.IPv4Unspecified(), far, 64), false, 0},
		{"an error without a network behind the host", specific, unreachable(private, lanHost), false, 0},
		{"an error of a router in the network behind the host", withLAN, unreachable(global, lanHost), true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := owning(t, tt.s)
			var out packet.Batch
			from := netip.AddrFrom4([4]byte(tt.in[12:16]))
			e.HandleHost(tt.in, start, &out)
			foreign := uint64(0)
			e.EachDropped(func(reason string, n uint64) {
				if reason == "foreign_source" {
					foreign = n
				}
			})
			st, _ := e.Stats()
			if tt.passes {
				if len(out.IP) != 1 || foreign != 0 || packet.IPv6(out.IP[0]).Src() != own {
					t.Errorf("sent %x, counted %d", out.IP, foreign)
				}
				return
			}
			if len(out.IP) != tt.answers || foreign != 1 || st.ErrorsSent != uint64(tt.answers) {
				t.Fatalf("sent %x, counted %d and %d", out.IP, foreign, st.ErrorsSent)
			}
			for _, p := range out.IP {
				if p[0]>>4 != 4 || netip.AddrFrom4([4]byte(p[12:16])) != ErrorIPv4 || netip.AddrFrom4([4]byte(p[16:20])) != from || p[20] != 3 || p[21] != 13 {
					t.Errorf("answered %x", p)
				}
			}
		})
	}
	t.Run("a flood", func(t *testing.T) {
		e := owning(t, specific)
		var out packet.Batch
		for range 3 * errorRate {
			e.HandleHost(ping4(private, far, 64), start, &out)
		}
		if st, _ := e.Stats(); len(out.IP) > errorRate/2+1 || st.ErrorsSuppressed == 0 {
			t.Errorf("%d answers, %d suppressed", len(out.IP), st.ErrorsSuppressed)
		}
	})
}

// TestSilent has packets that are not for the translator.
func TestSilent(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(t *testing.T, out *packet.Batch) *Engine
	}{
		{"before the address is owned", func(t *testing.T, out *packet.Batch) *Engine {
			e := engine(t, settings())
			e.HandleHost(ping4(HostIPv4, site4, 64), start, out)
			return e
		}},
		{"IPv6 from the device", func(t *testing.T, out *packet.Batch) *Engine {
			e := owning(t, settings())
			e.HandleHost(packet.AppendICMPv6(nil, own, other, 64, 128, 0, nil), start, out)
			return e
		}},
		{"half a packet", func(t *testing.T, out *packet.Batch) *Engine {
			e := owning(t, settings())
			e.HandleLink(packet.AppendICMPv6(nil, site6, own, 64, 128, 0, nil)[:41], start, out)
			return e
		}},
		{"nothing", func(t *testing.T, out *packet.Batch) *Engine {
			e := owning(t, settings())
			e.HandleHost(nil, start, out)
			return e
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out packet.Batch
			e := tt.make(t, &out)
			if _, strangers := e.Stats(); strangers != 1 || len(out.IP) != 0 {
				t.Errorf("%d strangers, sent %x", strangers, out.IP)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		want   string
	}{
		{"no prefix", func(s *Settings) { s.Prefixes = nil }, "no prefix of a NAT64 is known, so nothing can be translated"},
		{"LAN of 64 bits", func(s *Settings) { s.LAN = netip.MustParsePrefix("2001:db8:1:46::/64") },
			"the prefix of the IPv4 network, 2001:db8:1:46::/64, has not 96 bits; take one such as 2001:db8:1:46::/96"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := settings()
			tt.change(&s)
			_, err := New(s, rand.Reader)
			if err == nil {
				t.Fatal("taken")
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Error(diff)
			}
			if engine(t, settings()).Reconfigure(s) == nil {
				t.Error("a running engine took it")
			}
		})
	}
}

func TestReconfigure(t *testing.T) {
	e := owning(t, settings())
	s := settings()
	s.Prefixes = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")}
	if err := e.Reconfigure(s); err != nil {
		t.Fatal(err)
	}
	var out packet.Batch
	e.HandleHost(ping4(HostIPv4, netip.MustParseAddr("8.8.8.8"), 64), start, &out)
	if len(out.IP) != 1 || packet.IPv6(out.IP[0]).Dst() != netip.MustParseAddr("64:ff9b::808:808") {
		t.Errorf("sent %x", out.IP)
	}
	s.Address = other
	if e.Reconfigure(s) == nil {
		t.Error("another address was taken")
	}
}

// TestTooBig has packets that the host refuses to send, since their route takes 1400 bytes.
func TestTooBig(t *testing.T) {
	withLAN := settings()
	withLAN.LAN = netip.MustParsePrefix("2001:db8:1:46::/96")
	large := func(src, dst netip.Addr, payload []byte, before ...byte) []byte {
		proto := byte(packet.ProtoUDP)
		if len(before) > 0 {
			proto = 44
		}
		p := packet.AppendIPv6Header(nil, proto, 64, len(before)+len(payload), src, dst)
		return append(append(p, before...), payload...)
	}
	fragment := []byte{packet.ProtoUDP, 0, 0, 1, 0, 0, 0, 9}
	for _, tt := range []struct {
		name string
		in   []byte
		to   netip.Addr // not valid: no answer
		mtu  uint16
	}{
		{"whole", large(own, site6, make([]byte, 1440)), HostIPv4, 1380},
		{"a fragment, which is 8 less there", large(own, site6, make([]byte, 1440), fragment...), HostIPv4, 1372},
		{"of a host behind this one", large(lan6, site6, make([]byte, 1440)), lanHost, 1380},
		{"not too large", large(own, site6, make([]byte, 1360)), netip.Addr{}, 0},
		{"an error", packet.AppendICMPv6(nil, own, site6, 64, packet.ICMPv6Unreachable, 4, make([]byte, 4), make([]byte, 1400)), netip.Addr{}, 0},
		{"half a header", large(own, site6, nil)[:39], netip.Addr{}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := owning(t, withLAN)
			var out packet.Batch
			e.TooBig(tt.in, 1400, start, &out)
			if !tt.to.IsValid() {
				if len(out.IP) > 0 {
					t.Errorf("answered %x", out.IP)
				}
				return
			}
			if len(out.IP) != 1 {
				t.Fatalf("%d answers", len(out.IP))
			}
			p := out.IP[0]
			src, dst := netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20]))
			if src != ErrorIPv4 || dst != tt.to || p[20] != 3 || p[21] != 4 || binary.BigEndian.Uint16(p[26:]) != tt.mtu || netip.AddrFrom4([4]byte(p[40:44])) != tt.to {
				t.Errorf("answered %x", p)
			}
		})
	}
	t.Run("a flood", func(t *testing.T) {
		e := owning(t, withLAN)
		var out packet.Batch
		for range 3 * errorRate {
			e.TooBig(large(own, site6, make([]byte, 1440)), 1400, start, &out)
		}
		if st, _ := e.Stats(); len(out.IP) != errorRate || st.ErrorsSent != errorRate || st.ErrorsSuppressed != 2*errorRate {
			t.Errorf("%d answers, counted %d and %d", len(out.IP), st.ErrorsSent, st.ErrorsSuppressed)
		}
	})
}

func TestNoAllocation(t *testing.T) {
	e := owning(t, settings())
	var out packet.Batch
	p := ping4(HostIPv4, site4, 64)
	if n := testing.AllocsPerRun(200, func() {
		out.Reset()
		e.HandleHost(p, start, &out)
	}); n != 0 {
		t.Errorf("%v allocations a packet", n)
	}
}

func FuzzHandle(f *testing.F) {
	f.Add(solicit(other, own, 255))
	f.Add(advert(other, own))
	f.Add(packet.AppendICMPv6(nil, site6, own, 60, packet.ICMPv6EchoReply, 0, make([]byte, 4)))
	f.Add(ping4(HostIPv4, site4, 64))
	for _, p := range append(cut4(HostIPv4, site4, 9, echo4(2000), 1480), cut6(site6, own, 9, echo6(site6, own, 2000), 1232)...) {
		f.Add(p)
	}
	e := owning(f, settings())
	f.Fuzz(func(t *testing.T, in []byte) {
		var out packet.Batch
		e.HandleLink(bytes.Clone(in), start, &out)
		e.HandleHost(bytes.Clone(in), start, &out)
		if e.Claim() != Owned {
			t.Fatal("a packet took the address away")
		}
		for _, p := range out.IP {
			if v := p[0] >> 4; v != 4 && v != 6 {
				t.Fatalf("sent %x", p)
			}
		}
	})
}
