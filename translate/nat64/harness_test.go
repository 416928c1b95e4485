// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

const (
	clientA   = "2001:db8:1::c"
	clientB   = "2001:db8:1:2::d"
	server4   = "198.51.100.2"
	server6   = "2001:db8:64::198.51.100.2"
	other4    = "198.51.100.9"
	other6    = "2001:db8:64::198.51.100.9"
	poolIP    = "203.0.113.1"
	poolIn6   = "2001:db8:64::203.0.113.1"
	ownIPv4   = "192.0.2.1"
	ownIPv6   = "2001:db8::1"
	router4   = "198.51.100.77"
	router6   = "2001:db8:64::198.51.100.77"
	routerV6  = "2001:db8:1:fff::1"
	pool6Text = "2001:db8:64::/96"
)

var (
	start     = time.Unix(1_700_000_000, 0)
	testSizes = state.Sizes{Sessions: 1024, Subscribers: 64, Addresses: 8, BlockWords: 4, SubscriberLength: 64}
)

// bench is an engine with its time and what came out of it last.
type bench struct {
	*Engine
	t    testing.TB
	now  time.Time
	out  Out
	path translate.Path

	memory state.Memory // of its table, if another may have it later
}

func prefix6(t testing.TB, s string) translate.Prefix {
	t.Helper()
	p, err := translate.NewPrefix(netip.MustParsePrefix(s))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// testSettings are those of a gateway with one address.
func testSettings(t testing.TB) Settings {
	s := Defaults()
	s.Translate.Prefixes = []translate.Prefix{prefix6(t, pool6Text)}
	s.Translate.Own4, s.Translate.Own6 = netip.MustParseAddr(ownIPv4), netip.MustParseAddr(ownIPv6)
	s.Pool4 = []Range{{Prefix: netip.MustParsePrefix(poolIP + "/32")}}
	s.Clients = []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/48")}
	return s
}

type seeded struct{ *rand.ChaCha8 }

func randomness() seeded { return seeded{rand.NewChaCha8([32]byte{1, 2, 3})} }

func newTable(t testing.TB, z state.Sizes) *state.Table {
	t.Helper()
	table, _, err := state.Open(z, state.HeapMemory(z), [state.Seeds]uint64{3, 5, 7, 9, 11, 13, 15, 17})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// engine makes one; change may be nil.
func engine(t testing.TB, change func(*Settings)) *bench {
	t.Helper()
	return engineOver(t, newTable(t, testSizes), change)
}

func engineOver(t testing.TB, table *state.Table, change func(*Settings)) *bench {
	t.Helper()
	s := testSettings(t)
	if change != nil {
		change(&s)
	}
	e, err := New(s, table, start.Add(-time.Hour), randomness())
	if err != nil {
		t.Fatal(err)
	}
	return &bench{Engine: e, t: t, now: start}
}

// in hands a packet in, of either family, and returns what comes out.
func (b *bench) in(p pkt) [][]byte {
	b.t.Helper()
	return b.raw(p.bytes())
}

func (b *bench) raw(ip []byte) [][]byte {
	b.out.Reset()
	given := slices.Clone(ip)
	if ip[0]>>4 == 4 {
		b.HandleIPv4(ip, b.path, b.now, &b.out)
	} else {
		b.HandleIPv6(ip, b.path, b.now, &b.out)
	}
	if !bytes.Equal(ip, given) {
		b.t.Error("the packet that came in was changed")
	}
	return b.kept()
}

// kept copies what came out, since the batch's memory is used again.
func (b *bench) kept() (packets [][]byte) {
	for _, ip := range b.out.IP {
		packets = append(packets, slices.Clone(ip))
	}
	return packets
}

// pass lets time go by, with a Tick whenever one is due.
func (b *bench) pass(d time.Duration) [][]byte {
	b.t.Helper()
	b.out.Reset()
	end := b.now.Add(d)
	for n := 0; ; n++ {
		next := b.Next()
		if next.After(end) {
			break
		}
		if next.After(b.now) {
			b.now = next
		}
		b.Tick(b.now, &b.out)
		if n > 1_000_000 {
			b.t.Fatal("Next is always due")
		}
	}
	b.now = end
	return b.kept()
}

// one is the only packet of those that came out.
func (b *bench) one(packets [][]byte) []byte {
	b.t.Helper()
	if len(packets) != 1 {
		b.t.Fatalf("%d packets came out, want 1; dropped %v", len(packets), b.drops())
	}
	return packets[0]
}

// none checks that a packet is dropped for a reason, and nothing comes out.
func (b *bench) refused(p pkt, why Reason) {
	b.t.Helper()
	b.refusedRaw(p.bytes(), why)
}

func (b *bench) refusedRaw(ip []byte, why Reason) {
	b.t.Helper()
	before := b.Stats().Dropped[why]
	if got := b.raw(ip); len(got) != 0 {
		b.t.Fatalf("came out:\n%s", hexes(got))
	}
	if got := b.Stats().Dropped[why] - before; got != 1 {
		b.t.Fatalf("dropped for %s %d times, want 1; all: %v", why, got, b.drops())
	}
}

// drops lists the reasons counted so far.
func (b *bench) drops() map[string]uint64 {
	m := make(map[string]uint64)
	for r, n := range b.Stats().Dropped {
		if n > 0 {
			m[Reason(r).String()] = n
		}
	}
	return m
}

// wants compares what came out with packets built by hand. Identifications of IPv4
// packets are taken over unless the packet has one.
func (b *bench) wants(got [][]byte, want ...pkt) {
	b.t.Helper()
	var expected [][]byte
	for i, p := range want {
		raw := p.bytes()
		if raw[0]>>4 == 4 && p.id == 0 && i < len(got) && got[i][0]>>4 == 4 {
			p.id = uint32(binary.BigEndian.Uint16(got[i][4:]))
			raw = p.bytes()
		}
		expected = append(expected, raw)
	}
	if diff := cmp.Diff(hexes(expected), hexes(got)); diff != "" {
		b.t.Fatalf("packets differ (-want +got):\n%s\ndropped: %v", diff, b.drops())
	}
}

func hexes(packets [][]byte) (out [][]string) {
	for _, p := range packets {
		var lines []string
		for line := range slices.Chunk(p, 16) {
			lines = append(lines, hex.EncodeToString(line))
		}
		out = append(out, lines)
	}
	return out
}

// srcPort reads the source port, or identifier, of a translated IPv4 packet.
func srcPort(ip []byte) uint16 {
	if ip[9] == icmpProto {
		return binary.BigEndian.Uint16(ip[24:])
	}
	return binary.BigEndian.Uint16(ip[20:])
}

func srcAddr(ip []byte) string { return netip.AddrFrom4([4]byte(ip[12:16])).String() }

// openUDP sends a datagram of a client and returns the port it is bound to.
func (b *bench) openUDP(client string, port uint16, to string) uint16 {
	b.t.Helper()
	got := b.one(b.in(pkt{src: client, dst: to, proto: udpProto, payload: udpMsg(port, 53, 4)}))
	if got[0]>>4 != 4 {
		b.t.Fatalf("an error came out; dropped %v", b.drops())
	}
	return srcPort(got)
}

// status returns the state of the only TCP session, or state.Free.
func (b *bench) status() state.Status {
	b.t.Helper()
	got := state.Free
	b.Sessions(Selection{}, 0, 1<<20, b.now, func(s SessionInfo) bool {
		got = s.Status
		return true
	})
	return got
}

// events returns those of a kind since the last call.
func (b *bench) events(kind EventKind) (of []Event) {
	for _, ev := range b.out.Events {
		if ev.Kind == kind {
			of = append(of, ev)
		}
	}
	return of
}
