// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/special"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/teredobpf"
)

// The cast of the table.
var (
	good      = netip.MustParseAddrPort("198.51.100.7:40000")
	other     = netip.MustParseAddrPort("203.0.113.77:1024") // behind the narrow device
	foreign   = netip.MustParseAddrPort("198.51.100.8:40001")
	moved     = netip.MustParseAddrPort("203.0.113.8:55555") // where foreign really is
	busy      = netip.MustParseAddrPort("198.51.100.9:40002")
	old       = netip.MustParseAddrPort("198.51.100.10:40003") // too old to be sent to
	quiet     = netip.MustParseAddrPort("198.51.100.14:40009") // not heard just now
	ancient   = netip.MustParseAddrPort("198.51.100.11:40004") // too old for anything
	tested    = netip.MustParseAddrPort("198.51.100.12:40005") // bubbles go to it
	unknown   = netip.MustParseAddrPort("198.51.100.13:40006")
	farAway   = netip.MustParseAddrPort("198.18.0.1:40007") // its next hop never answered
	nowhere   = netip.MustParseAddrPort("100.64.0.1:40008") // no route
	native    = netip.MustParseAddr("3fff:1::a")
	native2   = netip.MustParseAddr("3fff:2::b")      // behind the narrow device
	native3   = netip.MustParseAddr("3fff:100:2:3::") // in the second served range
	unserved  = netip.MustParseAddr("3fff:100:2:3:8000::")
	silent    = netip.MustParseAddr("3fff:3::c") // its next hop never answered
	routeless = netip.MustParseAddr("3fff:4::d")
)

// populate fills the table that engine and programs share.
func (w *world) populate() {
	w.t.Helper()
	now := w.instant()
	add := func(addr netip.Addr, mapped netip.AddrPort, age time.Duration) {
		key := addr.As16()
		if why := w.hot.Insert(&key, mapped, now.Add(-age), time.Hour, false); why != 0 {
			w.t.Fatalf("%s has no place: %d", addr, why)
		}
	}
	for _, m := range []netip.AddrPort{good, other, busy, farAway, nowhere} {
		add(client(m), m, time.Second)
	}
	add(clientOf(1, 0x1234, good), good, time.Second)
	add(client(foreign), moved, time.Second)
	add(client(old), old, 28*time.Second)
	add(client(quiet), quiet, 10*time.Second)
	add(client(ancient), ancient, 310*time.Second)
}

// stir leaves some peers to the engine.
func (w *world) stir() {
	w.t.Helper()
	key := client(busy).As16()
	w.hot.SetBusy(&key, true)
	// The engine tests a client: a packet to it waits.
	e := engine{w: w}
	e.handle(ethernet(etherIPv6, whole(packet.ProtoUDP, 64, 100, native, client(tested))))
}

// row is one situation.
type row struct {
	name  string
	frame []byte
	words string // the reason, or "" for one that is not counted
}

// counted returns the reason of a word, if there is one.
func counted(t testing.TB, word string) (teredobpf.Reason, bool) {
	t.Helper()
	if word == "" {
		return 0, false
	}
	for r := teredobpf.Reason(0); r.String() != "unknown"; r++ {
		if r.String() == word {
			return r, true
		}
	}
	t.Fatalf("there is no reason %q", word)
	return 0, false
}

// to makes a frame with a packet to a client; from one with a packet of one.
func to(dst netip.AddrPort, next, hops byte, n int) []byte {
	return padded(ethernet(etherIPv6, whole(next, hops, n, native, client(dst))))
}

// echoReply makes a frame with the answer to a connectivity test of a client.
func echoReply(dst netip.AddrPort) []byte {
	p := packet.AppendICMPv6(nil, native, client(dst), 64, packet.ICMPv6EchoReply, 0, make([]byte, 4), make([]byte, teredo.EchoNonceLen))
	return padded(ethernet(etherIPv6, p))
}

func from(src netip.AddrPort, next, hops byte, n int, dst netip.Addr) []byte {
	return fromClient(src, whole(next, hops, n, client(src), dst))
}

