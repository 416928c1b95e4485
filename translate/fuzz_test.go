// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// fuzzTranslators have settings that differ in what they let through.
func fuzzTranslators(t testing.TB) []*Translator {
	return []*Translator{
		translator(t, nil),
		translator(t, func(s *Settings) {
			s.UDPZeroChecksum = ZeroChecksumCompute
			s.Mappings = table(t, figure1...)
			s.InterfaceObject = true
			s.Pool4 = prefixes("203.0.113.16/28")
		}),
		translator(t, func(s *Settings) {
			s.UDPZeroChecksum = ZeroChecksumForward
			s.Prefixes = []Prefix{prefix(t, "64:ff9b::/96"), prefix(t, "2001:db8:100::/40")}
			s.NonGlobal = true
			s.Mappings = table(t, figure1...)
			s.Hairpin = HairpinSimple
			s.LowestIPv6MTU = 1500
		}),
	}
}

// fuzzPath makes links of the number: none known, usual ones, small ones.
func fuzzPath(n uint16) Path {
	p := Path{IDs: fixedID(n), Routers: NewRouters(uint64(n))}
	if n&1 != 0 {
		p.MTU4 = int(n >> 2)
	}
	if n&2 != 0 {
		p.MTU6 = int(n >> 2)
	}
	return p
}

// FuzzIPv4 hands any bytes in as IPv4 packets.
func FuzzIPv4(f *testing.F) {
	for _, in := range [][]byte{
		v4{payload: udp(9)}.bytes(),
		v4{payload: udp(9), keepSum: true}.bytes(),
		v4{proto: 6, mf: true, payload: tcp(20)}.bytes(),
		v4{offset: 1480, payload: data(1300)}.bytes(),
		v4{proto: 1, payload: echo(8, 1300)}.bytes(),
		v4{df: true, payload: udp(1472)}.bytes(),
		v4{options: []byte{131, 7, 4, 192, 0, 2, 9, 0}, payload: udp(1)}.bytes(),
		v4{src: router4, proto: 1, payload: icmp(3, 4, 1400, quoted4())}.bytes(),
		v4{src: router4, proto: 1, payload: icmp(11, 0, 32<<16, pad(quoted4(), 128), mplsObject(12))}.bytes(),
		v4{src: fourA, dst: fourB, payload: udp(9)}.bytes(),
		v4{proto: protoShim6, mf: true, payload: data(16)}.bytes(),
		ways[3].between.bytes(),
	} {
		f.Add(in, uint16(0))
		f.Add(in, uint16(1400<<2|3))
	}
	all := fuzzTranslators(f)
	f.Fuzz(func(t *testing.T, in []byte, n uint16) {
		for _, tr := range all {
			checkOutcome(t, tr, in, fuzzPath(n), 4)
			if len(in) >= 20 { // past the header's checksum
				checkOutcome(t, tr, signed4(in), fuzzPath(n), 4)
			}
		}
	})
}

// FuzzIPv6 hands any bytes in as IPv6 packets.
func FuzzIPv6(f *testing.F) {
	for _, in := range [][]byte{
		v6{payload: udp(9)}.bytes(),
		v6{payload: udp(1460)}.bytes(),
		v6{payload: udp(9), keepSum: true}.bytes(),
		v6{proto: 6, frag: true, mf: true, payload: tcp(20)}.bytes(),
		v6{frag: true, offset: 1480, payload: data(1300)}.bytes(),
		v6{frag: true, payload: udp(9)}.bytes(),
		v6{proto: 58, payload: echo(128, 1300)}.bytes(),
		v6{first: 43, before: []byte{60, 0, 0, 0, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0}, payload: udp(9)}.bytes(),
		v6{first: 43, before: []byte{17, 0, 0, 1, 0, 0, 0, 0}, payload: udp(9)}.bytes(),
		v6{src: node6, dst: host6, proto: 58, payload: icmp(2, 0, 1400, back6())}.bytes(),
		v6{src: strange, dst: host6, proto: 58, payload: icmp(3, 0, 16<<24, pad(back6(), 128), mplsObject(12))}.bytes(),
		ways[0].initial.bytes(),
		ways[2].initial.bytes(),
		ways[3].initial.bytes(),
	} {
		f.Add(in, uint16(0))
		f.Add(in, uint16(1400<<2|3))
	}
	all := fuzzTranslators(f)
	f.Fuzz(func(t *testing.T, in []byte, n uint16) {
		for _, tr := range all {
			checkOutcome(t, tr, in, fuzzPath(n), 6)
		}
	})
}

