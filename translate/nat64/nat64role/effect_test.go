// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
	"github.com/isthmus-net/isthmus/translate/nat64"
)

// TestKeysOfHeaders sees packets by the keys that translators have alike.
func TestKeysOfHeaders(t *testing.T) {
	configtest.InEffect(t, "nat64", "pool6", "allow_non_global", "address4", "address6", "router_pool4", "router_pool6",
		"interface_object", "ipv4_mtu", "ipv6_mtu", "lowest_ipv6_mtu", "plateaus", "udp_zero_checksum",
		"traffic_class", "tos", "icmp_errors_off", "icmp_rate", "static")
	gatewaytest.Headers(t, func(t *testing.T, lines string) gatewaytest.Handle {
		return gateOf(t, "icmp_rate_per_source = 0\nstatic = [\"udp [2001:db8:1::c]:5000 192.0.2.66:5000\"]\n"+lines).raw
	})
}

// TestKeysOfPolicy sees which packets pass.
func TestKeysOfPolicy(t *testing.T) {
	for _, tt := range []struct {
		key, lines string
		play       func(g *gate)
	}{
		{configtest.InEffect(t, "nat64", "clients"), `clients = ["2001:db8:2::/48"]`, func(g *gate) { g.passes(from("2001:db8:2::c", up(1))) }},
		{configtest.InEffect(t, "nat64", "open"), "clients = [\"::/0\"]\nopen = true", func(g *gate) { g.passes(from("2001:db8:2::c", up(1))) }},
		{configtest.InEffect(t, "nat64", "pool4"), `pool4 = ["203.0.113.7 2048-4095"]`, func(g *gate) {
			if out, ok := g.in(up(1)); !ok || netip.AddrFrom4([4]byte(out[12:])) != netip.MustParseAddr("203.0.113.7") || binary.BigEndian.Uint16(out[20:]) > 4095 {
				g.t.Errorf("out comes %x", out)
			}
		}},
		{configtest.InEffect(t, "nat64", "filtering"), `filtering = "address-dependent"`, func(g *gate) {
			g.stops(down(stranger4, g.bound(up(1))))
			g.stops(pong(stranger4, g.bound(ping(1))))
		}},
		{configtest.InEffect(t, "nat64", "filtering_udp"), `filtering_udp = "address-dependent"`, func(g *gate) {
			port := g.bound(up(1))
			g.stops(down(stranger4, port))
			g.passes(down(gatewaytest.Server4, port))
		}},
		{configtest.InEffect(t, "nat64", "filtering_icmp"), `filtering_icmp = "address-dependent"`, func(g *gate) {
			id := g.bound(ping(1))
			g.stops(pong(stranger4, id))
			g.passes(pong(gatewaytest.Server4, id))
		}},
		{configtest.InEffect(t, "nat64", "filtering_tcp"), `filtering_tcp = "address-dependent"`, func(g *gate) {
			g.stops(answer(stranger4, g.bound(segment(1, syn)), syn))
			if n := g.dropped("stored_syn"); n != 1 {
				g.t.Errorf("%d SYNs wait", n)
			}
		}},
		{configtest.InEffect(t, "nat64", "drop_external_tcp"), `drop_external_tcp = true`, func(g *gate) { g.stops(answer(stranger4, g.bound(segment(1, syn)), syn)) }},
		{configtest.InEffect(t, "nat64", "drop_icmp_info"), `drop_icmp_info = true`, func(g *gate) { g.stops(ping(1)) }},
		{configtest.InEffect(t, "nat64", "drop_unmatched_tcp"), `drop_unmatched_tcp = true`, func(g *gate) {
			g.bound(segment(1, syn))
			p := segment(1, ack)
			p.Dst = "2001:db8:64::" + stranger4
			g.stops(p)
		}},
		{configtest.InEffect(t, "nat64", "error_source"), `error_source = "inner"`, func(g *gate) {
			quoted := up(g.bound(up(1)))
			quoted.Src, quoted.Dst = gatewaytest.Host4, gatewaytest.Server4
			out, ok := g.in(gatewaytest.Packet{Src: "198.51.100.77", Dst: gatewaytest.Host4, Proto: protoICMP, Payload: gatewaytest.ICMP(3, 1, 0, quoted.Bytes())})
			if !ok || netip.AddrFrom16([16]byte(out[8:])) != netip.MustParseAddr(gatewaytest.Server6) {
				g.t.Errorf("out comes %x", out)
			}
		}},
	} {
		t.Run(tt.key, func(t *testing.T) { tt.play(gateOf(t, tt.lines)) })
	}
}

