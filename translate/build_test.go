// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Packets are built here apart from the code under test, checksums by their
// definition, one word at a time.

const (
	host4   = "198.51.100.2" // on the IPv4 side
	node4   = "192.0.2.33"   // the IPv4 form of the node
	router4 = "203.0.113.9"
	testNSP = "2001:db8:64::/96"
	host6   = "2001:db8:64::198.51.100.2"
	node6   = "2001:db8:64::192.0.2.33"
	router6 = "2001:db8:64::203.0.113.9"
	own4    = "192.0.2.1"
	own6    = "2001:db8::1"
)

// fixedID identifies all packets alike.
func fixedID(id uint16) Identifier {
	return func(_, _ [4]byte) uint16 { return id }
}

// testPath has no limits that a packet could meet by chance.
var testPath = Path{IDs: fixedID(0x1234), FragmentID: 0x5678}

func sumWords(parts ...[]byte) uint16 {
	var acc uint32
	for _, b := range parts {
		for i, x := range b {
			if i%2 == 0 {
				acc += uint32(x) << 8
			} else {
				acc += uint32(x)
			}
			acc = acc>>16 + acc&0xffff
		}
	}
	return uint16(acc)
}

// v4 describes an IPv4 packet; zero fields have the usual values.
type v4 struct {
	src, dst    string
	tos, ttl    byte
	proto       byte // 0 is UDP
	id          uint16
	df, mf      bool
	offset      int // in octets
	options     []byte
	payload     []byte
	total       int  // 0 is the real one
	keepSum     bool // leave the transport checksum as it is in the payload
	badChecksum bool
}

func (p v4) bytes() []byte {
	def(&p.src, host4)
	def(&p.dst, node4)
	def(&p.ttl, 64)
	def(&p.proto, packet.ProtoUDP)
	b := make([]byte, 20+len(p.options), 20+len(p.options)+len(p.payload))
	def(&p.total, cap(b))
	b[0], b[1], b[8], b[9] = 0x40|byte(len(b)/4), p.tos, p.ttl, p.proto
	binary.BigEndian.PutUint16(b[2:], uint16(p.total))
	binary.BigEndian.PutUint16(b[4:], p.id)
	flags := uint16(p.offset / 8)
	if p.df {
		flags |= 0x4000
	}
	if p.mf {
		flags |= 0x2000
	}
	binary.BigEndian.PutUint16(b[6:], flags)
	src, dst := netip.MustParseAddr(p.src).As4(), netip.MustParseAddr(p.dst).As4()
	copy(b[12:], src[:])
	copy(b[16:], dst[:])
	copy(b[20:], p.options)
	binary.BigEndian.PutUint16(b[10:], ^sumWords(b))
	if p.badChecksum {
		b[10] ^= 1
	}
	m := slices.Clone(p.payload)
	if !p.keepSum && p.offset == 0 && !p.mf {
		pseudo := append(append([]byte{}, src[:]...), dst[:]...)
		if p.proto == protoICMP {
			pseudo = nil
		} else {
			pseudo = append(pseudo, 0, p.proto, byte(len(m)>>8), byte(len(m)))
		}
		fillSum(m, p.proto, pseudo)
	}
	return append(b, m...)
}

// v6 describes an IPv6 packet.
type v6 struct {
	src, dst     string
	trafficClass byte
	flow         uint32
	hop          byte
	proto        byte
	before       []byte // extension headers; the last one's next header is set by proto or frag
	first        byte   // the first extension header, when there is one
	frag         bool
	offset       int
	mf           bool
	id           uint32
	payload      []byte
	length       int // 0 is the real one
	keepSum      bool
}

