// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

var (
	start    = time.Unix(1_700_000_000, 0)
	terminal = Link{Prefix: 0x20010db8_00060001, ID: 0x0a0b0c0d0e0f1011}
	global   = netip.MustParseAddr("2001:db8:6:1::77")
	stranger = netip.MustParseAddr("2001:db8:6:2::77")
	nobody   = netip.IPv6Unspecified()
)

// settings are those of the tests.
func settings() Settings {
	return Settings{
		MTU: 1400, DHCP: true, UUID: [16]byte{0: 0x01, 15: 0x10},
		DNS:     []netip.Addr{netip.MustParseAddr("2001:db8::53"), netip.MustParseAddr("2001:db8:1::53")},
		Domains: []string{"example.com", "lab.example."},
		PREF64:  []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("2001:db8:64::/48")},
	}
}

func router(t testing.TB) *Router {
	t.Helper()
	r, err := New(settings())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// goldenAdvertisement was worked out by RFC 4861 section 4.2, RFC 8106 section 5 and RFC 8781
// section 4, and confirmed by tshark. The prefixes last for 18 h, as all else.
const goldenAdvertisement = `
6000000000a83aff fe80000000000000 0000000000000001 ff02000000000000 0000000000000001
8600 88c1 40 40 fd20 00000000 00000000
0304 4040 ffffffff ffffffff 00000000 20010db8 00060001 00000000 00000000
0501 0000 00000578
1905 0000 0000fd20 20010db8 00000000 00000000 00000053 20010db8 00010000 00000000 00000053
2602 fd20 0064ff9b 00000000 00000000
2602 fd23 20010db8 00640000 00000000
1f05 0000 0000fd20 07 6578616d706c65 03 636f6d 00 03 6c6162 07 6578616d706c65 00 000000000000`

// TestOwnLink tells a link its own name servers and MTU, by advertisements and DHCP, in place of the router's; as many
// of them as a packet has room for.
func TestOwnLink(t *testing.T) {
	r, l := router(t), terminal
	l.MTU, l.DNS = 1300, []netip.Addr{netip.MustParseAddr("2001:db8:9::53")}
	var s State
	got, _ := r.Advertise(nil, l, &s, 0, start)
	p := packet.IPv6(got)
	// As golden, but for length and checksum, the MTU, and the servers, which stand behind all else.
	golden := testutil.Unhex(t, goldenAdvertisement)
	want := slices.Concat(golden[:96], golden[136:], testutil.Unhex(t, "1903 0000 0000fd20 20010db8 00090000 00000000 00000053"))
	binary.BigEndian.PutUint16(want[4:], uint16(len(want)-packet.IPv6HeaderLen))
	copy(want[42:], p[42:44])
	binary.BigEndian.PutUint16(want[94:], 1300)
	if !bytes.Equal(got, want) || packet.Checksum(p.SrcBytes(), p.DstBytes(), packet.ProtoICMPv6, p.Payload()) != 0 {
		t.Errorf("advertised\n%x, want\n%x", got, want)
	}
	question := question6(DHCPServers, MessageInformationRequest, testutil.Unhex(t, clientID+wantsDNS))
	reply, v := r.Answer(nil, l, &s, question, start)
	if own := testutil.Unhex(t, "0017 0010 20010db8 00090000 00000000 00000053"); v != DHCPReplied || !bytes.HasSuffix(reply, own) || int(binary.BigEndian.Uint16(reply[4:])) != len(reply)-packet.IPv6HeaderLen {
		t.Errorf("%v: %x", v, reply)
	}
	for range 200 {
		l.DNS = append(l.DNS, l.DNS[0])
	}
	got = r.AdvertiseFurther(nil, l, 0, packet.AllNodes)
	all := question6(DHCPServers, MessageInformationRequest, testutil.Unhex(t, clientID+wantsAll))
	if reply, _ = r.Answer(nil, l, &s, all, start.Add(time.Minute)); len(got) > packet.MinMTU || len(reply) > packet.MinMTU || len(reply) < 300 {
		t.Errorf("200 servers: %d octets advertised, %d replied", len(got), len(reply))
	}
}

func TestAdvertisement(t *testing.T) {
	var s State
	got, _ := router(t).Advertise([]byte("before"), terminal, &s, 0, start)
	if want := testutil.Unhex(t, goldenAdvertisement); string(got[6:]) != string(want) {
		t.Errorf("advertisement\n%x, want\n%x", got[6:], want)
	}
}

// TestAdvertisementWithout has neither name servers nor DHCP.
func TestAdvertisementWithout(t *testing.T) {
	r, err := New(Settings{MTU: 1280, Interval: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var s State
	got, _ := r.Advertise(nil, terminal, &s, 0, start)
	if len(got) != 40+16+32+8 || got[45] != 0 || got[46] != 1800>>8 || got[47] != 1800&0xff {
		t.Errorf("%x", got)
	}
}

// TestWithdrawn tells terminals to forget what is no more, as long as there is room to.
func TestWithdrawn(t *testing.T) {
	dns := func(n byte) netip.Addr { return netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 15: n}) }
	nat64 := func(n byte) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 11: n}), 96)
	}
	optionOf := func(a netip.Addr, lifetime string) string {
		raw := a.As16()
		return string(testutil.Unhex(t, "1903 0000 0000"+lifetime)) + string(raw[:])
	}
	prefixOf := func(p netip.Prefix, lifetime string) string {
		raw := p.Addr().As16()
		return string(testutil.Unhex(t, "2602"+lifetime)) + string(raw[:12])
	}
	says := func(s *Settings) string {
		r, err := New(*s)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := r.Advertise(nil, terminal, &State{}, 0, start)
		return string(b)
	}
	first := Settings{MTU: 1400, DNS: []netip.Addr{dns(1)}, PREF64: []netip.Prefix{nat64(1)}}
	if b := says(&first); !strings.Contains(b, optionOf(dns(1), "fd20")) || !strings.Contains(b, prefixOf(nat64(1), "fd20")) {
		t.Fatalf("it says %x", b)
	}
	second := Settings{MTU: 1400, DNS: []netip.Addr{dns(2)}}
	second.Replace(&first)
	if b := says(&second); !strings.Contains(b, optionOf(dns(1), "0000")) || !strings.Contains(b, optionOf(dns(2), "fd20")) || !strings.Contains(b, prefixOf(nat64(1), "0000")) {
		t.Errorf("what is no more is not withdrawn: %x", b)
	}
	if first.Same(&second) || !second.Same(&Settings{MTU: 1400, DNS: second.DNS}) {
		t.Error("what is withdrawn says whether settings are the same")
	}
	back := first
	back.Replace(&second)
	if b := says(&back); !strings.Contains(b, prefixOf(nat64(1), "fd20")) || strings.Contains(b, prefixOf(nat64(1), "0000")) {
		t.Errorf("one that is back: %x", b)
	}
	for n := range byte(100) { // it does not grow without a bound
		next := Settings{MTU: 1400, DNS: []netip.Addr{dns(n)}, PREF64: []netip.Prefix{nat64(n)}}
		next.Replace(&second)
		second = next
	}
	if n := strings.Count(says(&second), "\x26\x02"); n != 1+maxWithdrawn {
		t.Errorf("%d options of prefixes", n)
	}
	full := Settings{MTU: 1400, Domains: repeat(strings.Repeat("abc.", 35) + "a")}
	alone := says(&full)
	full.Replace(&second)
	if b := says(&full); b != alone {
		t.Errorf("%d octets, where there is no room: %d", len(b), len(alone))
	}
}