// TestKeysOfTime sees how long things last.
func TestKeysOfTime(t *testing.T) {
	established := func(g *gate) uint16 {
		port := g.bound(segment(1, syn))
		g.passes(answer(gatewaytest.Server4, port, syn|ack))
		g.passes(segment(1, ack))
		return port
	}
	for _, tt := range []struct {
		key, lines string
		play       func(g *gate)
	}{
		{configtest.InEffect(t, "nat64", "udp_timeout"), `udp_timeout = "150s"`, func(g *gate) {
			port := g.bound(up(1))
			g.pass(160 * time.Second)
			g.stops(down(gatewaytest.Server4, port))
		}},
		{configtest.InEffect(t, "nat64", "icmp_timeout"), `icmp_timeout = "90s"`, func(g *gate) {
			id := g.bound(ping(1))
			g.pass(80 * time.Second)
			g.passes(pong(gatewaytest.Server4, id))
		}},
		{configtest.InEffect(t, "nat64", "inbound_refresh"), `inbound_refresh = false`, func(g *gate) {
			port := g.bound(up(1))
			g.pass(4 * time.Minute)
			g.passes(down(gatewaytest.Server4, port))
			g.pass(2 * time.Minute)
			g.stops(down(gatewaytest.Server4, port))
		}},
		{configtest.InEffect(t, "nat64", "tcp_opening_timeout"), `tcp_opening_timeout = "30s"`, func(g *gate) {
			port := g.bound(segment(1, syn))
			g.pass(time.Minute)
			g.stops(answer(gatewaytest.Server4, port, syn|ack))
		}},
		{configtest.InEffect(t, "nat64", "tcp_transitory_timeout"), `tcp_transitory_timeout = "5m"`, func(g *gate) {
			port := established(g)
			g.passes(answer(gatewaytest.Server4, port, rst))
			g.pass(270 * time.Second)
			g.passes(answer(gatewaytest.Server4, port, ack))
		}},
		{configtest.InEffect(t, "nat64", "tcp_established_timeout"), `tcp_established_timeout = "3h"`, func(g *gate) {
			established(g)
			if probes := g.pass(150 * time.Minute); len(probes) != 0 {
				g.t.Errorf("out comes %x", probes)
			}
		}},
		{configtest.InEffect(t, "nat64", "incoming_syn_timeout"), `incoming_syn_timeout = "10s"`, func(g *gate) {
			g.stops(answer(gatewaytest.Server4, 5000, syn))
			g.pass(8 * time.Second)
			if n := g.dropped("stored_syn_unanswered"); n != 0 {
				g.t.Errorf("%d SYNs were given up", n)
			}
		}},
		{configtest.InEffect(t, "nat64", "fragment_timeout"), `fragment_timeout = "5s"`, func(g *gate) {
			g.stops(fragment(1, 8))
			g.pass(4 * time.Second)
			if n := g.dropped("fragment_timeout"); n != 0 {
				g.t.Errorf("%d fragments were given up", n)
			}
		}},
		{configtest.InEffect(t, "nat64", "port_quarantine"), "port_quarantine = \"10m\"\nudp_timeout = \"2m\"\npool4 = [\"192.0.2.66 1024-1535\"]", func(g *gate) {
			g.bound(up(1))
			g.pass(7 * time.Minute)
			g.stops(from(otherNet, up(1)))
		}},
	} {
		t.Run(tt.key, func(t *testing.T) { tt.play(gateOf(t, tt.lines)) })
	}
}