// edit changes a frame; edit4 makes the outer checksums right again.
func edit(f []byte, change func(f []byte)) []byte {
	change(f)
	return f
}

func edit4(f []byte, change func(ip []byte)) []byte {
	change(f[ethLen:])
	seal4(f[ethLen:])
	return f
}

const (
	tcp, udp, icmp = packet.ProtoTCP, packet.ProtoUDP, packet.ProtoICMPv6
	encap, decap   = "encap_forwarded", "decap_forwarded"
)

func encapRows() []row {
	rows := []row{
		{name: "TCP", frame: to(good, tcp, 64, 200), words: encap},
		{name: "UDP", frame: to(good, udp, 64, 201), words: encap},
		{name: "ICMPv6", frame: to(good, icmp, 64, 77), words: encap},
		{name: "hop limit 2", frame: to(good, udp, 2, 100), words: encap},
		{name: "hop limit 255", frame: to(good, udp, 255, 100), words: encap},
		{name: "hop limit 1", frame: to(good, udp, 1, 100), words: "hop_limit"},
		{name: "hop limit 0", frame: to(good, udp, 0, 100), words: "hop_limit"},
		{name: "another gateway and device", frame: to(other, udp, 64, 100), words: encap},
		{name: "the second prefix", frame: ethernet(etherIPv6, whole(tcp, 64, 99, native, clientOf(1, 0x1234, good))), words: encap},
		{name: "a foreign mapping", frame: to(foreign, tcp, 64, 100), words: encap},
		{name: "a header alone", frame: to(good, udp, 64, 48), words: encap},
		{name: "padding that is cut", frame: append(to(good, udp, 64, 60), 0xa5, 0xa5, 0xa5), words: encap},
		{name: "1280 bytes", frame: to(good, tcp, 64, 1280), words: encap},
		{name: "1281 bytes", frame: to(good, tcp, 64, 1281), words: "too_big"},
		{name: "more than the device of the next hop takes", frame: to(other, tcp, 64, 1280), words: "too_big"},
		{name: "as much as that takes", frame: to(other, tcp, 64, narrow-28), words: encap},
		{name: "SCTP", frame: to(good, protoSCTP, 64, 100), words: encap},
		{name: "ESP", frame: to(good, 50, 64, 100), words: encap},
		{name: "UDP without checksum", frame: edit(to(good, udp, 64, 100), func(f []byte) { f[60], f[61] = 0, 0 }), words: encap},
		{name: "UDP shorter than its packet", frame: edit(to(good, udp, 64, 100), func(f []byte) { f[59]-- }), words: encap},
		{name: "a wrong checksum", frame: edit(to(good, tcp, 64, 100), func(f []byte) { f[80]++ }), words: encap},
		{name: "a TCP checksum left to hardware", frame: ethernet(etherIPv6, halve(whole(tcp, 64, 333, native, client(good)))), words: encap},
		{name: "a UDP checksum left to hardware", frame: ethernet(etherIPv6, halve(whole(udp, 64, 1280, native, client(good)))), words: encap},
		{name: "a checksum left to hardware, padding", frame: padded(ethernet(etherIPv6, halve(whole(udp, 64, 48, native, client(good))))), words: encap},
		{name: "a bubble", frame: padded(ethernet(etherIPv6, teredo.AppendBubble(nil, native, client(good)))), words: "bubble"},
		{name: "a fragment header", frame: to(good, packet.ProtoFragment, 64, 100), words: "next_header"},
		{name: "hop-by-hop options", frame: to(good, packet.ProtoHopByHop, 64, 100), words: "next_header"},
		{name: "an unknown protocol", frame: to(good, 253, 64, 100), words: "next_header"},
		{name: "less than a transport header", frame: to(good, udp, 64, 47), words: "short_payload"},
		{name: "less than a TCP header", frame: to(good, tcp, 64, 59), words: "short_payload"},
		{name: "no payload", frame: to(good, udp, 64, 40), words: "short_payload"},
		{name: "a length beyond the frame", frame: edit(to(good, udp, 64, 100), func(f []byte) { f[ethLen+5] += 50 }), words: "odd_length"},
		{name: "version 4", frame: edit(to(good, udp, 64, 100), func(f []byte) { f[ethLen] = 0x45 }), words: "not_ipv6"},
		{name: "an unknown peer", frame: to(unknown, udp, 64, 100), words: "unknown_peer"},
		{name: "a peer under test", frame: to(tested, udp, 64, 100), words: "unknown_peer"},
		{name: "a busy peer", frame: to(busy, udp, 64, 100), words: "busy_peer"},
		{name: "a peer not heard for long", frame: to(old, udp, 64, 100), words: "expired_peer"},
		{name: "a peer forgotten", frame: to(ancient, udp, 64, 100), words: "expired_peer"},
		{name: "an answer to an echo test", frame: echoReply(quiet), words: "expired_peer"},
		{name: "an answer to an echo test of a peer heard just now", frame: echoReply(good), words: encap},
		{name: "a longer echo reply", frame: edit(to(quiet, icmp, 64, 65), func(f []byte) { f[54] = 129 }), words: encap},
		{name: "an echo request as long as a test", frame: edit(to(quiet, icmp, 64, 64), func(f []byte) { f[54] = 128 }), words: encap},
		{name: "UDP as long as a test", frame: to(quiet, udp, 64, 64), words: encap},
		{name: "a gateway that never answered", frame: to(farAway, udp, 64, 100), words: "no_next_hop"},
		{name: "no route", frame: to(nowhere, udp, 64, 100), words: "no_next_hop"},
		{name: "a destination not Teredo", frame: ethernet(etherIPv6, whole(udp, 64, 100, native, native2))},
		{name: "a group", frame: ethernet(etherIPv6, whole(udp, 64, 100, native, netip.MustParseAddr("ff02::1")))},
		{name: "a frame for another machine", frame: edit(to(good, udp, 64, 100), func(f []byte) { f[5]++ })},
		{name: "a broadcast frame", frame: edit(to(good, udp, 64, 100), func(f []byte) { copy(f, "\xff\xff\xff\xff\xff\xff") })},
		{name: "a VLAN", frame: vlan(to(good, udp, 64, 100))},
		{name: "another protocol than IP", frame: edit(to(good, udp, 64, 100), func(f []byte) { f[12], f[13] = 0x08, 0x06 })},
	}
	sources := []struct {
		addr, words string
	}{
		{"ff02::1", "bad_source"}, {"fe80::1", "bad_source"}, {"fec0::1", "bad_source"}, {"::", "bad_source"},
		{"::1", "bad_source"}, {"::ffff:192.0.2.1", "bad_source"},
		{client(other).String(), "teredo_to_teredo"}, {"2001:db8::1", "teredo_to_teredo"},
	}
	for _, r := range special.IPv6 {
		for _, a := range testutil.Ends(r.Prefix) {
			switch raw := a.As16(); {
			case !special.Forwarded6(&raw):
				sources = append(sources, struct{ addr, words string }{a.String(), "bad_source"})
			case !prefixes[0].Contains(a) && !prefixes[1].Contains(a):
				sources = append(sources, struct{ addr, words string }{a.String(), encap})
			}
		}
	}
	for _, src := range sources {
		a := netip.MustParseAddr(src.addr)
		rows = append(rows, row{name: "from " + src.addr, frame: ethernet(etherIPv6, whole(udp, 64, 100, a, client(good))), words: src.words})
	}
	return rows
}