// TestAdvertisementsInTime shows when advertisements are sent that nobody asked for.
func TestAdvertisementsInTime(t *testing.T) {
	s := settings()
	s.Interval = time.Hour
	r, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name   string
		random uint64
		want   time.Duration
	}{
		{"soonest", 0, 45 * time.Minute},
		{"latest", uint64(15 * time.Minute), time.Hour},
		{"round again", uint64(15*time.Minute) + 1, 45 * time.Minute},
	} {
		var state State
		now := start
		for i, wait := range []time.Duration{3 * time.Second, 3 * time.Second, row.want, row.want} {
			b, next := r.Advertise(nil, terminal, &state, row.random, now)
			if len(b) == 0 || next.Sub(now) != wait {
				t.Errorf("%s: %d is followed after %v, want %v", row.name, i, next.Sub(now), wait)
			}
			now = next
		}
		if row.want >= lifetimes*time.Hour {
			t.Error(row.name, "comes after the end of the last")
		}
	}
}

// TestNoTwoAdvertisementsAtOnce keeps those to all nodes apart (RFC 4861 section 6.2.6).
func TestNoTwoAdvertisementsAtOnce(t *testing.T) {
	r := router(t)
	var s State
	r.Advertise(nil, terminal, &s, 0, start)
	if b, next := r.Advertise(nil, terminal, &s, 0, start.Add(3*time.Second-1)); len(b) > 0 || !next.Equal(start.Add(3*time.Second)) {
		t.Errorf("%d octets, next %v", len(b), next)
	}
	anonymous := solicitation(nobody)
	if _, v := r.Answer(nil, terminal, &s, anonymous, start.Add(3*time.Second-1)); v != AdvertisedLately {
		t.Errorf("to nobody in particular, 3 s after the last: %v", v)
	}
	if _, v := r.Answer(nil, terminal, &s, anonymous, start.Add(3*time.Second)); v != Advertised {
		t.Errorf("later: %v", v)
	}
	if b, _ := r.Advertise(nil, terminal, &s, 0, start.Add(4*time.Second)); len(b) > 0 {
		t.Error("beside an answer to all nodes")
	}
	if _, v := r.Answer(nil, terminal, &s, solicitation(terminal.Address()), start.Add(4*time.Second)); v != Advertised {
		t.Errorf("to the terminal alone: %v", v)
	}
	if _, v := r.Answer(nil, terminal, &s, anonymous, start.Add(-time.Hour)); v != Advertised {
		t.Errorf("after the clock was set back: %v", v)
	}
}