func (p v6) bytes() []byte {
	def(&p.src, host6)
	def(&p.dst, node6)
	def(&p.hop, 63)
	def(&p.proto, packet.ProtoUDP)
	b := make([]byte, 40)
	binary.BigEndian.PutUint32(b, 6<<28|uint32(p.trafficClass)<<20|p.flow)
	src, dst := netip.MustParseAddr(p.src).As16(), netip.MustParseAddr(p.dst).As16()
	copy(b[8:], src[:])
	copy(b[24:], dst[:])
	b[6], b[7] = p.proto, p.hop
	if p.frag {
		b[6] = 44
	}
	if len(p.before) > 0 {
		b[6] = p.first
	}
	b = append(b, p.before...)
	if p.frag {
		word := uint16(p.offset)
		if p.mf {
			word |= 1
		}
		b = append(b, p.proto, 0, byte(word>>8), byte(word))
		b = binary.BigEndian.AppendUint32(b, p.id)
	}
	m := slices.Clone(p.payload)
	if !p.keepSum && p.offset == 0 && !p.mf {
		pseudo := append(append([]byte{}, src[:]...), dst[:]...)
		fillSum(m, p.proto, append(pseudo, 0, 0, byte(len(m)>>8), byte(len(m)), 0, 0, 0, p.proto))
	}
	b = append(b, m...)
	def(&p.length, len(b)-40)
	binary.BigEndian.PutUint16(b[4:], uint16(p.length))
	return b
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// fillSum writes the checksum of a transport message, if its protocol has one.
func fillSum(m []byte, proto byte, pseudo []byte) {
	at := map[byte]int{packet.ProtoTCP: 16, packet.ProtoUDP: 6, protoICMP: 2, packet.ProtoICMPv6: 2, protoDCCP: 6, protoUDPLite: 6}[proto]
	if at == 0 || len(m) < at+2 {
		return
	}
	m[at], m[at+1] = 0, 0
	sum := ^sumWords(pseudo, m)
	if sum == 0 && (proto == packet.ProtoUDP || proto == protoUDPLite) {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(m[at:], sum)
}

// udp, tcp and echo are messages whose checksum the packet fills in.
func udp(n int) []byte {
	m := []byte{0x30, 0x39, 0x00, 0x35, byte((8 + n) >> 8), byte(8 + n), 0, 0}
	return append(m, data(n)...)
}

func tcp(n int) []byte {
	m := append([]byte{0x30, 0x39, 0x00, 0x50, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 0x20, 0}, 0, 0, 0, 0)
	return append(m, data(n)...)
}

func echo(typ byte, n int) []byte { return append([]byte{typ, 0, 0, 0, 0x77, 0x01, 0, 9}, data(n)...) }

func data(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + 3)
	}
	return b
}

// icmp is an ICMP message of a type, code, second word and body.
func icmp(typ, code byte, word uint32, body ...[]byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{typ, code, 0, 0}, word)
	return append(b, slices.Concat(body...)...)
}

func prefix(t testing.TB, s string) Prefix {
	t.Helper()
	p, err := NewPrefix(netip.MustParsePrefix(s))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func table(t testing.TB, pairs ...string) *Table {
	t.Helper()
	var mappings []Mapping
	for i := 0; i < len(pairs); i += 2 {
		m, err := ParseMapping(pairs[i], pairs[i+1])
		if err != nil {
			t.Fatal(err)
		}
		mappings = append(mappings, m)
	}
	tab, err := NewTable(mappings, false)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// translator makes one with the test prefix and own addresses; change may be nil.
func translator(t testing.TB, change func(*Settings)) *Translator {
	t.Helper()
	s := Settings{
		Prefixes: []Prefix{prefix(t, testNSP)},
		Own4:     netip.MustParseAddr(own4),
		Own6:     netip.MustParseAddr(own6),
	}
	if change != nil {
		change(&s)
	}
	tr, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// run translates by the version of the packet, of which it leaves the input alone.
func run(tr *Translator, in []byte, path Path) (Result, [][]byte) {
	var out packet.Batch
	in = slices.Clone(in)
	var res Result
	if len(in) > 0 && in[0]>>4 == 4 {
		res = tr.IPv4(in, path, &out)
	} else {
		res = tr.IPv6(in, path, &out)
	}
	return res, out.IP
}

// wantPackets checks what comes out.
func wantPackets(t *testing.T, tr *Translator, path Path, in []byte, want ...[]byte) {
	t.Helper()
	res, got := run(tr, in, path)
	if res.Verdict != Translated || res.Reason != ReasonNone || res.Error != nil {
		t.Fatalf("result %v %v, error %x; want translated", res.Verdict, res.Reason, res.Error)
	}
	if diff := cmp.Diff(hexes(want), hexes(got)); diff != "" {
		t.Errorf("packets differ (-want +got):\n%s", diff)
	}
}

// wantDrop checks that nothing comes out and no error is owed.
func wantDrop(t *testing.T, tr *Translator, path Path, in []byte, reason Reason) {
	t.Helper()
	res, got := run(tr, in, path)
	if res.Verdict != Drop || res.Reason != reason || len(got) != 0 || res.Error != nil {
		t.Errorf("result %v %v with %d packets, error %x; want drop %v", res.Verdict, res.Reason, len(got), res.Error, reason)
	}
}

// wantError checks that nothing comes out but the error owed.
func wantError(t *testing.T, tr *Translator, path Path, in []byte, reason Reason, owed []byte) {
	t.Helper()
	res, got := run(tr, in, path)
	if res.Verdict != Error || res.Reason != reason || len(got) != 0 {
		t.Fatalf("result %v %v with %d packets; want error %v", res.Verdict, res.Reason, len(got), reason)
	}
	if diff := cmp.Diff(hexes([][]byte{owed}), hexes([][]byte{res.Error})); diff != "" {
		t.Errorf("error differs (-want +got):\n%s", diff)
	}
}

// hexes shows packets in lines of 16 octets.
func hexes(packets [][]byte) [][]string {
	out := make([][]string, 0, len(packets))
	for _, p := range packets {
		var lines []string
		for line := range slices.Chunk(p, 16) {
			lines = append(lines, hex.EncodeToString(line))
		}
		out = append(out, lines)
	}
	return out
}
