// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
)

// TestEveryKeyIsInEffect wants a test for every key that sees what it does, and says so.
func TestEveryKeyIsInEffect(t *testing.T) {
	shown := map[string]bool{}
	for _, f := range readSource(t) {
		if !f.test {
			continue
		}
		keys, unread := inEffect(f)
		for _, k := range keys {
			shown[k] = true
		}
		for _, at := range unread {
			t.Errorf("%s: the section and the keys must be written out, or nobody sees which they are", f.fileSet.Position(at))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(configtest.Declared())) {
		switch {
		case shown[k] && notYet[k]:
			t.Errorf("%s is shown now: take it off the list", k)
		case !shown[k] && !notYet[k]:
			t.Errorf("no test shows what the key %s does: see it in a packet, the kernel or the engine, and call configtest.InEffect there", k)
		}
	}
}

// inEffect returns the keys that the tests of a file show, each with its section in front,
// and where a call names what cannot be read.
func inEffect(f *sourceFile) (keys []string, unread []token.Pos) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if called, ok := call.Fun.(*ast.SelectorExpr); !ok || called.Sel.Name != "InEffect" || len(call.Args) < 3 {
			return true
		}
		var words []string
		for _, arg := range call.Args[1:] {
			literal, ok := arg.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				unread = append(unread, arg.Pos())
				return true
			}
			word, _ := strconv.Unquote(literal.Value) // the parser has accepted it
			words = append(words, word)
		}
		for _, k := range words[1:] {
			keys = append(keys, words[0]+"."+k)
		}
		return true
	})
	return keys, unread
}

// TestCallsAreRead shows which calls are counted.
func TestCallsAreRead(t *testing.T) {
	for _, tt := range []struct {
		name, call string
		keys       []string
		unread     int
	}{
		{"one key", `configtest.InEffect(t, "echo", "port")`, []string{"echo.port"}, 0},
		{"several", `configtest.InEffect(t, "echo", "port", "rate")`, []string{"echo.port", "echo.rate"}, 0},
		{"in a row of a table", `rows{{configtest.InEffect(t, "echo.list", "id"), 1}}`, []string{"echo.list.id"}, 0},
		{"a key that is a variable", `configtest.InEffect(t, "echo", row.key)`, nil, 1},
		{"another function", `other.Effect(t, "echo", "port")`, nil, 0},
	} {
		f, err := parse("x/x_test.go", []byte("package x\nvar _ = "+tt.call))
		if err != nil {
			t.Fatal(err)
		}
		if keys, unread := inEffect(f); !slices.Equal(keys, tt.keys) || len(unread) != tt.unread {
			t.Errorf("%s: %q, %d not read", tt.name, keys, len(unread))
		}
	}
}