func TestSettingsRefused(t *testing.T) {
	long := strings.Repeat("a", 63)
	for name, change := range map[string]func(*Settings){
		"MTU below IPv6's":               func(s *Settings) { s.MTU = 1279 },
		"MTU beyond any packet":          func(s *Settings) { s.MTU = 65536 },
		"interval too short":             func(s *Settings) { s.Interval = 3 * time.Second },
		"interval beyond the lifetime":   func(s *Settings) { s.Interval = 21846 * time.Second },
		"negative interval":              func(s *Settings) { s.Interval = -1 },
		"refresh below the least":        func(s *Settings) { s.Refresh = 599 * time.Second },
		"refresh for ever":               func(s *Settings) { s.Refresh = 1 << 32 * time.Second },
		"IPv4 name server":               func(s *Settings) { s.DNS[0] = netip.MustParseAddr("192.0.2.53") },
		"IPv4 name server in IPv6":       func(s *Settings) { s.DNS[0] = netip.MustParseAddr("::ffff:192.0.2.53") },
		"no name server":                 func(s *Settings) { s.DNS[0] = netip.Addr{} },
		"unspecified name server":        func(s *Settings) { s.DNS[0] = nobody },
		"group as name server":           func(s *Settings) { s.DNS[0] = packet.AllNodes },
		"name server with a zone":        func(s *Settings) { s.DNS[0] = netip.MustParseAddr("fe80::1%lo") },
		"nine name servers":              func(s *Settings) { s.DNS = make([]netip.Addr, 9) },
		"five prefixes of NAT64s":        func(s *Settings) { s.PREF64 = make([]netip.Prefix, 5) },
		"no prefix of a NAT64":           func(s *Settings) { s.PREF64[0] = netip.MustParsePrefix("2001:db8::/95") },
		"nine domains":                   func(s *Settings) { s.Domains = make([]string, 9) },
		"empty domain":                   func(s *Settings) { s.Domains[0] = "" },
		"root as domain":                 func(s *Settings) { s.Domains[0] = "." },
		"empty label":                    func(s *Settings) { s.Domains[0] = "a..b" },
		"label of 64":                    func(s *Settings) { s.Domains[0] = long + "a.example" },
		"last label of 64":               func(s *Settings) { s.Domains[0] = "example." + long + "a" },
		"name of 256 octets":             func(s *Settings) { s.Domains[0] = strings.Repeat("abc.", 63) + "ab" },
		"more than one packet can carry": func(s *Settings) { s.Domains = repeat(strings.Repeat("abc.", 63) + "a") },
		"an advertisement can, DHCP not": func(s *Settings) { s.Domains = repeat(strings.Repeat("abc.", 32) + "a") },
	} {
		s := settings()
		change(&s)
		if _, err := New(s); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	s := settings()
	s.DHCP, s.Domains = false, repeat(strings.Repeat("abc.", 32)+"a")
	if _, err := New(s); err != nil {
		t.Error("without DHCP:", err)
	}
	s = settings()
	s.Domains, s.Interval = []string{strings.Repeat("abc.", 63) + "a", long + ".example"}, 21845*time.Second
	if _, err := New(s); err != nil {
		t.Error("longest names and interval:", err)
	}
}

func repeat(name string) (list []string) {
	for range maxDomains {
		list = append(list, name)
	}
	return list
}

func TestValidID(t *testing.T) {
	for id, want := range map[uint64]bool{
		0: false, RouterID: false, 2: true, 0x0a0b0c0d0e0f1011: true,
		0x02005efffe000000: false, 0x02005efffeffffff: false, 0x02005eff00000000: true,
		0xfdffffffffffff80: false, 0xffffffffffffffff: true, 0xfdffffffffffffff: false, 0xfdffffffffffff7f: true,
	} {
		if ValidID(id) != want {
			t.Errorf("%#x: %v", id, !want)
		}
	}
}

// TestFormer deprecates each prefix that a link had before, and says when it ends; packets from it are the
// terminal's meanwhile.
func TestFormer(t *testing.T) {
	l := terminal
	l.Former = []Former{{Prefix: 0x20010db8_00050000, More: 1, Valid: 2*time.Hour + 500*time.Millisecond}, {Prefix: 0x20010db8_00040007, Valid: 3 * time.Hour}}
	for i, options := range []string{
		"0304 4040 00001c20 00000000 00000000 20010db8 00050001 00000000 00000000",
		"0304 4040 00002a30 00000000 00000000 20010db8 00040007 00000000 00000000",
	} {
		f := l.Former[i]
		got := packet.IPv6(router(t).AdvertiseFormer(nil, l, f, f.More, packet.AllNodes))
		if option, want := got[advertisedOptions:][:32], testutil.Unhex(t, options); string(option) != string(want) {
			t.Errorf("%x, want %x", option, want)
		}
		if _, right := got.ICMPv6(); !right {
			t.Error("its checksum is wrong")
		}
	}
	for a, want := range map[string]bool{"2001:db8:5::1": true, "2001:db8:5:1::1": true, "2001:db8:5:2::1": false, "2001:db8:4:7::1": true, "2001:db8:4:8::1": false, "2001:db8:6:1::1": true} {
		if b := netip.MustParseAddr(a).As16(); l.Has(&b) != want {
			t.Errorf("%s: %v", a, !want)
		}
	}
	l.Former = l.Former[1:]
	if b := netip.MustParseAddr("2001:db8:5::1").As16(); l.Has(&b) {
		t.Error("it has no end")
	}
}
