// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf_test

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/special"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/nat64bpf"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
	"github.com/isthmus-net/isthmus/translate/translatebpf/translatebpftest"
)

// What the programs do not handle passes as it came, counted by its reason.
func TestNAT64Leaves(t *testing.T) {
	w := newNATWorld(t)
	for _, transport := range transports {
		w.open(t, usual(transport))
		f := usual(transport)
		f.peer = translatebpftest.SlimServer
		w.open(t, f)
		f = usual(transport)
		f.client, f.poolPort = translatebpftest.SlimClient, translatebpftest.PoolPort+1
		w.open(t, f)
		f = usual(transport)
		f.pool, f.poolPort, f.client = translatebpftest.OwnAddr, translatebpftest.OwnPort, netip.MustParseAddr("2001:db8:1::6")
		w.open(t, f)
	}
	udp, tcp := usual(state.UDP), usual(state.TCP)
	flows := map[uint8]flow{packet.ProtoUDP: udp, packet.ProtoTCP: tcp, packet.ProtoICMPv6: usual(state.ICMP)}
	slim6, slim4 := usual(state.UDP), usual(state.UDP)
	slim6.client, slim6.poolPort = translatebpftest.SlimClient, translatebpftest.PoolPort+1
	slim4.peer = translatebpftest.SlimServer
	lost := usual(state.UDP)
	lost.peer = translatebpftest.LostServer
	stranger := usual(state.UDP)
	stranger.peer = netip.MustParseAddr("198.51.100.77")
	own := usual(state.UDP)
	own.pool, own.poolPort = translatebpftest.OwnAddr, translatebpftest.OwnPort
	hostPort, ownEcho, ownReply := own, own, own
	hostPort.poolPort = 53
	ownEcho.transport, ownReply.transport = state.ICMP, state.ICMP

	w.LeavesRows(t, w.fast, append(translatebpftest.OddForms(func(proto uint8) (six, four []byte) {
		return w.packet6(flows[proto], 40), w.packet4(flows[proto], 40)
	}), []translatebpftest.LeftRow{
		{Name: "IPv6 to elsewhere", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("2001:db8:1::9"), Want: ""},
		{Name: "IPv4 to elsewhere", Packet: w.packet4(udp, 40), Change: translatebpftest.To4("192.0.2.150"), Want: ""},
		{Name: "IPv4 to a port of the host", Packet: w.packet4(hostPort, 40), Change: nil, Want: ""},
		{Name: "ping of the host", Packet: w.packet4(ownEcho, 40), Change: nil, Want: ""},
		{Name: "reply to a ping of the host", Packet: w.packet4(ownReply, 40), Change: translatebpftest.Body(20, 0, 0, 0, 0, 0, 9), Want: ""},
		{Name: "options, to the host", Packet: w.packet4(own, 40), Change: translatebpftest.Header(0, 0x46), Want: ""},
		{Name: "fragment, to the host", Packet: w.packet4(own, 40), Change: translatebpftest.Header(6, 0x20), Want: ""},
		{Name: "another protocol, to the host", Packet: w.packet4(own, 40), Change: translatebpftest.Header(9, 47), Want: ""},
		{Name: "from pool4", Packet: w.packet4(udp, 40), Change: translatebpftest.From4("192.0.2.140"), Want: "illegal_address"},
		{Name: "from the host, by a wire", Packet: w.packet4(udp, 40), Change: translatebpftest.From4("192.0.2.1"), Want: "illegal_address"},
		{Name: "well-known prefix, private address", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("64:ff9b::10.0.0.1"), Want: "well_known_prefix_non_global"},
		{Name: "well-known prefix, shared address", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("64:ff9b::100.64.0.1"), Want: "well_known_prefix_non_global"},
		{Name: "well-known prefix, documentation", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("64:ff9b::198.51.100.7"), Want: "well_known_prefix_non_global"},
		{Name: "from pool6", Packet: w.packet6(udp, 40), Change: translatebpftest.From6("3fff:100::1"), Want: "source_in_pool6"},
		{Name: "to a client by way of pool4", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("2001:db8:64::192.0.2.140"), Want: "hairpin"},
		{Name: "to the host by way of pool6", Packet: w.packet6(udp, 40), Change: translatebpftest.To6("2001:db8:64::192.0.2.1"), Want: "hairpin"},
		{Name: "without a route", Packet: w.packet6(lost, 40), Change: nil, Want: "no_next_hop"},
		{Name: "too big for the link", Packet: w.packet6(slim4, 1000), Change: nil, Want: "too_big"},
		{Name: "too big for the IPv6 link", Packet: w.packet4(slim6, 1280), Change: nil, Want: "too_big"},
		{Name: "too big for IPv6 without DF", Packet: w.packet4(udp, 1241), Change: translatebpftest.Header(6, 0), Want: "to_be_cut"},
		{Name: "the same, of no session", Packet: translatebpftest.Header(6, 0)(w.packet4(udp, 1241)), Change: translatebpftest.Body(22, 200, 1), Want: "no_binding"},
		{Name: "without a checksum, of no session", Packet: w.packet4(udp, 40), Change: translatebpftest.Put(22, 200, 1, 0, 40, 0, 0), Want: "no_binding"},
		{Name: "too big for IPv6 without DF, of a stranger to a bound port", Packet: w.packet4(stranger, 1241), Change: translatebpftest.Header(6, 0), Want: "no_session"},
		{Name: "without a checksum, of a stranger to a bound port", Packet: w.packet4(stranger, 40), Change: translatebpftest.Put(26, 0, 0), Want: "no_session"},
		{Name: "too big for IPv6 with DF, of no session", Packet: w.packet4(udp, 1490), Change: translatebpftest.Body(22, 200, 1), Want: "no_binding"},
		{Name: "of an unknown client", Packet: w.packet6(udp, 40), Change: translatebpftest.From6("2001:db8:3::5"), Want: "no_client"},
		{Name: "to a free port of the pool", Packet: w.packet4(udp, 40), Change: translatebpftest.Body(22, 200, 1), Want: "no_binding"},
		{Name: "segment of no connection", Packet: w.packet6(tcp, 40), Change: translatebpftest.Body(42, 200, 1), Want: "no_session"},
		{Name: "segment of no connection in IPv4", Packet: w.packet4(tcp, 40), Change: translatebpftest.Body(20, 200, 1), Want: "no_session"},
	}...))
	if c := w.table.Counts(); c.Sessions != 12 {
		t.Errorf("%d sessions are there, want the 12 of before", c.Sessions)
	}
}