// TestKeysOfRoom sees how much there is room for.
func TestKeysOfRoom(t *testing.T) {
	// sessions opens as many as pass, and returns how many these are.
	sessions := func(g *gate, n int) (open int) {
		for i := range n {
			if _, ok := g.in(up(uint16(1 + i))); ok {
				open++
			}
		}
		return open
	}
	wants := func(g *gate, what string, got, want int) {
		g.t.Helper()
		if got != want {
			g.t.Errorf("%d %s, want %d", got, what, want)
		}
	}
	clients := func(g *gate, pattern string, n int) (served int) {
		for i := range n {
			if _, ok := g.in(from(fmt.Sprintf(pattern, i+1), up(1))); ok {
				served++
			}
		}
		return served
	}
	fragments := func(g *gate, n int, from ...string) {
		for i := range n {
			for _, src := range from {
				p := fragment(uint16(i), 8)
				p.Src = src
				g.stops(p)
			}
		}
	}
	for _, tt := range []struct {
		key, lines string
		play       func(g *gate)
	}{
		{configtest.InEffect(t, "nat64", "max_sessions"), `max_sessions = 100`, func(g *gate) { wants(g, "sessions", sessions(g, 200), 100) }},
		{configtest.InEffect(t, "nat64", "max_clients"), `max_clients = 5`, func(g *gate) { wants(g, "clients", clients(g, "2001:db8:1:%x::c", 20), 5) }},
		{configtest.InEffect(t, "nat64", "max_addresses"), "max_addresses = 128\npool4 = [\"192.0.2.0/25\"]", func(g *gate) { g.passes(up(1)) }},
		{configtest.InEffect(t, "nat64", "client_length"), "client_length = 128\nmax_clients = 5", func(g *gate) { wants(g, "clients", clients(g, "2001:db8:1::%x", 20), 5) }},
		{configtest.InEffect(t, "nat64", "block_size"), "block_size = 128\nclient_blocks = 1", func(g *gate) { wants(g, "sessions", sessions(g, 200), 128) }},
		{configtest.InEffect(t, "nat64", "client_blocks"), "block_size = 64\nclient_blocks = 2", func(g *gate) { wants(g, "sessions", sessions(g, 200), 128) }},
		{configtest.InEffect(t, "nat64", "client_sessions"), "client_sessions = 50", func(g *gate) { wants(g, "sessions", sessions(g, 200), 50) }},
		{configtest.InEffect(t, "nat64", "stored_syns"), "filtering_tcp = \"address-dependent\"\nstored_syns = 3", func(g *gate) { wants(g, "SYNs gave way", synsGone(g, "stored_syns_full"), 7) }},
		{configtest.InEffect(t, "nat64", "stored_syns_per_source"), "filtering_tcp = \"address-dependent\"\nstored_syns_per_source = 4", func(g *gate) { wants(g, "SYNs gave way", synsGone(g, "stored_syns_source"), 6) }},
		{configtest.InEffect(t, "nat64", "fragment_packets"), "fragment_packets = 0", func(g *gate) {
			fragments(g, 1, gatewaytest.Host6)
			wants(g, "found no room", int(g.dropped("fragments_full")), 1)
		}},
		{configtest.InEffect(t, "nat64", "fragment_packets_per_source"), "fragment_packets_per_source = 3", func(g *gate) {
			fragments(g, 10, gatewaytest.Host6)
			wants(g, "gave way", int(g.dropped("fragments_source")), 7)
		}},
		{configtest.InEffect(t, "nat64", "fragment_memory"), "fragment_memory = 0", func(g *gate) {
			fragments(g, 1, gatewaytest.Host6)
			wants(g, "found no room", int(g.dropped("fragment_memory")), 1)
		}},
		{configtest.InEffect(t, "nat64", "fragment_memory_per_source"), "fragment_memory_per_source = 2048", func(g *gate) {
			fragments(g, 10, gatewaytest.Host6)
			wants(g, "gave way", int(g.dropped("fragments_source")), 8)
		}},
		{configtest.InEffect(t, "nat64", "icmp_rate_per_source"), "icmp_rate_per_source = 1", func(g *gate) {
			p, errors := up(1), 0
			p.Hop = 1
			for range 10 {
				errors += len(g.raw(p.Bytes()))
			}
			wants(g, "errors", errors, 2)
		}},
	} {
		t.Run(tt.key, func(t *testing.T) { tt.play(gateOf(t, tt.lines)) })
	}
}