func decapRows() []row {
	rows := []row{
		{name: "TCP", frame: from(good, tcp, 64, 200, native), words: decap},
		{name: "UDP", frame: from(good, udp, 64, 201, native), words: decap},
		{name: "ICMPv6", frame: from(good, icmp, 64, 77, native), words: decap},
		{name: "hop limit 2", frame: from(good, udp, 2, 100, native), words: decap},
		{name: "hop limit 1", frame: from(good, udp, 1, 100, native), words: "hop_limit"},
		{name: "hop limit 0", frame: from(good, udp, 0, 100, native), words: "hop_limit"},
		{name: "another gateway and device", frame: from(other, tcp, 64, 100, native2), words: decap},
		{name: "the second served range", frame: from(good, tcp, 64, 100, native3), words: decap},
		{name: "the second prefix", frame: fromClient(good, whole(tcp, 64, 99, clientOf(1, 0x1234, good), native)), words: decap},
		{name: "a foreign mapping", frame: fromClient(moved, whole(tcp, 64, 99, client(foreign), native)), words: decap},
		{name: "a header alone", frame: from(good, udp, 64, 48, native), words: decap},
		{name: "1280 bytes", frame: from(good, tcp, 64, 1280, native), words: decap},
		{name: "1472 bytes", frame: from(good, tcp, 64, 1472, native), words: decap},
		{name: "as much as the device of the next hop takes", frame: from(good, tcp, 64, narrow, native2), words: decap},
		{name: "more than that takes", frame: from(good, tcp, 64, narrow+1, native2), words: "too_big"},
		{name: "padding that is cut", frame: append(from(good, udp, 64, 100, native), 1, 2, 3), words: decap},
		{name: "a peer not heard for long", frame: from(old, udp, 64, 100, native), words: decap},
		{name: "no outer checksum", frame: edit(from(good, udp, 64, 100, native), func(f []byte) { f[40], f[41] = 0, 0 }), words: decap},
		{name: "a wrong outer checksum", frame: edit(from(good, udp, 64, 100, native), func(f []byte) { f[40]++ }), words: "bad_checksum"},
		{name: "damaged on the way", frame: edit(from(good, udp, 64, 100, native), func(f []byte) { f[110]++ }), words: decap},
		{name: "a wrong inner checksum, a right outer one", frame: edit4(from(good, udp, 64, 100, native), func(ip []byte) { ip[96]++ }), words: decap},
		{name: "an outer checksum left to hardware", frame: edit(from(good, udp, 64, 100, native), halve4), words: decap},
		{name: "an inner checksum left to hardware", frame: fromClient(good, halve(whole(tcp, 64, 777, client(good), native))), words: decap},
		{name: "both checksums left to hardware", frame: edit(fromClient(good, halve(whole(tcp, 64, 777, client(good), native))), halve4), words: decap},
		{name: "SCTP", frame: from(good, protoSCTP, 64, 100, native), words: decap},
		{name: "SCTP, a wrong outer checksum", frame: edit(from(good, protoSCTP, 64, 101, native), func(f []byte) { f[40]++ }), words: "bad_checksum"},
		{name: "UDP without checksum inside", frame: edit4(from(good, udp, 64, 100, native), func(ip []byte) { ip[74], ip[75] = 0, 0 }), words: decap},
		{name: "a wrong IPv4 header checksum", frame: edit(from(good, udp, 64, 100, native), func(f []byte) { f[ethLen+8]++ }), words: "bad_checksum"},
		{name: "IPv4 options", frame: options(from(good, udp, 64, 100, native)), words: "ip_options"},
		{name: "a first fragment", frame: edit4(from(good, udp, 64, 100, native), func(ip []byte) { ip[6] = 0x20 }), words: "fragment"},
		{name: "a later fragment", frame: edit4(from(good, udp, 64, 100, native), func(ip []byte) { ip[7] = 1 })},
		{name: "do not fragment", frame: edit4(from(good, udp, 64, 100, native), func(ip []byte) { ip[6] = 0x40 }), words: decap},
		{name: "an IPv4 length beyond the frame", frame: edit4(from(good, udp, 64, 100, native), func(ip []byte) { ip[3] += 9 }), words: "odd_length"},
		{name: "a UDP length beyond the packet", frame: edit(from(good, udp, 64, 100, native), func(f []byte) { f[39] += 9 }), words: "odd_length"},
		{name: "a UDP length short of the packet", frame: edit(from(good, udp, 64, 100, native), func(f []byte) { f[39] -= 9 }), words: "odd_length"},
		{name: "a UDP length of nothing", frame: edit(from(good, udp, 64, 100, native), func(f []byte) { f[38], f[39] = 0, 7 }), words: "odd_length"},
		{name: "an origin indication", frame: fromClient(good, append(teredo.AppendOrigin(nil, good), whole(udp, 64, 100, client(good), native)...)), words: "indication"},
		{name: "a trailer", frame: fromClient(good, append(whole(udp, 64, 100, client(good), native), 1, 0, 0, 0)), words: "trailer"},
		{name: "less than an IPv6 header", frame: fromClient(good, whole(udp, 64, 100, client(good), native)[:39]), words: "truncated"},
		{name: "nothing in it", frame: padded(fromClient(good, nil)), words: "truncated"},
		{name: "a length beyond the datagram", frame: edit4(from(good, udp, 64, 100, native), func(ip []byte) { ip[33] += 9 }), words: "bad_length"},
		{name: "no IPv6", frame: edit4(from(good, udp, 64, 100, native), func(ip []byte) { ip[28] = 0x45 }), words: "not_ipv6"},
		{name: "a bubble", frame: fromClient(good, teredo.AppendBubble(nil, client(good), native)), words: "bubble"},
		{name: "a bubble from elsewhere", frame: fromClient(other, teredo.AppendBubble(nil, client(good), native)), words: "bubble"},
		{name: "an unknown peer", frame: from(unknown, udp, 64, 100, native), words: "no_peer"},
		{name: "an unknown peer from elsewhere", frame: fromClient(good, whole(udp, 64, 100, client(unknown), native)), words: "mapping_mismatch"},
		{name: "a peer under test", frame: from(tested, udp, 64, 100, native), words: "unknown_peer"},
		{name: "a busy peer", frame: from(busy, udp, 64, 100, native), words: "busy_peer"},
		{name: "a peer forgotten", frame: from(ancient, udp, 64, 100, native), words: "expired_peer"},
		{name: "a peer from elsewhere", frame: fromClient(other, whole(udp, 64, 100, client(good), native)), words: "mapping_mismatch"},
		{name: "a peer from another port", frame: fromClient(netip.AddrPortFrom(good.Addr(), 1), whole(udp, 64, 100, client(good), native)), words: "mapping_mismatch"},
		{name: "a quiet peer from elsewhere", frame: fromClient(other, whole(udp, 64, 100, client(quiet), native)), words: "foreign_moved"},
		{name: "a foreign peer from the mapping in its address", frame: from(foreign, udp, 64, 100, native), words: "foreign_moved"},
		{name: "a foreign peer from elsewhere", frame: fromClient(other, whole(udp, 64, 100, client(foreign), native)), words: "foreign_moved"},
		{name: "from an address not Teredo", frame: fromClient(good, whole(udp, 64, 100, native, native2)), words: "source_not_teredo"},
		{name: "a destination not served", frame: from(good, udp, 64, 100, unserved), words: "not_served"},
		{name: "a neighbor solicitation", frame: edit4(from(good, icmp, 64, 100, native), func(ip []byte) { ip[68] = 135 }), words: "neighbor_discovery"},
		{name: "a router solicitation", frame: edit4(from(good, icmp, 64, 100, native), func(ip []byte) { ip[68] = 133 }), words: "neighbor_discovery"},
		{name: "a redirect", frame: edit4(from(good, icmp, 64, 100, native), func(ip []byte) { ip[68] = 137 }), words: "neighbor_discovery"},
		{name: "a multicast listener report", frame: edit4(from(good, icmp, 64, 100, native), func(ip []byte) { ip[68] = 143 }), words: decap},
		{name: "a fragment header", frame: from(good, packet.ProtoFragment, 64, 100, native), words: "next_header"},
		{name: "an unknown protocol", frame: from(good, 253, 64, 100, native), words: "next_header"},
		{name: "less than a transport header", frame: from(good, udp, 64, 47, native), words: "short_payload"},
		{name: "less than a TCP header", frame: from(good, tcp, 64, 59, native), words: "short_payload"},
		{name: "a gateway that never answered", frame: from(good, udp, 64, 100, silent), words: "no_next_hop"},
		{name: "no route", frame: from(good, udp, 64, 100, routeless), words: "no_next_hop"},
		{name: "from one of our own addresses", frame: fromClient(netip.AddrPortFrom(secondIP, relayPort), whole(udp, 64, 100, client(good), native)), words: "own_address"},
		{name: "to another port", frame: edit4(from(good, udp, 64, 100, native), func(ip []byte) { ip[23]++ })},
		{name: "to another address", frame: edit4(from(good, udp, 64, 100, native), func(ip []byte) { ip[19]++ })},
		{name: "to our second address", frame: edit4(from(good, udp, 64, 100, native), func(ip []byte) { copy(ip[16:], secondIP.AsSlice()) }), words: decap},
		{name: "not UDP", frame: edit4(from(good, udp, 64, 100, native), func(ip []byte) { ip[9] = tcp })},
		{name: "a frame for another machine", frame: edit(from(good, udp, 64, 100, native), func(f []byte) { f[5]++ })},
		{name: "a VLAN", frame: vlan(from(good, udp, 64, 100, native))},
	}
	for _, dst := range []struct{ addr, words string }{
		{"ff02::1", "bad_destination"}, {"ff0e::1", "bad_destination"}, {"fe80::1", "bad_destination"},
		{"::1", "bad_destination"}, {"::", "bad_destination"},
		{client(other).String(), "teredo_to_teredo"}, {"2001:db8::1", "teredo_to_teredo"},
	} {
		rows = append(rows, row{name: "to " + dst.addr, frame: from(good, udp, 64, 100, netip.MustParseAddr(dst.addr)), words: dst.words})
	}
	return rows
}