// Special-purpose addresses that are forwarded are no reason to leave a packet, but for
// the well-known prefix.
func TestNAT64SpecialAddresses(t *testing.T) {
	w := newNATWorld(t)
	udp := usual(state.UDP)
	w.open(t, udp)
	for name, ip := range translatebpftest.SpecialPassed(w.packet6(udp, 40), w.packet4(udp, 40)) {
		for _, at := range runtest.Hooks {
			w.translateAt(t, at, w.Frame(ip))
			if c := w.counted(t); c["illegal_address"]+c["well_known_prefix_non_global"] != 0 {
				t.Errorf("%s, %s: %v", at, name, c)
			}
		}
	}
	for _, row := range special.IPv4 {
		for _, a := range testutil.Ends(row.Prefix) {
			for _, at := range runtest.Hooks {
				w.translateAt(t, at, w.Frame(translatebpftest.To6("64:ff9b::"+a.String())(w.packet6(udp, 40))))
				c := w.counted(t)
				left := c["illegal_address"]+c["well_known_prefix_non_global"] != 0
				if want := !special.Global4(a.As4()) || netip.MustParsePrefix("192.0.0.0/24").Contains(a); left != want {
					t.Errorf("%s, %s %s by the well-known prefix: %v", at, row.Name, a, c)
				}
			}
		}
	}
}

// Frames for others, and by devices that are not served, are not looked at.
func TestNAT64LeavesOthers(t *testing.T) {
	w := newNATWorld(t)
	f := usual(state.UDP)
	w.open(t, f)
	for _, ip := range [][]byte{w.packet6(f, 40), w.packet4(f, 40)} {
		frame := w.Frame(ip)
		frame[5]++
		for _, at := range runtest.Hooks {
			if verdict, _ := w.translateAt(t, at, frame); verdict != fastpath.Punt {
				t.Errorf("at %s: %s", at, verdict)
			}
		}
		w.fast.RemoveDevice(1)
		w.fast.RemoveDevice(w.Ports[0].Index)
		for _, at := range runtest.Hooks {
			if verdict, _ := w.translateAt(t, at, w.Frame(ip)); verdict != fastpath.Punt {
				t.Errorf("not served, at %s: %s", at, verdict)
			}
		}
		w.arriveBy(t, false)
		if err := w.fast.SetDevice(fastpath.Device{Index: w.Ports[0].Index, MAC: w.Ports[0].MAC, Frames: true, Packets: true}); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.counted(t); len(got) != 0 {
		t.Errorf("counted: %v", got)
	}
}

// TestPuntLimit floods with what programs leave. Packets of sessions that the engine cuts, or
// computes the checksum of, are traffic like any other; those of strangers are not.
func TestPuntLimit(t *testing.T) {
	for _, mode := range []translate.ZeroChecksum{translate.ZeroChecksumDrop, translate.ZeroChecksumCompute} {
		w := newNATWorld(t, func(s *nat64bpf.Settings, c *translate.Settings) {
			s.PuntRate, s.PuntShare, c.UDPZeroChecksum = 1, 1, mode // one in 67 ms
		})
		f, stranger := usual(state.UDP), usual(state.UDP)
		w.open(t, f)
		stranger.peer = netip.MustParseAddr("198.51.100.77") // to a port that is bound
		unknown := "no_session"
		if mode == translate.ZeroChecksumDrop {
			unknown = "udp_zero_checksum"
		}
		for _, tt := range []struct {
			ip     []byte
			reason string
			all    bool
		}{
			{translatebpftest.Header(6, 0)(w.packet4(f, 1300)), "to_be_cut", true},
			{w.packet4(f, 1490), "too_big", false},
			{translatebpftest.Body(22, 200, 1)(translatebpftest.Header(6, 0)(w.packet4(f, 1300))), "no_binding", false},
			{translatebpftest.Header(6, 0)(w.packet4(stranger, 1300)), "no_session", false},
			{translatebpftest.Put(26, 0, 0)(w.packet4(stranger, 40)), unknown, false},
			{translatebpftest.Put(26, 0, 0)(w.packet4(f, 40)), "udp_zero_checksum", mode == translate.ZeroChecksumCompute},
		} {
			for _, at := range runtest.Hooks {
				const n = 300
				for range n {
					w.translateAt(t, at, w.Frame(tt.ip))
				}
				news := w.counted(t)
				if dropped := news["punt_limit"]; news[tt.reason]+dropped != n || (dropped == 0) != tt.all {
					t.Errorf("%s at %s, checksums %d: %v", tt.reason, at, mode, news)
				}
			}
		}
	}
}