// FuzzInner puts any bytes behind the head of an ICMP error with a right checksum, so
// that they are read as a quoted packet and its extension.
func FuzzInner(f *testing.F) {
	for _, m := range [][]byte{
		icmp(11, 0, 0, quoted4()),
		icmp(3, 4, 0, quoted4()),
		icmp(12, 0, 12<<24, v4{src: node4, dst: host4, proto: 1, payload: echo(8, 4)}.bytes()),
		icmp(11, 1, 32<<16, pad(quoted4(), 128), mplsObject(12)),
		icmp(3, 3, 0, v4{proto: 1, payload: icmp(3, 3, 0, quoted4())}.bytes()),
		icmp(3, 0, 0, back6()),
		icmp(2, 0, 1400, v6{frag: true, offset: 8, payload: data(8)}.bytes()),
		icmp(1, 4, 16<<24, pad(back6(), 128), mplsObject(12)),
		icmp(3, 0, 0, v6{first: 60, before: []byte{17, 0, 1, 4, 0, 0, 0, 0}, payload: udp(9)}.bytes()),
	} {
		f.Add(m, uint16(0))
		f.Add(m, uint16(1400<<2|3))
	}
	all := fuzzTranslators(f)
	f.Fuzz(func(t *testing.T, m []byte, n uint16) {
		m = m[:min(len(m), 60000)]
		for _, tr := range all {
			checkOutcome(t, tr, v4{src: router4, proto: 1, payload: m}.bytes(), fuzzPath(n), 4)
			checkOutcome(t, tr, v6{src: node6, dst: host6, proto: 58, payload: m}.bytes(), fuzzPath(n), 6)
			checkOutcome(t, tr, v6{src: strange, dst: wkpA, proto: 58, payload: m}.bytes(), fuzzPath(n), 6)
		}
	})
}

// signed4 gives bytes the right header checksum for the header length they claim.
func signed4(in []byte) []byte {
	b := slices.Clone(in)
	n := min(len(b), max(20, int(b[0]&15)*4))
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], ^sumWords(b[:n]))
	return b
}

// checkOutcome checks what must hold whatever comes in.
func checkOutcome(t *testing.T, tr *Translator, in []byte, path Path, family int) {
	t.Helper()
	var out packet.Batch
	before := slices.Clone(in)
	var res Result
	if family == 4 {
		res = tr.IPv4(in, path, &out)
	} else {
		res = tr.IPv6(in, path, &out)
	}
	if !bytes.Equal(in, before) {
		t.Fatalf("the caller's packet was changed: %x became %x", before, in)
	}
	if (res.Verdict == Translated) != (len(out.IP) > 0) || (res.Verdict == Translated) != (res.Reason == ReasonNone) {
		t.Fatalf("%v %v with %d packets", res.Verdict, res.Reason, len(out.IP))
	}
	if (res.Verdict == Error) != (len(res.Error) > 0) {
		t.Fatalf("%v with error %x", res.Verdict, res.Error)
	}
	for _, p := range out.IP {
		checkPacket(t, in, p, path)
	}
	if res.Verdict == Error {
		checkOwed(t, in, res.Error)
	}
	if len(out.IP) == 1 {
		checkSumKept(t, in, out.IP[0])
	}
}

