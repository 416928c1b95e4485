// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// natTable is the settings of the rows.
func natTable(t testing.TB) nat64.Settings {
	s := nat64.Defaults()
	for _, p := range natPrefixes[:2] {
		prefix, err := translate.NewPrefix(p)
		if err != nil {
			t.Fatal(err)
		}
		s.Translate.Prefixes = append(s.Translate.Prefixes, prefix)
	}
	s.Translate.Own4, s.Translate.Own6 = natOwn4, natOwn6
	s.Pool4 = []nat64.Range{{Prefix: netip.PrefixFrom(natPool, 31), First: 1024, Last: 65535}}
	s.Clients = []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/48")}
	s.DetourPrefix = natDetour
	return s
}

// natFTP is the port of the pool of an FTP server, the client of the rows.
const natFTP = 50021

// natCast is the flow of the rows: its binding and its session are there.
var natCast = natFlow{
	transport: state.UDP, client: natClients[0], pool: natPool, peer: natServers[0],
	x: 40001, t: 50001, z: 443,
}

func datagram(from, to uint16) []byte {
	m := []byte{0, 0, 0, 0, 0, 12, 0, 0, 'd', 'a', 't', 'a'}
	binary.BigEndian.PutUint16(m, from)
	binary.BigEndian.PutUint16(m[2:], to)
	return m
}

func segment(from, to uint16, flags byte) []byte {
	m := make([]byte, 20)
	copy(m, datagram(from, to)[:4])
	m[12], m[13] = 5<<4, flags
	return m
}

// plain4 and plain6 make packets with right checksums.
func plain4(proto byte, src, dst netip.Addr, m []byte) []byte {
	ip := []byte{0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, proto, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(ip4Len+len(m)))
	ip = slices.Concat(ip, src.AsSlice(), dst.AsSlice(), m)
	seal(ip)
	return ip
}

func plain6(next byte, src, dst netip.Addr, m []byte) []byte {
	ip := append(packet.AppendIPv6Header(nil, next, 64, len(m), src, dst), m...)
	seal(ip)
	return ip
}

// natRow is one situation: a packet, and what the programs count it as.
type natRow struct {
	name    string
	ip      []byte
	verdict fastpath.Verdict
	words   string
}

func natRows() []natRow {
	f, udp := natCast, byte(packet.ProtoUDP)
	there := natEmbed(natPrefixes[0], f.peer)
	out := plain6(udp, f.client, there, datagram(f.x, f.z))
	back := plain4(udp, f.peer, f.pool, datagram(f.z, f.t))
	sent := plain4(udp, f.pool, f.peer, datagram(f.t, f.z))
	come := plain6(udp, there, f.client, datagram(f.z, f.x))
	unreachable4 := append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, sent...)
	unreachable6 := append([]byte{1, 4, 0, 0, 0, 0, 0, 0}, come...)
	router4, alias := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("fd00:64:64:64:0:2:0:5")
	broken := func(ip []byte, at int) []byte {
		ip = slices.Clone(ip)
		ip[at] ^= 0x10
		return ip
	}
	return []natRow{
		{"a datagram", out, fastpath.Forward, "to4_forwarded"},
		{"its answer", back, fastpath.Forward, "to6_forwarded"},
		{"a datagram to another host", plain6(udp, f.client, natEmbed(natPrefixes[0], natServers[2]), datagram(f.x, 53)), fastpath.Forward, "to4_forwarded"},
		{"a datagram of another host", plain4(udp, natServers[3], f.pool, datagram(99, f.t)), fastpath.Forward, "to6_forwarded"},
		{"an error about a datagram", plain4(1, router4, f.pool, unreachable4), fastpath.Forward, "to6_forwarded"},
		{"an error about an answer", plain6(packet.ProtoICMPv6, f.client, there, unreachable6), fastpath.Forward, "to4_forwarded"},
		{"as from the pool", plain4(udp, natPool2, f.pool, datagram(99, f.t)), fastpath.Punt, "illegal_address"},
		{"an error as from the pool", plain4(1, natPool2, f.pool, unreachable4), fastpath.Punt, "illegal_address"},
		{"an error as from the detour", plain6(packet.ProtoICMPv6, alias, there, unreachable6), fastpath.Punt, "detour"},
		{"a datagram of a new port", plain6(udp, f.client, there, datagram(40002, f.z)), fastpath.Forward, "to4_forwarded"},
		{"a SYN", plain6(packet.ProtoTCP, f.client, there, segment(f.x, f.z, 2)), fastpath.Forward, "to4_forwarded"},
		{"a SYN of an FTP client", plain6(packet.ProtoTCP, f.client, there, segment(f.x, 21, 2)), fastpath.Punt, "detour"},
		{"a SYN to an FTP server", plain4(packet.ProtoTCP, f.peer, f.pool, segment(f.z, natFTP, 2)), fastpath.Punt, "no_session"},
		{"a segment of an FTP server to a client", plain6(packet.ProtoTCP, f.client, there, segment(21, natFTP, 0x10)), fastpath.Punt, "engine_session"},
		{"its answer", plain4(packet.ProtoTCP, f.peer, f.pool, segment(natFTP, natFTP, 0x10)), fastpath.Punt, "engine_session"},
		{"a segment of no connection", plain6(packet.ProtoTCP, f.client, there, segment(f.x, f.z+1, 0x10)), fastpath.Punt, "no_session"},
		{"to another client", plain6(udp, f.client, natEmbed(natPrefixes[0], natPool2), datagram(f.x, f.z)), fastpath.Punt, "hairpin"},
		{"to a private address by the well-known prefix", plain6(udp, f.client, natEmbed(translate.WellKnownPrefix, natOthers[1]), datagram(f.x, f.z)), fastpath.Punt, "well_known_prefix_non_global"},
		{"a wrong header checksum", broken(back, 10), fastpath.Drop, "bad_header_checksum"},
		{"a wrong header checksum as from the pool", broken(plain4(udp, natPool2, f.pool, datagram(99, f.t)), 10), fastpath.Drop, "bad_header_checksum"},
		{"a wrong checksum of an error", broken(plain4(1, router4, f.pool, unreachable4), 22), fastpath.Drop, "bad_icmp_checksum"},
		{"a wrong checksum of an ICMPv6 error", broken(plain6(packet.ProtoICMPv6, f.client, there, unreachable6), 42), fastpath.Drop, "bad_icmp_checksum"},
		{"not to pool6", plain6(udp, f.client, natStrangers[0], datagram(f.x, f.z)), fastpath.Punt, ""},
		{"not to pool4", plain4(udp, f.peer, natServers[3], datagram(f.z, f.t)), fastpath.Punt, ""},
	}
}