// TestKeysOfShares sees by which ports the second client of an address comes (RFC 7422).
func TestKeysOfShares(t *testing.T) {
	for _, tt := range []struct {
		key, lines  string
		first, last uint16
	}{
		{configtest.InEffect(t, "nat64", "deterministic"), "deterministic = 14", 4608, 8191},
		{configtest.InEffect(t, "nat64", "deterministic_shares"), "deterministic = 14\ndeterministic_shares = 18", 2560, 4095},
		{configtest.InEffect(t, "nat64", "deterministic_reserved"), "deterministic = 14\ndeterministic_reserved = 33792", 35328, 36863},
	} {
		t.Run(tt.key, func(t *testing.T) {
			g := gateOf(t, "clients = [\"2001:db8:1::/60\"]\npool4 = [\"192.0.2.64/30\"]\n"+tt.lines)
			for i := range 20 {
				if port := g.bound(from("2001:db8:1:1::c", up(uint16(1+i)))); port < tt.first || port > tt.last {
					t.Errorf("port %d", port)
				}
			}
		})
	}
}

// TestKeysOfLog sees what is logged.
func TestKeysOfLog(t *testing.T) {
	configtest.InEffect(t, "nat64", "block_log", "session_log")
	g := gateOf(t, "block_log = false\nsession_log = true")
	g.passes(up(1))
	if text := g.log.String(); strings.Contains(text, "msg=block_start") || !strings.Contains(text, "msg=session_start") {
		t.Errorf("the log is\n%s", text)
	}
}

// TestKeysOnTheHost sees the device, its routes and the programs.
func TestKeysOnTheHost(t *testing.T) {
	configtest.InEffect(t, "nat64", "name", "interface", "mtu", "route", "workers", "announce", "fast_path_devices", "fast_path_linger")
	w := gatewaytest.NewWorld(t)
	text := gatewaytest.DeviceSections + `[[nat64]]
clients = ["2001:db8:6::/64"]
pool4 = ["192.0.2.64"]
max_sessions = 1024
max_clients = 64
fast_path_linger = "77s"
` + fmt.Sprintf("state_file = %q", filepath.Join(t.TempDir(), "state")) + gatewaytest.DeviceKeys
	n, err := New(*configtest.One(t, Role.Section, text).(*Settings), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.OnTheHost(t, n, func() int { _, queues := n.device.Stats(); return queues }, n.fast.Status)
	if linger := n.fast.Status().Linger; linger != 77 {
		t.Errorf("programs go on for %v s", linger)
	}
}

// TestKeepsNothing: without keep_state a session ends with its process.
func TestKeepsNothing(t *testing.T) {
	configtest.InEffect(t, "nat64", "keep_state")
	w, c := gatewaytest.NewWorld(t), testSettings(t)
	c.KeepState = false
	start(t, w, c)
	newFlow(t, w, 7000)
	if err := w.Leave(); err != nil {
		t.Fatal(err)
	}
	if n := start(t, w, c); n.adopted != 0 {
		t.Errorf("%d sessions are taken over", n.adopted)
	}
}

// TestKeysOfFTP sees where a control connection goes, and how long one of data is expected.
func TestKeysOfFTP(t *testing.T) {
	configtest.InEffect(t, "nat64", "alg_prefix", "expected_timeout")
	g := gateOf(t, "ftp = true\nalg_prefix = \"fd00:6384::/64\"\nexpected_timeout = \"100s\"")
	control := segment(1, syn)
	control.Payload = gatewaytest.TCP(1, 21, syn)
	out := g.raw(control.Bytes())
	if len(out) != 1 || out[0][0]>>4 != 6 || !netip.MustParsePrefix("fd00:6384::/64").Contains(netip.AddrFrom16([16]byte(out[0][24:]))) {
		t.Errorf("out comes %x", out)
	}
	var events nat64.Out
	at, err := g.engine.Load().Expect(netip.MustParseAddrPort("[2001:db8:1::c]:5000"), netip.MustParseAddr(gatewaytest.Server4), g.now, &events)
	if err != nil {
		t.Fatal(err)
	}
	g.pass(90 * time.Second)
	data := answer(gatewaytest.Server4, at.Port(), syn)
	data.Payload = gatewaytest.TCP(20, at.Port(), syn)
	g.passes(data)
}
