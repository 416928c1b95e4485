// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/tunnel"
)

// name is that of the role.
const name = "teredo_client"

// Role is the client as the program knows it.
var Role = role.Of[Settings]{
	Section: config.SectionOf[Settings]{
		Name: name,
		Help: "Teredo client (RFC 4380, section 5.2): gives this host an IPv6 address.",
		Keys: (*Settings).keys, Check: (*Settings).check, Claims: (*Settings).claims,
		Secret: func(s *Settings) bool { return s.KeySecret != "" },
	},
	Summary: (*Settings).summary, Headline: "address",
	Examine: func(s *Settings) []role.Finding { return role.Problems(examineRoute(*s)) },
	Files: func(s *Settings) []role.Finding {
		_, err := s.credential()
		return role.Problems(err)
	},
	New: func(s Settings, log *slog.Logger) (role.Instance, error) {
		if len(s.Interfaces) > 0 {
			return NewHandover(s, log)
		}
		return NewClient(s, log)
	},
	Command: role.Command{Name: "teredo", Help: "Look into the Teredo protocol, or run one client.", Flags: func() any { return new(Command) }},
}.Role()

// Settings are one [[teredo_client]] section; what each means stands where its key is
// declared.
type Settings struct {
	Name                     string
	Servers                  []Host
	Secondary                Secondary
	Port                     uint16
	Bind                     netip.Addr
	Interface                string
	Interfaces               []string
	ProbeAfter               time.Duration // 0 is never
	OnChange                 []string
	OnChangeTimeout          time.Duration
	Prefixes                 []netip.Prefix
	RefreshInterval          time.Duration
	QualificationTimeout     time.Duration
	QualificationAttempts    int
	RefreshSearch            bool
	LocalDiscovery           bool
	Fallback                 netip.AddrPort // not valid: none
	Unsolicited              Unsolicited
	Native                   Native
	RandomPorts              int
	Hairpin                  bool
	HairpinAllow             []netip.Prefix
	LoadReduction            bool
	OpeningTTL               uint8
	RouteMetric              int
	MaxPeers                 int
	QueuePackets, QueueBytes int
	QueueTotalBytes          int
	AllowPrivate             []netip.Prefix
	KeyID                    string
	KeySecret                config.Secret
	KeySecretFile            string
	KeyAlgorithm             teredo.Algorithm
	PortMapping              PortMapping
	PortMappingFile          string
	FastPath                 fastpath.Mode
}

// Unsolicited is the policy for IPv6 packets of peers to which this host has not sent
// anything before.
type Unsolicited string

// Policies for unsolicited inbound packets: deliver them, or drop them.
const (
	UnsolicitedAllow       Unsolicited = "allow"
	UnsolicitedEstablished Unsolicited = "established"
)

// Native says what a client does where the host has native IPv6: give the Teredo address up
// (RFC 4380, section 5.5), keep it for those alone who bind to it, or keep it all the same.
type Native string

// Policies for hosts with native IPv6.
const (
	NativeAside   Native = "aside"
	NativeStandby Native = "standby"
	NativeIgnore  Native = "ignore"
)

// PortMapping says whether and how a client asks its gateway to reserve its port.
type PortMapping string

// Ways to reserve a port.
const (
	PortMappingNone   PortMapping = "none"
	PortMappingAuto   PortMapping = "auto" // UPnP, or else NAT-PMP
	PortMappingUPnP   PortMapping = "upnp"
	PortMappingNATPMP PortMapping = "nat-pmp"
)

// maxRandomPorts keeps the sockets of a client well below the usual limit of open files.
const maxRandomPorts = 512

func (s *Settings) keys() []key.Key {
	return slices.Concat(s.addressKeys(), s.serverKeys(), s.policyKeys(), s.peerKeys(), s.secretKeys(), []key.Key{
		// No port is reserved by default: it opens the router to everybody for as long as the
		// reservation lives, which for UPnP is beyond a crash of this host, on the word of
		// whatever answers in the local network. Most hosts need none, since bubbles open
		// their NATs as it is.
		key.Of("port_mapping", &s.PortMapping, string(PortMappingNone), key.OneOf(PortMappingNone, PortMappingAuto, PortMappingUPnP, PortMappingNATPMP), key.Restart,
			`Ask the router to reserve the UDP port, which lets everybody in there: "none", "upnp", "nat-pmp", or "auto" for either. It helps behind NATs that keep others out, see docs/client.md. RFC 6081, section 5.3: "UPnP-Enabled NAT".`),
		key.Of("port_mapping_file", &s.PortMappingFile, "", key.Optional(key.File), key.Restart,
			`Remembers the reserved port, so that it is given back after a crash. Empty: in the service's state directory, /var/lib/isthmus. RFC 6081, section 5.3.1: "Persisted UPnP-Mapped Port".`),
		key.Of("fast_path", &s.FastPath, string(fastpath.ModeAuto), key.OneOf(fastpath.ModeAuto, fastpath.ModeTC, fastpath.ModeOff), key.Restart,
			`What carries the packets of established peers: "tc", a program between this host's sockets and its devices; "off", this process alone; or "auto", which is "tc" where the kernel has it. docs/fastpath.md says more.`),
	})
}

