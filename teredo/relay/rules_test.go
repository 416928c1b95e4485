// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// rule is one packet into a relay that knows the client already, and what must
// become of it.
type rule struct {
	name   string
	change func(*Config)
	set    func(*bench) // after the client is trusted
	from   netip.AddrPort
	packet []byte
	want   []string
	drop   string // one reason, or none
}

func big(n int) []byte { return data(host, client, strings.Repeat("x", n-packet.IPv6HeaderLen)) }

func hop(limit byte, p []byte) []byte {
	packet.IPv6(p).SetHopLimit(limit)
	return p
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func clientAt(s string) netip.Addr { return teredoAddr(server, netip.MustParseAddrPort(s)) }

// another is a client that the relay does not know.
var another = clientAt("198.51.100.8:41000")

var toClients = []rule{
	{name: "known client", packet: data(host, client, "hello"), want: []string{"udp 198.51.100.7:40000 hello hop 63"}},
	{name: "known client of a host-specific relay: no hop taken", change: hostSpecific, packet: data(host, client, "hello"),
		want: []string{"udp 198.51.100.7:40000 hello hop 64"}},
	{name: "bytes behind the packet are cut off", packet: append(data(host, client, "hello"), "pad"...),
		want: []string{"udp 198.51.100.7:40000 hello hop 63"}},
	{name: "unknown client", packet: data(host, another, "hello"), want: []string{"udp 203.0.113.1:3544 bubble"}},
	{name: "unknown client, relay behind a NAT", change: func(c *Config) { c.BehindNAT = true }, packet: data(host, another, "hello"),
		want: []string{"udp 203.0.113.1:3544 bubble", "udp 198.51.100.8:41000 bubble"}},
	{name: "full size", packet: big(1280), want: []string{"udp 198.51.100.7:40000 " + strings.Repeat("x", 1240) + " hop 63"}},

	{name: "header cut short", packet: data(host, client, "")[:39], drop: "truncated"},
	{name: "nothing", packet: nil, drop: "truncated"},
	{name: "IPv4", packet: append([]byte{0x45}, make([]byte, 60)...), drop: "not_ipv6"},
	{name: "payload shorter than announced", packet: data(host, client, "hello")[:44], drop: "bad_length"},
	{name: "native destination", packet: data(host, relayIPv6, "hello"), drop: "destination_not_teredo"},
	{name: "multicast of the own host", packet: data(host, addr("ff02::1"), "hello")},
	{name: "link-local source", packet: data(addr("fe80::1"), client, "hello"), drop: "bad_source"},
	{name: "site-local source", packet: data(addr("fec0::1"), client, "hello"), drop: "bad_source"},
	{name: "multicast source", packet: data(addr("ff02::1"), client, "hello"), drop: "bad_source"},
	{name: "unspecified source", packet: data(addr("::"), client, "hello"), drop: "bad_source"},
	{name: "loopback source", packet: data(addr("::1"), client, "hello"), drop: "bad_source"},
	{name: "IPv4-mapped source", packet: data(addr("::ffff:192.0.2.1"), client, "hello"), drop: "bad_source"},
	{name: "Teredo source", packet: data(another, client, "hello"), drop: "teredo_to_teredo"},
	{name: "private mapped address", packet: data(host, clientAt("10.0.0.1:40000"), "hello"), drop: "mapped_not_global"},
	{name: "multicast mapped address", packet: data(host, clientAt("224.0.0.1:40000"), "hello"), drop: "mapped_not_global"},
	{name: "mapped port 0", packet: data(host, clientAt("198.51.100.7:0"), "hello"), drop: "mapped_not_global"},
	{name: "broadcast address of an own subnet", set: func(b *bench) { b.r.cfg.Global.Broadcasts = []netip.Addr{addr("198.51.100.255")} },
		packet: data(host, clientAt("198.51.100.255:40000"), "hello"), drop: "mapped_not_global"},
	{name: "private mapped address, oversized: silence", packet: data(host, clientAt("10.0.0.1:40000"), strings.Repeat("x", 1300)), drop: "mapped_not_global"},
	{name: "private server address", packet: data(host, teredoAddr(addr("192.168.1.1"), mapped), "hello"), drop: "server_not_global"},
	{name: "mapped to its own server's port", packet: data(host, clientAt("203.0.113.1:3544"), "hello"), drop: "mapped_to_server"},
	{name: "mapped to the relay", packet: data(host, clientAt("192.0.2.3:40000"), "hello"), drop: "own_address"},
	{name: "one byte too long", packet: big(1281), want: []string{"ip error 2/0 2001:db8::beef -> 2001:db8::1"}, drop: "too_big"},
	{name: "last hop", packet: hop(1, data(host, client, "hello")), want: []string{"ip error 3/0 2001:db8::beef -> 2001:db8::1"}, drop: "hop_limit"},
	{name: "no hop", packet: hop(0, data(host, client, "hello")), want: []string{"ip error 3/0 2001:db8::beef -> 2001:db8::1"}, drop: "hop_limit"},
	{name: "last hop but one", packet: hop(2, data(host, client, "hello")), want: []string{"udp 198.51.100.7:40000 hello hop 1"}},
	{name: "last hop of an error: no error about an error",
		packet: packet.AppendICMPv6(nil, host, client, 1, packet.ICMPv6TimeExceeded, 0, make([]byte, 44)), drop: "hop_limit"},
	{name: "last hop, no address to answer from", set: func(b *bench) { b.r.cfg.Address = netip.Addr{} },
		packet: hop(1, data(host, client, "hello")), drop: "hop_limit"},
	{name: "queue full", change: func(c *Config) { c.QueueBytes = 40 }, packet: data(host, another, "hello"),
		want: []string{"udp 203.0.113.1:3544 bubble"}, drop: "queue_full"},
	{name: "no bubble left in all", change: func(c *Config) { c.BubbleRate = 16 },
		set: spendBubbles, packet: data(host, another, "hello"), drop: "bubble_rate"},
}

// spendBubbles uses up the common budget of bubbles.
func spendBubbles(b *bench) {
	for b.r.bubbleBucket.Allow(b.r.bubbleLimit, b.now) {
	}
}

func hostSpecific(c *Config) { c.Host = true }

var fromClients = []rule{
	{name: "known client", from: mapped, packet: data(client, host, "hello"), want: []string{"ip hello hop 63"}},
	{name: "known client of a host-specific relay", change: hostSpecific, from: mapped, packet: data(client, host, "hello"), want: []string{"ip hello hop 64"}},
	{name: "stranger to a host-specific relay", change: hostSpecific, from: netip.MustParseAddrPort("198.51.100.8:41000"),
		packet: data(another, host, "hello"), want: []string{"ip hello hop 64"}},
	{name: "client at the number of our own port", change: hostSpecific, from: netip.MustParseAddrPort("198.51.100.8:3545"),
		packet: data(clientAt("198.51.100.8:3545"), host, "hello"), want: []string{"ip hello hop 64"}},
	{name: "trailers are passed over", from: mapped, packet: append(data(client, host, "hello"), 1, 4, 0, 0, 0, 1), want: []string{"ip hello hop 63"}},
	{name: "origin indication is passed over", from: mapped, packet: append(teredo.AppendOrigin(nil, mapped), data(client, host, "hello")...),
		want: []string{"ip hello hop 63"}},
	{name: "bubble ends here", from: mapped, packet: bubble(client, host)},
	{name: "bubble with hop limit 0", from: mapped, packet: hop(0, bubble(client, host))},
	{name: "last hop", from: mapped, packet: hop(1, data(client, host, "hello")),
		want: []string{"udp 198.51.100.7:40000 error 3/0 2001:db8::beef -> " + client.String()}, drop: "hop_limit"},

	{name: "nothing", from: mapped, packet: nil, drop: "truncated"},
	{name: "indication cut short", from: mapped, packet: []byte{0, 0, 1, 2, 3, 4, 5}, drop: "truncated"},
	{name: "header cut short", from: mapped, packet: data(client, host, "")[:39], drop: "truncated"},
	{name: "two origins", from: mapped, packet: teredo.AppendOrigin(teredo.AppendOrigin(nil, mapped), mapped), drop: "indication_order"},
	{name: "IPv4", from: mapped, packet: append([]byte{0x45}, make([]byte, 60)...), drop: "not_ipv6"},
	{name: "payload shorter than announced", from: mapped, packet: data(client, host, "hello")[:44], drop: "bad_length"},
	{name: "native source", from: mapped, packet: data(host, relayIPv6, "hello"), drop: "source_not_teredo"},
	{name: "other source port", from: foreign, packet: data(client, host, "hello"), drop: "mapping_mismatch"},
	{name: "other source address", from: netip.MustParseAddrPort("198.51.100.8:40000"), packet: data(client, host, "hello"), drop: "mapping_mismatch"},
	{name: "unknown client with a foreign mapping", from: foreign, packet: data(another, host, "hello"), drop: "mapping_mismatch"},
	{name: "bubble from a foreign mapping, but nothing was asked", from: foreign,
		packet: bubble(client, newBench(quiet{}).bubbleSource(client)), drop: "mapping_mismatch"},
	{name: "unknown client", from: netip.MustParseAddrPort("198.51.100.8:41000"), packet: data(another, host, "hello"), drop: "no_peer"},
	{name: "stranger with a private address to a host-specific relay", change: hostSpecific, from: netip.MustParseAddrPort("10.0.0.1:40000"),
		packet: data(clientAt("10.0.0.1:40000"), host, "hello"), drop: "mapped_not_global"},
	{name: "from our own socket", change: hostSpecific, from: netip.AddrPortFrom(relayIPv4, 3545),
		packet: data(clientAt("192.0.2.3:3545"), host, "hello"), drop: "own_address"},
	{name: "from another port of our own address", change: hostSpecific, from: netip.AddrPortFrom(relayIPv4, 99),
		packet: data(clientAt("192.0.2.3:99"), host, "hello"), drop: "own_address"},
	{name: "link-local destination", from: mapped, packet: data(client, addr("fe80::1"), "hello"), drop: "bad_destination"},
	{name: "multicast destination", from: mapped, packet: data(client, addr("ff0e::1"), "hello"), drop: "bad_destination"},
	{name: "loopback destination", from: mapped, packet: data(client, addr("::1"), "hello"), drop: "bad_destination"},
	{name: "Teredo destination", from: mapped, packet: data(client, another, "hello"), drop: "teredo_to_teredo"},
	{name: "neighbor solicitation", from: mapped, packet: packet.AppendICMPv6(nil, client, host, 255, 135, 0, make([]byte, 20)), drop: "neighbor_discovery"},
	{name: "destination outside the served ranges", from: mapped, packet: data(client, addr("fd00::1"), "hello"), drop: "not_served"},
}

// quiet lets tables use a bench where no test runs yet.
type quiet struct{ testing.TB }

func (quiet) Helper() {}

// elsewhere are the reasons whose rows are in other tests, since they need a history.
var elsewhere = map[string]string{
	"bad_key": "TestSymmetricClient", "key_rate": "TestKeyRate",
	"peer_silent": "TestNoAnswer", "no_answer": "TestNoAnswer", "peer_evicted": "TestEviction",
	"not_bound": "TestCarryRefusals", "no_binding": "TestCarryRefusals", "carry_client_rate": "TestCarryRefusals",
	"carry_rate": "TestCarryRefusals", "bad_binding": "TestCarryRefusals", "binding_rate": "TestCarryRefusals",
	"bindings_full": "TestBindingsFull",
	"source_rate":   "TestNewPeersPerSource", "server_rate": "TestNewPeersPerServer",
	"stranger_rate": "TestStrangerCannotTakeTheTable",
	"peer_rate":     "TestHostPeersPerSecond", "table_full": "TestFullTable",
	"foreign_full": "TestForeignFull", "mapping_full": "TestOneMappingCannotTakeTheTable",
}

func TestRules(t *testing.T) {
	run := func(t *testing.T, rules []rule, hand func(*bench, *rule) []string) {
		for _, tt := range rules {
			t.Run(tt.name, func(t *testing.T) {
				b := newBench(t, func(c *Config) {
					if tt.change != nil {
						tt.change(c)
					}
				})
				queueBytes := b.r.budget.QueueBytes
				b.r.budget.QueueBytes = 1 << 16
				b.trust()
				b.r.budget.QueueBytes = queueBytes
				if tt.set != nil {
					tt.set(b)
				}
				b.want("output", hand(b, &tt), tt.want...)
				var drops []string
				if tt.drop != "" {
					drops = []string{tt.drop + " 1"}
				}
				b.want("drops", b.dropped(), drops...)
			})
		}
	}
	t.Run("to clients", func(t *testing.T) {
		run(t, toClients, func(b *bench, r *rule) []string { return b.ip(r.packet) })
	})
	t.Run("from clients", func(t *testing.T) {
		run(t, fromClients, func(b *bench, r *rule) []string { return b.udp(r.from, r.packet) })
	})
}

func TestEveryReasonHasARow(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range append(append([]rule{}, toClients...), fromClients...) {
		seen[r.drop] = true
	}
	names := map[string]bool{}
	for r := range numReasons {
		name := r.String()
		if name == "" || names[name] {
			t.Errorf("reason %d has no name of its own: %q", r, name)
		}
		names[name] = true
		if !seen[name] && elsewhere[name] == "" {
			t.Errorf("no row for reason %s", name)
		}
	}
	if got := numReasons.String(); got != "unknown" {
		t.Errorf("a reason out of range is called %q", got)
	}
}