// checkPacket checks one translated packet: whole, one hop taken, and fit for its link.
func checkPacket(t *testing.T, in, p []byte, path Path) {
	t.Helper()
	hop := in[7]
	if in[0]>>4 == 4 {
		hop = in[8]
	}
	if p[0]>>4 == 4 {
		h, r := parseIPv4(p)
		if r != ReasonNone || h.total != len(p) || h.size != 20 || h.ttl != hop-1 || illegal4(h.src) || illegal4(h.dst) {
			t.Fatalf("%x became %x: %v", in, p, r)
		}
		if path.MTU4 != 0 && len(p) > max(68, path.MTU4) {
			t.Fatalf("%d octets on a link of %d", len(p), path.MTU4)
		}
		return
	}
	h, r := parseIPv6(p)
	if r == ReasonFragmentExtension && !misplacedIn4(h.proto) {
		r = ReasonNone // AH and its like may come in IPv4 fragments and are copied
	}
	if r != ReasonNone || 40+h.length != len(p) || h.hopLimit != hop-1 || h.segmentsLeft != 0 {
		t.Fatalf("%x became %x: %v", in, p, r)
	}
	if path.MTU6 != 0 && len(p) > max(1280, path.MTU6) {
		t.Fatalf("%d octets on a link of %d", len(p), path.MTU6)
	}
}

// checkOwed checks an error that the translator owes: bounded, right, and for the
// sender.
func checkOwed(t *testing.T, in, p []byte) {
	t.Helper()
	ok := rightSum(p) && len(p) <= 1280
	if p[0]>>4 == 4 {
		ok = ok && len(p) <= 576 && bytes.Equal(p[16:20], in[12:16]) && in[0]>>4 == 4
	} else {
		ok = ok && bytes.Equal(p[24:40], in[8:24]) && in[0]>>4 == 6
	}
	if !ok {
		t.Fatalf("%x owes %x", in, p)
	}
}

// checkSumKept: a right transport checksum stays right and a wrong one wrong, where
// the packet is plain enough to tell.
func checkSumKept(t *testing.T, in, out []byte) {
	t.Helper()
	if in[0] == 0x45 {
		in = in[:min(len(in), int(binary.BigEndian.Uint16(in[2:])))]
		if in[9] == packet.ProtoUDP && (len(in) < 28 || in[26]|in[27] == 0) {
			return
		}
	} else {
		if in[0]>>4 != 6 || in[6] == 0 || in[6] == 43 || in[6] == 44 || in[6] == 60 {
			return
		}
		in = in[:40+int(binary.BigEndian.Uint16(in[4:]))]
		if in[6] == packet.ProtoUDP && in[46]|in[47] == 0 {
			return
		}
	}
	if was, is := rightSum(in), rightSum(out); was != is {
		t.Fatalf("checksum right: %v, then %v:\n%x\n%x", was, is, in, out)
	}
}

// FuzzAddresses maps any address both ways: what a prefix embeds it extracts, and what
// a table maps to IPv6 it maps back, where no rows overlap.
func FuzzAddresses(f *testing.F) {
	f.Add([]byte{192, 0, 2, 33}, uint8(0), uint8(24), uint8(64))
	f.Add([]byte{198, 51, 100, 64}, uint8(5), uint8(0), uint8(40))
	f.Add([]byte{255, 255, 255, 255}, uint8(3), uint8(32), uint8(128))
	f.Fuzz(func(t *testing.T, raw []byte, which, bits4, bits6 uint8) {
		if len(raw) < 4 {
			return
		}
		a := netip.AddrFrom4([4]byte(raw))
		p := prefix(t, []string{"2001:db8::/32", "2001:db8::/40", "2001:db8::/48", "2001:db8::/56", "2001:db8::/64", "2001:db8::/96"}[which%6])
		if got, ok := p.Extract(p.Embed(a)); !ok || got != a {
			t.Fatalf("%s came back from %s as %s", a, p.Prefix(), got)
		}
		four, err4 := a.Prefix(int(bits4))
		six, err6 := netip.MustParseAddr("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff").Prefix(int(bits6))
		if err4 != nil || err6 != nil {
			return
		}
		tab, err := NewTable([]Mapping{{four, six}}, false)
		if err != nil {
			return
		}
		mapped, ok := tab.To6(a)
		if !ok || !six.Contains(mapped) {
			t.Fatalf("%s by %s = %s became %s, %v", a, four, six, mapped, ok)
		}
		if back, ok := tab.To4(mapped); !ok || back != a {
			t.Fatalf("%s came back from %s as %s, %v", a, mapped, back, ok)
		}
	})
}