func (s *Settings) addressKeys() []key.Key {
	return []key.Key{
		key.Of("name", &s.Name, "client", key.InstanceName, key.Identity,
			"Unique over all instances. Small letters, digits, dots and hyphens."),
		key.Of("server", &s.Servers, key.MustSet([]string{"192.0.2.1"}), key.Filled("name at least one server", key.List(parseHost)), key.Live,
			"Servers by IPv4 address or name, tried in this order. RFC 4380, section 5.2.1."),
		key.Of("secondary", &s.Secondary, string(SecondaryAuto), parseSecondary, key.Live,
			`Second address of the server, which tells a symmetric NAT from others: "auto" (the address after the first), "none", or an IPv4 address. The client is reachable before this test ends. RFC 4380, section 5.2.1.`),
		key.Of("port", &s.Port, 0, key.Integer[uint16](0, 65535), key.Restart,
			`Local UDP port; 0 is a random one. RFC 4380, section 5.2: "Teredo service port".`),
		key.Of("bind", &s.Bind, "", key.Optional(key.Address4), key.Restart, "Local IPv4 address. Empty: any."),
		key.Of("interface", &s.Interface, "teredo", key.Interface, key.Restart, "TUN device that gets the address."),
		key.Of("interfaces", &s.Interfaces, []string{}, key.List(key.Interface), key.Restart,
			`IPv4 interfaces that each get a socket and a Teredo address of their own and stay qualified, so that a move from one to another costs no more than one round trip: ["wlan0", "wwan0"]. In use is the one that the routes lead to, or else the first that works. Empty: one socket, which follows the routes. Not together with local_discovery, refresh_search and port_mapping; random_ports is then 0.`),
		// A changed mapping is noticed within 5 s, and a pause of a second asks no one.
		key.Of("probe_after", &s.ProbeAfter, "1.5s", orNever(key.Duration(100*time.Millisecond, time.Minute)), key.Restart,
			`How long this host may send without anything coming back before the server is asked whether the address still holds, which is repeated every 4 s at most. Also ranks several servers and leaves a silent one within seconds. "0s": never; then only the refresh finds out.`),
		key.Of("on_change", &s.OnChange, []string{}, argv, key.Restart,
			`Program and arguments to be run when the address has changed, without a shell, with ISTHMUS_OLD_ADDRESS, ISTHMUS_NEW_ADDRESS, ISTHMUS_INTERFACE, ISTHMUS_VIA, ISTHMUS_CAUSE, ISTHMUS_TIME, ISTHMUS_INSTANCE and ISTHMUS_STANDBY in its environment. One runs at a time: ["/usr/local/bin/update-dns"]`+" (with its whole path)."),
		// A hook that calls a name service on the way.
		key.Of("on_change_timeout", &s.OnChangeTimeout, "10s", key.Duration(100*time.Millisecond, time.Hour), key.Restart, "How long it may take."),
	}
}

func (s *Settings) serverKeys() []key.Key {
	return []key.Key{
		tunnel.ServicePrefixes(&s.Prefixes, key.Restart, "Teredo service prefixes that a server may announce. RFC 4380, section 2.6."),
		key.Of("refresh_interval", &s.RefreshInterval, "30s", key.Duration(time.Second, time.Hour), key.Restart,
			`Longest time between two messages to the server, which keep the mapping of the NAT alive. RFC 4380, section 5.2: "Teredo refresh interval"; RFC 6081, section 5.1.1: "randomized refresh interval".`),
		key.Of("qualification_timeout", &s.QualificationTimeout, "4s", key.Duration(100*time.Millisecond, time.Minute), key.Restart,
			"Wait for an answer of a server. RFC 4380, section 5.2.1: T."),
		key.Of("qualification_attempts", &s.QualificationAttempts, 3, key.Integer[int](1, 100), key.Restart,
			"How often it is asked before it counts as silent. RFC 4380, section 5.2.1: N."),
		key.Of("refresh_search", &s.RefreshSearch, false, key.Bool, key.Restart,
			"Find out how long this NAT keeps a mapping, by a second UDP port, and refresh it no more often than that, at most every 120 s. RFC 4380, section 5.2.7."),
		key.Of("local_discovery", &s.LocalDiscovery, false, key.Bool, key.Restart,
			"Find other clients on the same link by IPv4 multicast to 224.0.0.253, and talk to them without leaving it. Everybody on the link learns the address of this host, and could claim another's behind the same NAT. RFC 4380, section 5.2.8."),
		key.Of("fallback", &s.Fallback, "", key.Optional(endpoint4), key.Restart,
			`A relay with carry_clients, as address and port like "192.0.2.3:3545", for peers that no direct way leads to; they must have one too. It sees these packets. Empty: none.`),
	}
}

