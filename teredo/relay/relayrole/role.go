// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
	"github.com/isthmus-net/isthmus/teredo/tunnel"
)

// name is that of the role.
const name = "teredo_relay"

// Role is the relay as the program knows it.
var Role = role.Of[Settings]{
	Section: config.SectionOf[Settings]{
		Name: name,
		Help: "Teredo relay (RFC 4380, section 5.4): joins IPv6 hosts with Teredo clients.",
		Keys: (*Settings).keys, Check: (*Settings).check, Claims: (*Settings).claims,
	},
	Summary: (*Settings).summary,
	Examine: examine,
	FastPath: func(s *Settings, taken *role.Seats) []role.Finding {
		plan := planFastPath(*s, taken)
		return plan.Findings()
	},
	New:   func(s Settings, log *slog.Logger) (role.Instance, error) { return New(s, log) },
	Clean: clean,
}.Role()

// Settings are one [[teredo_relay]] section; what each means stands where its key is declared.
type Settings struct {
	Name                         string
	Mode                         Mode
	Bind                         netip.AddrPort
	Prefixes, Serve              []netip.Prefix
	Interface                    string
	MTU                          int
	Route                        bool
	Address                      netip.Addr // not valid: the kernel's choice
	MaxPeers                     int
	PeerTimeout                  time.Duration
	QueuePackets, QueueBytes     int
	QueueTotalBytes              int
	BubbleRate, ICMPRate         int
	BehindNAT, EchoThroughServer bool
	CarryClients                 bool
	CarryRate, CarryClientRate   int
	AllowPrivate                 []netip.Prefix
	Workers                      int
	Announce                     bool
	KeepState                    bool
	StateFile                    string // empty: one named after the instance
	FastPath                     fastpath.Mode
	FastPathDevices              []string
	FastPathLinger               time.Duration
}

// Mode says for whom a relay works.
type Mode string

// Modes of a relay: for every IPv6 host that routes the Teredo prefix here (RFC 4380,
// section 5.4), or for this host alone.
const (
	ModeRelay Mode = "relay"
	ModeHost  Mode = "host"
)

// maxPeers bounds the peer table of a relay, which takes its memory at once: 4 GiB.
const maxPeers = 1 << 26

func (s *Settings) keys() []key.Key {
	return append(append([]key.Key{
		key.Of("name", &s.Name, "relay", key.InstanceName, key.Identity,
			"Unique over all instances. Small letters, digits, dots and hyphens."),
		key.Of("mode", &s.Mode, string(ModeRelay), key.OneOf(ModeRelay, ModeHost), key.Restart,
			`"relay" serves every IPv6 host whose packets reach this one, which needs IPv6 forwarding; "host" serves this host alone. RFC 4380, section 5.4.`),
		// Beside the server's port, so that both roles fit on one address.
		key.Of("bind", &s.Bind, "0.0.0.0:3545", bind4, key.Restart,
			"IPv4 address and UDP port. 0.0.0.0 is any address, port 0 a random one. With a firewall in front, let this port in."),
		tunnel.ServicePrefixes(&s.Prefixes, key.Restart, "Teredo service prefixes that this relay reaches. RFC 4380, section 2.6."),
		key.Of("serve", &s.Serve, []string{"2000::/3"}, key.Filled("name at least one prefix, or leave the key out", key.List(key.Prefix6)), key.Live,
			"IPv6 prefixes to which packets of Teredo clients are delivered; the Teredo prefixes are always left out. Name your own networks here, or the relay is open to all. RFC 4380, section 5.4.2."),
		key.Of("interface", &s.Interface, "teredo-relay", key.Interface, key.Restart, "Name of the TUN device."),
		key.Of("mtu", &s.MTU, teredo.MTU, key.Integer[int](teredo.MTU, tunnel.MaxMTU), key.Restart,
			"MTU of the device in bytes. RFC 4380, section 5.1.2: 1280 is what every Teredo client takes."),
		key.Of("route", &s.Route, true, key.Bool, key.Restart, "Install the routes to the Teredo prefixes by this device."),
		key.Of("address", &s.Address, "", key.Optional(key.Address6), key.Live,
			"IPv6 source address of ICMPv6 errors. Empty: a global address of this host."),
		key.Of("max_peers", &s.MaxPeers, 1<<20, key.Integer[int](1, maxPeers), key.Restart,
			`Largest number of peers; one not heard for peer_timeout makes room for a new one, others never. The table takes 18 to 37 bytes a peer, as it fills. RFC 4380, section 5.2: "list of recent peers".`),
		key.Of("peer_timeout", &s.PeerTimeout, "30s", key.Duration(time.Second, time.Hour), key.Live,
			"How long after its last packet a peer is sent to without a new bubble. RFC 4380, section 5.2.4."),
	}, tunnel.QueueKeys(&s.QueuePackets, &s.QueueBytes, &s.QueueTotalBytes, 16<<20, key.Live)...), []key.Key{
		// Some 0.6 MB/s of bubbles.
		key.Of("bubble_rate", &s.BubbleRate, 10_000, key.Count(0), key.Live,
			"Bubbles a second in all: what a flood of packets to unknown peers may cost; 0 is no limit. RFC 4380, section 7.3."),
		key.Of("icmp_rate", &s.ICMPRate, 100, key.Count(0), key.Live,
			"ICMPv6 errors a second in all, a quarter of them to one /64; 0 is no limit. RFC 4443, section 2.4 (f)."),
		key.Of("behind_nat", &s.BehindNAT, false, key.Bool, key.Live,
			"This relay is itself behind a NAT: send direct bubbles too, which open it."),
		key.Of("echo_through_server", &s.EchoThroughServer, true, key.Bool, key.Live,
			"Send the answer to a client's connectivity test by the client's server too, which saves the client a round trip. RFC 4380, section 5.2.9."),
		key.Of("carry_clients", &s.CarryClients, false, key.Bool, key.Live,
			"Carry packets from one Teredo client to another that no direct way leads to, if both name this relay or each other's as their fallback. No one else is carried for; still, it is your bandwidth. docs/relay.md says what protects it."),
		// Some 200 Mbit/s of full packets.
		key.Of("carry_rate", &s.CarryRate, 20_000, key.Count(0), key.Live, "Packets a second carried in all; 0 is no limit."),
		// Some 10 Mbit/s: calls and shells, not archives.
		key.Of("carry_client_rate", &s.CarryClientRate, 1_000, key.Count(0), key.Live, "The same of one client."),
		tunnel.AllowPrivate(&s.AllowPrivate, key.Live),
		key.Of("workers", &s.Workers, 0, key.Integer[int](0, tunnel.MaxWorkers), key.Restart,
			"Pairs of a socket and a TUN queue, each pair served by two cores. 0: one for each two CPUs, at most 4."),
		key.Of("announce", &s.Announce, false, key.Bool, key.Restart,
			`Announce this relay's prefixes to the routers around it while it works, as [announce] says. Not with mode = "host".`),
		key.Of("keep_state", &s.KeepState, true, key.Bool, key.Restart,
			"Keep trusted peers while the process restarts, be it killed: in the tables of the fast path, or in a file."),
		key.Of("state_file", &s.StateFile, "", key.Optional(key.File), key.Restart, "That file. Empty: /run/isthmus/NAME.teredo_relay.state."),
		driver.ModeKey(&s.FastPath, `What carries the packets of established peers: "xdp", a program in the driver of each network card; "tc", one behind the driver; "off", this process alone; or "auto", which chooses by device, and stays with this process where the host has rules for forwarded packets that a program would pass by. With mode = "host": "auto", "tc" or "off". docs/fastpath.md says which to use. From "off" it takes a restart.`),
		driver.DevicesKey(&s.FastPathDevices),
		driver.LingerKey(&s.FastPathLinger),
	}...)
}