// vlan puts a VLAN tag into a frame.
func vlan(f []byte) []byte {
	return append(append(append([]byte{}, f[:12]...), 0x81, 0, 0, 5), f[12:]...)
}

// options puts four bytes of IPv4 options into a frame.
func options(f []byte) []byte {
	b := append([]byte{}, f[:ethLen+ip4Len]...)
	b = append(append(b, 1, 1, 1, 0), f[ethLen+ip4Len:]...)
	ip := b[ethLen:]
	ip[0] = 0x46
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	seal4(ip)
	return b
}

// halve4 leaves the outer UDP checksum to hardware.
func halve4(f []byte) {
	ip := f[ethLen:]
	binary.BigEndian.PutUint16(ip[26:], packet.Fold(pseudo4(ip)))
}

// TestTable gives each row to the programs and to the engine.
func TestTable(t *testing.T) {
	w := newWorld(t)
	for _, p := range runtest.Hooks {
		t.Run(string(p), func(t *testing.T) {
			w.ns.Do(t, func() error {
				w.runRows(t, p, "encap", encapRows())
				w.runRows(t, p, "decap", decapRows())
				return nil
			})
		})
	}
}

// runRows runs rows in this thread, which is in the namespace.
func (w *world) runRows(t *testing.T, p runtest.Hook, direction string, rows []row) {
	r, e := w.runner(p), &engine{w: w}
	w.counted()
	for _, row := range rows {
		w.settle()
		res, err := r.Run(row.frame)
		if err != nil {
			t.Error(err)
			continue
		}
		want, verdict := map[teredobpf.Reason]uint64{}, fastpath.Punt
		if reason, ok := counted(t, row.words); ok {
			want[reason], verdict = 1, reason.Verdict()
		}
		if diff := cmp.Diff(want, w.counted()); diff != "" {
			t.Errorf("%s, %s: counters (-want +got):\n%s", direction, row.name, diff)
		}
		if res.Verdict != verdict {
			t.Errorf("%s, %s: %s, want %s", direction, row.name, res, verdict)
		}
		if err := compare(row.frame, res, e.handle(row.frame)); err != nil {
			t.Errorf("%s, %s: %v", direction, row.name, err)
		}
	}
}