func (s *Settings) policyKeys() []key.Key {
	return []key.Key{
		// Most hosts behind a NAT rely on it as their only firewall, and Teredo would open
		// them to the whole IPv6 Internet without their owner having said so.
		key.Of("unsolicited", &s.Unsolicited, string(UnsolicitedEstablished), key.OneOf(UnsolicitedAllow, UnsolicitedEstablished), key.Restart,
			`IPv6 packets from peers to which this host has not sent anything before: "established" drops them, "allow" lets them in. Teredo opens this host to the whole IPv6 Internet, through its NAT: allow only what a firewall on this host looks at. RFC 4380, section 7.1: "Opening a Hole in the NAT".`),
		key.Of("native", &s.Native, string(NativeAside), key.OneOf(NativeAside, NativeStandby, NativeIgnore), key.Restart,
			`Where this host has other IPv6: "aside" gives the Teredo address up until that is gone; "standby" keeps it for programs that bind to it, such as telephones that move, and nothing else uses it until the other IPv6 is gone; "ignore", for tests, keeps it and its default route. RFC 4380, section 5.5.`),
		// Some 10 MB of socket buffers at most.
		key.Of("random_ports", &s.RandomPorts, 64, key.Integer[int](0, maxRandomPorts), key.Restart,
			`UDP ports beside "port" that may be open at once for peers that can be reached only by one of their own, from behind a symmetric NAT; 0 is none. RFC 6081, sections 5.4 and 5.5: "Random Port".`),
		key.Of("hairpin", &s.Hairpin, true, key.Bool, key.Restart,
			`Whether peers are told the local IPv4 address, and theirs are tried, so that clients behind one NAT find each other. RFC 6081, section 5.6: "Alternate Address".`),
		key.Of("hairpin_allow", &s.HairpinAllow, []string{}, key.List(tunnel.PrivateRange), key.Restart,
			"Ranges of local addresses to try although their client has another public address."),
		key.Of("load_reduction", &s.LoadReduction, true, key.Bool, key.Restart,
			"Whether a peer that was silent is asked directly, for up to 4 seconds, before it is looked for by its server. RFC 6081, section 5.7."),
		key.Of("opening_ttl", &s.OpeningTTL, 0, key.Integer[uint8](0, 255), key.Restart,
			"IPv4 time to live of bubbles that only have to open our own NAT: more than the hops to the outermost NAT of this side, less than to that of the peer; 0 is that of all packets. It helps where the peer's router keeps state for packets that it lets no one in for."),
		// Worse than any native default route (1024).
		key.Of("route_metric", &s.RouteMetric, 4096, key.Count(1), key.Restart,
			"Metric of the IPv6 default route by this device; the smaller one wins, and native routes usually have 1024 or less."),
	}
}

func (s *Settings) peerKeys() []key.Key {
	return append(append([]key.Key{
		// A single host talks to far fewer than a relay.
		key.Of("max_peers", &s.MaxPeers, 1<<16, key.Count(1), key.Restart,
			`Largest number of peers. RFC 4380, section 5.2: "list of recent peers".`),
	}, tunnel.QueueKeys(&s.QueuePackets, &s.QueueBytes, &s.QueueTotalBytes, 1<<20, key.Restart)...), tunnel.AllowPrivate(&s.AllowPrivate, key.Restart))
}

func (s *Settings) secretKeys() []key.Key {
	return []key.Key{
		key.Of("key_id", &s.KeyID, "", key.Optional(tunnel.ClientID), key.Live,
			"Name of the key that this client shares with its servers, for secure qualification, as the server has it. With a key, only answers under the key count. Empty: none. RFC 4380, section 5.2.2."),
		key.Of("key_secret", &s.KeySecret, "", key.Optional(tunnel.Secret), key.Live,
			"Its secret, which belongs in a file of its own: this file then must not be open to others."),
		key.Of("key_secret_file", &s.KeySecretFile, "", key.Optional(key.File), key.Live,
			"The file with the secret. A reload reads it again."),
		key.Of("key_algorithm", &s.KeyAlgorithm, teredo.HMACSHA1.String(), tunnel.Algorithm, key.Live, `"hmac-sha1" or "hmac-sha256".`),
	}
}