// notYet are keys that no test shows yet. The list only gets shorter.
var notYet = map[string]bool{
	"teredo_server.name":                   true,
	"teredo_server.address":                true,
	"teredo_server.advertise":              true,
	"teredo_server.secondary":              true,
	"teredo_server.advertise_secondary":    true,
	"teredo_server.prefixes":               true,
	"teredo_server.port":                   true,
	"teredo_server.allow_private":          true,
	"teredo_server.rate_per_source":        true,
	"teredo_server.burst":                  true,
	"teredo_server.rate_total":             true,
	"teredo_server.mtu":                    true,
	"teredo_server.key":                    true,
	"teredo_server.keys_file":              true,
	"teredo_server.require_auth":           true,
	"teredo_server.workers":                true,
	"teredo_server.announce":               true,
	"teredo_relay.name":                    true,
	"teredo_relay.mode":                    true,
	"teredo_relay.bind":                    true,
	"teredo_relay.prefixes":                true,
	"teredo_relay.serve":                   true,
	"teredo_relay.interface":               true,
	"teredo_relay.mtu":                     true,
	"teredo_relay.route":                   true,
	"teredo_relay.address":                 true,
	"teredo_relay.max_peers":               true,
	"teredo_relay.peer_timeout":            true,
	"teredo_relay.queue_packets":           true,
	"teredo_relay.queue_bytes":             true,
	"teredo_relay.queue_total_bytes":       true,
	"teredo_relay.bubble_rate":             true,
	"teredo_relay.icmp_rate":               true,
	"teredo_relay.behind_nat":              true,
	"teredo_relay.echo_through_server":     true,
	"teredo_relay.carry_clients":           true,
	"teredo_relay.carry_rate":              true,
	"teredo_relay.carry_client_rate":       true,
	"teredo_relay.allow_private":           true,
	"teredo_relay.workers":                 true,
	"teredo_relay.announce":                true,
	"teredo_relay.keep_state":              true,
	"teredo_relay.state_file":              true,
	"teredo_relay.fast_path":               true,
	"teredo_relay.fast_path_devices":       true,
	"teredo_relay.fast_path_linger":        true,
	"teredo_client.name":                   true,
	"teredo_client.server":                 true,
	"teredo_client.secondary":              true,
	"teredo_client.port":                   true,
	"teredo_client.bind":                   true,
	"teredo_client.interface":              true,
	"teredo_client.interfaces":             true,
	"teredo_client.probe_after":            true,
	"teredo_client.on_change":              true,
	"teredo_client.on_change_timeout":      true,
	"teredo_client.prefixes":               true,
	"teredo_client.refresh_interval":       true,
	"teredo_client.qualification_timeout":  true,
	"teredo_client.qualification_attempts": true,
	"teredo_client.refresh_search":         true,
	"teredo_client.local_discovery":        true,
	"teredo_client.fallback":               true,
	"teredo_client.unsolicited":            true,
	"teredo_client.native":                 true,
	"teredo_client.random_ports":           true,
	"teredo_client.hairpin":                true,
	"teredo_client.hairpin_allow":          true,
	"teredo_client.load_reduction":         true,
	"teredo_client.opening_ttl":            true,
	"teredo_client.route_metric":           true,
	"teredo_client.max_peers":              true,
	"teredo_client.queue_packets":          true,
	"teredo_client.queue_bytes":            true,
	"teredo_client.queue_total_bytes":      true,
	"teredo_client.allow_private":          true,
	"teredo_client.key_id":                 true,
	"teredo_client.key_secret":             true,
	"teredo_client.key_secret_file":        true,
	"teredo_client.key_algorithm":          true,
	"teredo_client.port_mapping":           true,
	"teredo_client.port_mapping_file":      true,
	"teredo_client.fast_path":              true,
	"nat64.name":                           true,
	"nat64.interface":                      true,
	"nat64.mtu":                            true,
	"nat64.route":                          true,
	"nat64.workers":                        true,
	"nat64.announce":                       true,
	"nat64.clients":                        true,
	"nat64.open":                           true,
	"nat64.allow_host":                     true,
	"nat64.pool4":                          true,
	"nat64.static":                         true,
	"nat64.filtering":                      true,
	"nat64.filtering_tcp":                  true,
	"nat64.filtering_udp":                  true,
	"nat64.filtering_icmp":                 true,
	"nat64.drop_external_tcp":              true,
	"nat64.drop_icmp_info":                 true,
	"nat64.drop_unmatched_tcp":             true,
	"nat64.inbound_refresh":                true,
	"nat64.error_source":                   true,
	"nat64.udp_timeout":                    true,
	"nat64.tcp_established_timeout":        true,
	"nat64.tcp_opening_timeout":            true,
	"nat64.tcp_transitory_timeout":         true,
	"nat64.incoming_syn_timeout":           true,
	"nat64.icmp_timeout":                   true,
	"nat64.fragment_timeout":               true,
	"nat64.expected_timeout":               true,
	"nat64.port_quarantine":                true,
	"nat64.max_sessions":                   true,
	"nat64.max_clients":                    true,
	"nat64.max_addresses":                  true,
	"nat64.client_length":                  true,
	"nat64.block_size":                     true,
	"nat64.client_blocks":                  true,
	"nat64.client_sessions":                true,
	"nat64.deterministic":                  true,
	"nat64.deterministic_shares":           true,
	"nat64.deterministic_reserved":         true,
	"nat64.stored_syns":                    true,
	"nat64.stored_syns_per_source":         true,
	"nat64.fragment_packets":               true,
	"nat64.fragment_packets_per_source":    true,
	"nat64.fragment_memory":                true,
	"nat64.fragment_memory_per_source":     true,
	"nat64.pool6":                          true,
	"nat64.allow_non_global":               true,
	"nat64.address4":                       true,
	"nat64.address6":                       true,
	"nat64.router_pool4":                   true,
	"nat64.router_pool6":                   true,
	"nat64.interface_object":               true,
	"nat64.ipv4_mtu":                       true,
	"nat64.ipv6_mtu":                       true,
	"nat64.lowest_ipv6_mtu":                true,
	"nat64.plateaus":                       true,
	"nat64.udp_zero_checksum":              true,
	"nat64.traffic_class":                  true,
	"nat64.tos":                            true,
	"nat64.icmp_errors_off":                true,
	"nat64.icmp_rate":                      true,
	"nat64.icmp_rate_per_source":           true,
	"nat64.block_log":                      true,
	"nat64.session_log":                    true,
	"nat64.ftp":                            true,
	"nat64.alg_prefix":                     true,
	"nat64.ftp_connections":                true,
	"nat64.ftp_connections_per_client":     true,
	"nat64.announce_pref64":                true,
	"nat64.keep_state":                     true,
	"nat64.state_file":                     true,
	"nat64.fast_path":                      true,
	"nat64.fast_path_devices":              true,
	"nat64.fast_path_linger":               true,
	"siit.name":                            true,
	"siit.interface":                       true,
	"siit.mtu":                             true,
	"siit.route":                           true,
	"siit.workers":                         true,
	"siit.announce":                        true,
	"siit.pool4":                           true,
	"siit.eam":                             true,
	"siit.eam_file":                        true,
	"siit.eam_overlap":                     true,
	"siit.hairpin":                         true,
	"siit.fast_path":                       true,
	"siit.fast_path_devices":               true,
	"siit.pool6":                           true,
	"siit.allow_non_global":                true,
	"siit.address4":                        true,
	"siit.address6":                        true,
	"siit.router_pool4":                    true,
	"siit.router_pool6":                    true,
	"siit.interface_object":                true,
	"siit.ipv4_mtu":                        true,
	"siit.ipv6_mtu":                        true,
	"siit.lowest_ipv6_mtu":                 true,
	"siit.plateaus":                        true,
	"siit.udp_zero_checksum":               true,
	"siit.traffic_class":                   true,
	"siit.tos":                             true,
	"siit.icmp_errors_off":                 true,
	"siit.icmp_rate":                       true,
	"clat.name":                            true,
	"clat.interface":                       true,
	"clat.uplink":                          true,
	"clat.prefixes":                        true,
	"clat.resolvers":                       true,
	"clat.lan":                             true,
	"clat.route_metric":                    true,
	"clat.native":                          true,
	"dns64.name":                           true,
	"dns64.listen":                         true,
	"dns64.upstreams":                      true,
	"dns64.trusted":                        true,
	"dns64.clients":                        true,
	"dns64.open":                           true,
	"dns64.client_length":                  true,
	"dns64.prefixes":                       true,
	"dns64.ranges":                         true,
	"dns64.exclude":                        true,
	"dns64.no_synthesis_for":               true,
	"dns64.ptr_name":                       true,
	"dns64.cache_entries":                  true,
	"dns64.cache_bytes":                    true,
	"dns64.cache_max_ttl":                  true,
	"dns64.cache_negative_ttl":             true,
	"dns64.upstream_timeout":               true,
	"dns64.query_timeout":                  true,
	"dns64.mixed_case":                     true,
	"dns64.udp_size":                       true,
	"dns64.rate_per_client":                true,
	"dns64.burst":                          true,
	"dns64.max_queries":                    true,
	"dns64.max_connections":                true,
	"dns64.idle_timeout":                   true,
	"announce.method":                      true,
	"announce.check":                       true,
	"announce.check_interval":              true,
	"announce.check_timeout":               true,
	"announce.fall":                        true,
	"announce.rise":                        true,
	"announce.hold_down":                   true,
	"announce.drain_time":                  true,
	"announce.table":                       true,
	"announce.protocol":                    true,
	"announce.local_as":                    true,
	"announce.router_id":                   true,
	"announce.listen":                      true,
	"announce.next_hop4":                   true,
	"announce.next_hop6":                   true,
	"announce.med":                         true,
	"announce.local_pref":                  true,
	"announce.communities":                 true,
	"announce.hold_time":                   true,
	"announce.graceful_restart":            true,
	"announce.neighbor":                    true,
	"control.socket":                       true,
	"control.mode":                         true,
	"control.group":                        true,
	"metrics.listen":                       true,
	"log.level":                            true,
	"log.format":                           true,
	"announce.neighbor.address":            true,
	"announce.neighbor.as":                 true,
	"announce.neighbor.local":              true,
	"announce.neighbor.port":               true,
	"announce.neighbor.passive":            true,
	"announce.neighbor.password_file":      true,
	"announce.neighbor.multihop":           true,
	"announce.neighbor.ttl_security":       true,
	"teredo_server.key.id":                 true,
	"teredo_server.key.secret":             true,
	"teredo_server.key.algorithm":          true,
	"teredo_server.key.expires":            true,
}