// TestNAT64Rows gives rows to programs and engine, and holds one against the other.
func TestNAT64Rows(t *testing.T) {
	for _, p := range runtest.Hooks {
		t.Run(string(p), func(t *testing.T) {
			w := newNATWorld(t, natSizes)
			r := w.runner(p)
			for _, row := range natRows() {
				t.Run(row.name, func(t *testing.T) {
					w.settle(newNATGenerator(w, 1).rng, natTable(t), false, 0)
					w.cast(t)
					w.row(t, r, row)
				})
			}
		})
	}
}

// cast makes the client of the rows, its binding and its session.
func (w *natWorld) cast(t testing.TB) {
	t.Helper()
	client := natCast.client.As16()
	var s state.Subscriber
	if o := w.table.MakeSubscriber(&client, natPool.As4(), 0, &s); o != state.Made {
		t.Fatalf("no client: %s", o)
	}
	var block state.Block
	for range 2 {
		if o := w.table.Lease(&s, state.UDP, state.MaxBlocks, 7, &block); o != state.Made {
			t.Fatalf("no block: %s", o)
		}
	}
	var b state.Binding
	in := state.Inside{Client: client, Port: natCast.x, Transport: state.UDP}
	out := state.Outside{Pool: natPool.As4(), Port: natCast.t, Transport: state.UDP}
	if o := w.table.NewStatic(in, out, &b); o != state.Made {
		t.Fatalf("no binding: %s", o)
	}
	var made state.Session
	fresh := state.Fresh{Peer: natCast.peer.As4(), PeerPort: natCast.z, Status: state.Opened, Stamp: state.Stamp(w.quiet())}
	if o := w.table.NewSession(&b, fresh, &made); o != state.Made {
		t.Fatalf("no session: %s", o)
	}
	w.castFTP(t)
}

// castFTP makes that client an FTP server, with a control connection on the detour.
func (w *natWorld) castFTP(t testing.TB) {
	t.Helper()
	var b state.Binding
	for _, transport := range []state.Transport{state.UDP, state.TCP} {
		in := state.Inside{Client: natCast.client.As16(), Port: 21, Transport: transport}
		out := state.Outside{Pool: natPool.As4(), Port: natFTP, Transport: transport}
		if o := w.table.NewStatic(in, out, &b); o != state.Made {
			t.Fatalf("no binding of an FTP server: %s", o)
		}
	}
	var made state.Session
	fresh := state.Fresh{Peer: natCast.peer.As4(), PeerPort: natFTP, Status: state.Established, Flags: state.Detoured, Stamp: state.Stamp(w.quiet())}
	if o := w.table.NewSession(&b, fresh, &made); o != state.Made {
		t.Fatalf("no control connection: %s", o)
	}
}

// row runs one.
func (w *natWorld) row(t *testing.T, r *runtest.Runner, row natRow) {
	t.Helper()
	if _, err := w.counted(); err != nil {
		t.Fatal(err)
	}
	kind := uint16(etherIPv6)
	if row.ip[0]>>4 == 4 {
		kind = etherIPv4
	}
	w.reasons = nil
	var verdict fastpath.Verdict
	w.ns.Do(t, func() (err error) {
		verdict, err = w.check(r, padded(ethernet(kind, row.ip)))
		return err
	})
	news, err := w.counted()
	if err != nil {
		t.Fatal(err)
	}
	if verdict == fastpath.Drop {
		news = w.reasons // they were read when it was dropped
	}
	want := map[string]uint64{}
	if row.words != "" {
		want[row.words] = 1
	}
	if diff := cmp.Diff(want, news); diff != "" || verdict != row.verdict {
		t.Errorf("%s; counters (-want +got):\n%s", verdict, diff)
	}
}

// FuzzNAT64 gives frames that a fuzzer makes to programs and engine.
func FuzzNAT64(f *testing.F) {
	w := newNATWorld(f, natSizes)
	for _, row := range natRows() {
		f.Add(true, row.ip)
		f.Add(false, row.ip)
	}
	runners := map[bool]*runtest.Runner{true: w.runner(runtest.InXDP), false: w.runner(runtest.InTC)}
	f.Fuzz(func(t *testing.T, xdp bool, ip []byte) {
		if len(ip) < ip6Len {
			return // a test run of tc takes no such packet
		}
		kind := uint16(etherIPv6)
		if ip[0]>>4 == 4 {
			kind = etherIPv4
		}
		w.t = t
		w.settle(newNATGenerator(w, 1).rng, natTable(t), false, 0)
		w.cast(t)
		w.ns.Do(t, func() error {
			_, err := w.check(runners[xdp], ethernet(kind, ip[:min(len(ip), 3000)]))
			return err
		})
	})
}