func (s *Settings) check(c *config.Checker) {
	s.checkKey(c)
	tunnel.CheckQueues(c, teredo.MTU, s.QueueBytes, s.QueueTotalBytes)
	s.checkInterfaces(c)
	if len(s.Servers) == 0 && c.OK("server") {
		c.Fail("", "this client has no server", `add server = "192.0.2.1" with the address or name of a Teredo server`)
	}
	tunnel.CheckReachable(c, "fallback", s.Fallback.Addr(), s.AllowPrivate,
		"write the public address of the relay, or open the range with allow_private in a closed network")
	for i, server := range s.Servers {
		tunnel.CheckReachable(c, fmt.Sprintf("server[%d]", i), server.Addr, s.AllowPrivate,
			"write the public address of a server, or open the range with allow_private in a closed network")
	}
}

func (s *Settings) checkKey(c *config.Checker) {
	if !c.OK("key_id", "key_secret", "key_secret_file") {
		return
	}
	switch {
	case s.KeySecret != "" && s.KeySecretFile != "":
		c.Fail("key_secret_file", "there is a key_secret too", "keep one of the two")
	case s.KeyID == "" && s.KeySecret != "":
		c.Fail("key_secret", "this secret has no name by which the server knows it", `add key_id = "…"`)
	case s.KeyID == "" && s.KeySecretFile != "":
		c.Fail("key_secret_file", "this secret has no name by which the server knows it", `add key_id = "…"`)
	case s.KeyID != "" && s.KeySecret == "" && s.KeySecretFile == "":
		c.Fail("key_id", "this name has no secret", `add key_secret_file = "/etc/isthmus/client.secret"`)
	}
}

// checkInterfaces checks what a client with several interfaces cannot have.
func (s *Settings) checkInterfaces(c *config.Checker) {
	if len(s.Interfaces) == 0 || !c.OK("interfaces") {
		return
	}
	if s.Bind.IsValid() && !s.Bind.IsUnspecified() {
		c.Fail("bind", "a client with interfaces uses the address of each", "leave bind out, or interfaces")
	}
	for _, one := range []struct {
		key string
		on  bool
	}{
		{"local_discovery", s.LocalDiscovery},
		{"refresh_search", s.RefreshSearch},
		{"port_mapping", s.PortMapping != PortMappingNone},
	} {
		if one.on && c.OK(one.key) {
			c.Fail(one.key, "a client with interfaces does not have this", "leave it out, or interfaces")
		}
	}
	for i, name := range s.Interfaces {
		path := fmt.Sprintf("interfaces[%d]", i)
		if slices.Contains(s.Interfaces[:i], name) {
			c.Fail(path, fmt.Sprintf("%s is listed twice", name), "name each interface once")
		}
		if name == s.Interface {
			c.Fail(path, name+" is the tunnel itself", "name interfaces that have IPv4")
		}
	}
}

func (s *Settings) claims() []config.Claim {
	at := s.Bind
	if !at.IsValid() {
		at = netip.IPv4Unspecified()
	}
	claims := []config.Claim{
		config.Device{Key: "interface", Name: s.Interface},
		config.Socket{Key: "port", Protocol: "UDP", At: netip.AddrPortFrom(at, s.Port)},
		config.DefaultRoute{Key: "route_metric", Metric: s.RouteMetric},
	}
	if s.LocalDiscovery {
		claims = append(claims, config.Group{Key: "local_discovery", At: netip.AddrPortFrom(teredo.DiscoveryAddress, teredo.Port)})
	}
	return claims
}

// credential is what the client authenticates itself with, by the file of its secret; an
// empty identifier is nothing.
func (s *Settings) credential() (teredo.Credential, error) {
	if s.KeyID == "" {
		return teredo.Credential{}, nil
	}
	shared := s.KeySecret
	if s.KeySecretFile != "" {
		var err error
		if shared, err = tunnel.ReadSecret(s.KeySecretFile); err != nil {
			return teredo.Credential{}, err
		}
	}
	return teredo.Credential{ID: s.KeyID, Secret: []byte(shared), Algorithm: s.KeyAlgorithm}, nil
}

func (s *Settings) summary() string {
	policy := "drops unsolicited IPv6 packets"
	if s.Unsolicited == UnsolicitedAllow {
		policy = "lets unsolicited IPv6 packets in"
	}
	beside := map[Native]string{
		NativeAside:   "steps aside for native IPv6",
		NativeStandby: "stands by beside native IPv6 for those who bind to its address",
		NativeIgnore:  "ignores native IPv6",
	}[s.Native]
	return fmt.Sprintf("uses %s, device %s, %s, %s", role.Join(s.Servers), s.Interface, policy, beside)
}