func (s *Settings) check(c *config.Checker) {
	if s.Mode == ModeHost && s.FastPath == fastpath.ModeXDP {
		c.Fail("fast_path", `a program in the driver does not see what this host sends, and mode is "host"`, `write "auto", "tc" or "off"`)
	}
	if n := len(s.Prefixes); n > peer.MaxPrefixes && c.OK("prefixes") {
		c.Fail("prefixes", fmt.Sprintf("%d prefixes are too many for one relay", n), fmt.Sprintf("name at most %d, and the others in another [[teredo_relay]]", peer.MaxPrefixes))
	}
	driver.CheckDevices(c, s.FastPathDevices, s.Interface)
	if s.Announce && s.Mode == ModeHost && c.OK("mode", "announce") {
		c.Fail("announce", `a relay with mode = "host" serves no one else`, "leave announce out")
	}
	tunnel.CheckQueues(c, s.MTU, s.QueueBytes, s.QueueTotalBytes)
}

func (s *Settings) claims() []config.Claim {
	claims := []config.Claim{
		config.Device{Key: "interface", Name: s.Interface},
		config.Socket{Key: "bind", Protocol: "UDP", At: s.Bind},
		config.Route{Key: "prefixes", Prefixes: s.Prefixes, Set: s.Route, Remedy: "give each relay prefixes of its own, or set route = false"},
	}
	if s.Announce {
		claims = append(claims, config.Announced{Key: "announce", Prefixes: s.Prefixes})
	}
	return claims
}

// examine looks for routes in the way, and whether others can be served.
func examine(s *Settings) []role.Finding {
	found := role.Problems(examineRoutes(*s))
	forwarding, _ := os.ReadFile("/proc/sys/net/ipv6/conf/all/forwarding") // there is no IPv6, which is told elsewhere
	if s.Mode == ModeRelay && strings.TrimSpace(string(forwarding)) == "0" {
		found = append(found, role.Finding{Warning: true, Text: fmt.Sprintf(
			`the relay %q cannot serve other hosts, because this one forwards no IPv6: run sysctl -w net.ipv6.conf.all.forwarding=1, or set mode = "host"`, s.Name)})
	}
	return found
}

func (s *Settings) summary() string {
	if s.Mode == ModeHost {
		return fmt.Sprintf("listens on UDP %s, device %s, serves this host alone", s.Bind, s.Interface)
	}
	return fmt.Sprintf("listens on UDP %s, device %s, serves %s", s.Bind, s.Interface, role.Join(s.Serve))
}

// bind4 parses an IPv4 address and port to listen on; 0.0.0.0 is any address.
var bind4 = key.Text("0.0.0.0:3545", func(s string) (netip.AddrPort, *key.Fault) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || !a.Addr().Is4() || a.Addr().IsMulticast() {
		return a, key.Wrong("write it like 0.0.0.0:3545", "%q is not an IPv4 address with a port", s)
	}
	return a, nil
})
