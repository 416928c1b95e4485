// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siit

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
)

var (
	host6   = netip.MustParseAddr("2001:db8:6::2")
	host4   = netip.MustParseAddr("192.0.2.2")
	mapped6 = netip.MustParseAddr("2001:db8:64::c000:202") // host4 by the prefix
	mapped4 = netip.MustParseAddr("198.51.100.6")          // host6 by the mapping
	start   = time.Unix(1_800_000_000, 0)
)

func settings(t *testing.T) Settings {
	t.Helper()
	p, err := translate.NewPrefix(netip.MustParsePrefix("2001:db8:64::/96"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := translate.ParseMapping(mapped4.String(), host6.String())
	if err != nil {
		t.Fatal(err)
	}
	table, err := translate.NewTable([]translate.Mapping{m}, false)
	if err != nil {
		t.Fatal(err)
	}
	return Settings{Translate: translate.Settings{
		Prefixes: []translate.Prefix{p}, Mappings: table,
		Own4: netip.MustParseAddr("192.0.2.1"), Own6: netip.MustParseAddr("2001:db8:6::1"),
	}}
}

func engine(t *testing.T, s Settings) *Engine {
	t.Helper()
	e, err := New(s, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// echo is a ping, whose type is that of the family, with a hop limit.
func echo(src, dst netip.Addr, hops byte) []byte {
	if src.Is6() {
		return packet.AppendICMPv6(nil, src, dst, hops, packet.ICMPv6EchoRequest, 0, []byte("abcd"))
	}
	p := make([]byte, 28, 32)
	p[0], p[3], p[8], p[9] = 0x45, 32, hops, 1
	copy(p[12:], src.AsSlice())
	copy(p[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(p[10:], ^packet.Fold(packet.Sum(0, p[:20])))
	p[20] = 8
	p = append(p, "abcd"...)
	binary.BigEndian.PutUint16(p[22:], ^packet.Fold(packet.Sum(0, p[20:])))
	return p
}

func TestBothWays(t *testing.T) {
	e := engine(t, settings(t))
	var out packet.Batch
	e.Handle(echo(host6, mapped6, 64), start, &out)
	e.Handle(echo(host4, mapped4, 64), start, &out)
	if len(out.IP) != 2 {
		t.Fatalf("%d packets came out", len(out.IP))
	}
	if p := out.IP[0]; p[0]>>4 != 4 || netip.AddrFrom4([4]byte(p[12:16])) != mapped4 || netip.AddrFrom4([4]byte(p[16:20])) != host4 || p[8] != 63 {
		t.Errorf("to IPv4: %x", p)
	}
	if p := packet.IPv6(out.IP[1]); p.Src() != mapped6 || p.Dst() != host6 || p.HopLimit() != 63 {
		t.Errorf("to IPv6: %x", p)
	}
	want := Stats{FromIPv4: 1, FromIPv6: 1, ToIPv4: 1, ToIPv6: 1}
	if diff := cmp.Diff(want, e.Stats()); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

func TestErrorsOwed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		want   []byte // ICMP types of what came out for five packets with one hop left
		dead   uint64
	}{
		{"a host's part of the rate", func(s *Settings) { s.ErrorRate = 16 }, []byte{3, 3, 3}, 2},
		{"no rate", func(*Settings) {}, []byte{3, 3, 3, 3, 3}, 0},
		{"class off", func(s *Settings) { s.Silent[HopLimit] = true }, nil, 5},
		{"other class off", func(s *Settings) { s.Silent[TooBig] = true }, []byte{3, 3, 3, 3, 3}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := settings(t)
			tt.change(&s)
			e := engine(t, s)
			var out packet.Batch
			for range 5 {
				e.Handle(echo(host6, mapped6, 1), start, &out)
			}
			var types []byte
			for _, p := range out.IP {
				types = append(types, p[40])
			}
			stats := e.Stats()
			if diff := cmp.Diff(tt.want, types); diff != "" || stats.ErrorsSuppressed != tt.dead || stats.Dropped[translate.ReasonHopLimit] != 5 {
				t.Errorf("types (-want +got):\n%s\ncounters %+v", diff, stats)
			}
		})
	}
}

// TestErrorShares: whoever asks for errors, a thousand a second, others have theirs.
func TestErrorShares(t *testing.T) {
	everybody, err := translate.ParseMapping("198.18.0.0/16", "2001:db8::/32")
	if err != nil {
		t.Fatal(err)
	}
	mappings, err := translate.NewTable([]translate.Mapping{everybody}, false)
	if err != nil {
		t.Fatal(err)
	}
	six := func(n, from int) netip.Addr {
		a := [16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 6, 15: 1}
		a[from], a[from+1] = byte(n>>8), byte(n)
		return netip.AddrFrom16(a)
	}
	for _, tt := range []struct {
		name   string
		flood  func(n int) netip.Addr
		victim string
	}{
		{"one host, another of its network", func(int) netip.Addr { return six(1, 14) }, "2001:db8:6::ffff:1"},
		{"hosts of a network, another network", func(n int) netip.Addr { return six(n, 13) }, "2001:db8:6:1::1"},
		{"networks of a /48, another site", func(n int) netip.Addr { return six(n, 6) }, "2001:db8:7::1"},
		{"forged IPv4 hosts, one of IPv6", func(n int) netip.Addr {
			return netip.AddrFrom4([4]byte{198, byte(20 + n&1), byte(n >> 4), byte(n)})
		}, "2001:db8:7::1"},
		{"IPv4 hosts of a network, another network", func(n int) netip.Addr {
			return netip.AddrFrom4([4]byte{198, 51, 100, byte(n)})
		}, "203.0.113.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := settings(t)
			s.ErrorRate, s.Translate.Mappings = 100, mappings
			e := engine(t, s)
			victim, served := netip.MustParseAddr(tt.victim), 0
			ask := func(from netip.Addr, now time.Time) int {
				to := mapped6
				if from.Is4() {
					to = netip.MustParseAddr("198.18.0.6")
				}
				var out packet.Batch
				e.Handle(echo(from, to, 1), now, &out)
				return len(out.IP)
			}
			const seconds = 5
			flooded := 0
			for ms := range seconds * 1000 {
				now := start.Add(time.Duration(ms) * time.Millisecond)
				flooded += ask(tt.flood(ms), now)
				if ms%1000 == 999 {
					served += ask(victim, now)
				}
			}
			if served != seconds {
				t.Errorf("%d of %d errors for the victim, %d for the flood", served, seconds, flooded)
			}
			if flooded == 0 || flooded > s.ErrorRate*(seconds+1) {
				t.Errorf("%d errors for the flood in %d s", flooded, seconds)
			}
		})
	}
}

// TestRouterPool: routers that no rule maps have sources of the pool, each its own (RFC
// 6791 section 5), so that a traceroute does not show several of them as one.
func TestRouterPool(t *testing.T) {
	s := settings(t)
	s.Translate.Pool4 = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/29")}
	e := engine(t, s)
	quoted := echo(mapped6, host6, 9)
	seen := make(map[[4]byte]byte)
	for i := range byte(24) {
		router := netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 0xff, 0xff, 15: i % 8})
		var out packet.Batch
		e.Handle(packet.AppendICMPv6(nil, router, mapped6, 64, packet.ICMPv6TimeExceeded, 0, make([]byte, 4), quoted), start, &out)
		if len(out.IP) != 1 {
			t.Fatalf("no error came out: %v", e.Stats().Dropped)
		}
		src := [4]byte(out.IP[0][12:16])
		if other, ok := seen[src]; ok != (i >= 8) || ok && other != i%8 {
			t.Errorf("router %d has the address %v, as has router %d", i%8, src, other)
		}
		seen[src] = i % 8
	}
}

func TestClassOf(t *testing.T) {
	four := func(typ, code byte) []byte { return append(echo(host4, mapped4, 1)[:20], typ, code, 0, 0) }
	six := func(typ byte) []byte { return packet.AppendICMPv6(nil, host6, mapped6, 64, typ, 0, nil) }
	for _, tt := range []struct {
		name  string
		error []byte
		want  Class
	}{
		{"ICMP unreachable", four(3, 13), Unreachable},
		{"ICMP fragmentation needed", four(3, 4), TooBig},
		{"ICMP time exceeded", four(11, 0), HopLimit},
		{"ICMP parameter", four(12, 0), Parameter},
		{"ICMPv6 unreachable", six(1), Unreachable},
		{"ICMPv6 too big", six(2), TooBig},
		{"ICMPv6 time exceeded", six(3), HopLimit},
		{"ICMPv6 parameter", six(4), Parameter},
	} {
		if got := ClassOf(tt.error); got != tt.want {
			t.Errorf("%s: class %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestReconfigure refuses a faulty change and keeps translating.
func TestReconfigure(t *testing.T) {
	s := settings(t)
	e := engine(t, s)
	bad := s
	bad.Translate.LowestIPv6MTU = 100
	if err := e.Reconfigure(bad); err == nil {
		t.Error("a lowest MTU of 100 was taken")
	}
	var out packet.Batch
	if e.Handle(echo(host6, mapped6, 64), start, &out); len(out.IP) != 1 {
		t.Error("the old settings are gone")
	}
	s.Translate.Mappings = nil
	if err := e.Reconfigure(s); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if e.Handle(echo(host6, mapped6, 64), start, &out); e.Stats().Dropped[translate.ReasonSourceUnmapped] != 1 {
		t.Errorf("the mapping is still there: %+v", e.Stats())
	}
}

func TestNoAllocation(t *testing.T) {
	e := engine(t, settings(t))
	var out packet.Batch
	p := echo(host6, mapped6, 64)
	if n := testing.AllocsPerRun(200, func() {
		out.Reset()
		e.Handle(p, start, &out)
	}); n != 0 {
		t.Errorf("%v allocations a packet", n)
	}
}

// TestReports: a UDP packet without a checksum is told once a minute (RFC 7915 section
// 4.5), and what no one takes stays bounded.
func TestReports(t *testing.T) {
	e := engine(t, settings(t))
	p := echo(host4, mapped4, 64)
	p[9] = 17
	copy(p[20:], []byte{0x1b, 0x58, 0, 9, 0, 12, 0, 0})
	p[10], p[11] = 0, 0
	binary.BigEndian.PutUint16(p[10:], ^packet.Fold(packet.Sum(0, p[:20])))
	take := func() (told []translate.Report) {
		e.EachReport(func(r translate.Report) { told = append(told, r) })
		return told
	}
	var out packet.Batch
	for range 3 {
		e.Handle(p, start, &out)
	}
	want := translate.Report{
		Reason: translate.ReasonUDPZeroChecksum, Proto: 17,
		Src: netip.AddrPortFrom(host4, 7000), Dst: netip.AddrPortFrom(mapped4, 9),
	}
	if told := take(); len(told) != 1 || told[0] != want {
		t.Errorf("told %+v, want %+v", told, want)
	}
	if told := take(); told != nil {
		t.Errorf("told again: %+v", told)
	}
	for i := range 2 * maxReports {
		e.Handle(p, start.Add(time.Duration(i+1)*time.Minute), &out)
	}
	if told := take(); len(told) != maxReports || told[0].Suppressed != 2 {
		t.Errorf("%d reports were kept", len(told))
	}
	if n := e.Stats().Dropped[translate.ReasonUDPZeroChecksum]; n != 3+2*maxReports {
		t.Errorf("%d dropped", n)
	}
}
