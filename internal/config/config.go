// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package config reads the one TOML file of Isthmus into checked values.
//
// Parsing is strict: an unknown key, a value of the wrong type or a value that
// could not work is an error that names the file, line, column and key and says
// what to write instead. All errors of a file are reported at once. What Parse
// returns needs no further check that could be made without looking at the
// machine.
//
// The types of this package are for the daemon and for the run packages, which
// translate them into the settings of the engines; engines never see them.
package config

import (
	"io/fs"
	"log/slog"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
)

// DefaultPath is the configuration that isthmus reads when none is named.
const DefaultPath = "/etc/isthmus/isthmus.toml"

// Names of the roles, as they stand in the file, in status and in metrics.
const (
	RoleServer = "server"
	RoleRelay  = "relay"
	RoleClient = "client"
)

// Config is a whole configuration file. Instance names are unique over all
// roles.
type Config struct {
	Servers []Server `key:"server"`
	Relays  []Relay  `key:"relay"`
	Clients []Client `key:"client"`
	NAT64s  []NAT64  `key:"nat64"`
	SIITs   []SIIT   `key:"siit"`
	// Instances are those of the sections that were declared to [Parse].
	Instances []Instance
	// Announce concerns instances with announce = true.
	Announce Announce
	Control  Control
	Metrics  Metrics
	Log      Log
}

// Server is one Teredo server (RFC 4380, section 5.3).
type Server struct {
	// Name is unique over all instances.
	Name string `key:"name"`
	// Address is the primary IPv4 address, on which the server listens.
	Address netip.Addr `key:"address"`
	// Secondary is the second IPv4 address on which the server listens. Not
	// valid: single-address mode.
	Secondary netip.Addr `key:"secondary"`
	// Advertise is what clients see as the primary address: it stands in the
	// announced prefix and is compared with the server field of Teredo
	// addresses. It differs from Address behind a 1:1 NAT.
	Advertise netip.Addr `key:"advertise"`
	// AdvertiseSecondary is what clients see as the secondary address. Not
	// valid in single-address mode.
	AdvertiseSecondary netip.Addr `key:"advertise_secondary"`
	// Prefixes are the /32 service prefixes; the first one is announced.
	Prefixes []netip.Prefix `key:"prefixes"`
	// Port is the UDP port on both addresses.
	Port uint16 `key:"port"`
	// AllowPrivate lists IPv4 ranges that count as global although RFC 4380,
	// section 5.2.4, rejects them: an opt-in for closed networks.
	AllowPrivate []netip.Prefix `key:"allow_private"`
	// RatePerSource is how many packets a second are accepted from one IPv4
	// source; 0 is no limit.
	RatePerSource int `key:"rate_per_source"`
	// RateTotal is how many packets a second are accepted in all; 0 is no limit.
	RateTotal int `key:"rate_total"`
	// Burst is how many packets of one source may come at once before
	// RatePerSource applies.
	Burst int `key:"burst"`
	// MTU is announced to clients and bounds the packets carried, in bytes.
	MTU int `key:"mtu"`
	// Keys are what clients prove themselves by (RFC 4380, section 5.2.2).
	Keys []Key `key:"key"`
	// KeysFile names a file with more of them, for [ReadKeys]; empty is none.
	KeysFile string `key:"keys_file"`
	// RequireAuth refuses clients without a key.
	RequireAuth bool `key:"require_auth"`
	// Workers is how many sets of sockets serve packets, each by cores of its
	// own; 0 leaves it to the program.
	Workers int `key:"workers"`
	// Announce has the addresses announced to routers while the server works.
	Announce bool `key:"announce"`
}

// Mode says for whom a relay works.
type Mode string

// Modes of a relay.
const (
	// ModeRelay serves every IPv6 host that routes the Teredo prefix here
	// (RFC 4380, section 5.4).
	ModeRelay Mode = "relay"
	// ModeHost serves this host alone: a host-specific relay.
	ModeHost Mode = "host"
)

// Relay is one Teredo relay or host-specific relay (RFC 4380, section 5.4).
type Relay struct {
	// Name is unique over all instances.
	Name string `key:"name"`
	// Mode is ModeRelay or ModeHost.
	Mode Mode `key:"mode"`
	// Bind is the IPv4 address and UDP port of the relay; 0.0.0.0 is any
	// address, port 0 a random one.
	Bind netip.AddrPort `key:"bind"`
	// Prefixes are the /32 Teredo service prefixes that the relay reaches.
	Prefixes []netip.Prefix `key:"prefixes"`
	// Serve are the IPv6 prefixes to which the relay delivers packets of
	// Teredo clients. The engine takes the Teredo prefixes out.
	Serve []netip.Prefix `key:"serve"`
	// Interface names the TUN device.
	Interface string `key:"interface"`
	// MTU of the TUN device, in bytes.
	MTU int `key:"mtu"`
	// Route says whether routes to Prefixes by the TUN device are installed.
	Route bool `key:"route"`
	// Address is the IPv6 source of ICMPv6 errors. Not valid: the kernel's
	// choice towards the IPv6 Internet.
	Address netip.Addr `key:"address"`
	// MaxPeers bounds the peer table, in entries.
	MaxPeers int `key:"max_peers"`
	// PeerTimeout is how long after its last packet a peer stays valid.
	PeerTimeout time.Duration `key:"peer_timeout"`
	// QueuePackets and QueueBytes bound what waits for one peer.
	QueuePackets int `key:"queue_packets"`
	QueueBytes   int `key:"queue_bytes"`
	// QueueTotalBytes bounds what waits for all peers together.
	QueueTotalBytes int `key:"queue_total_bytes"`
	// BubbleRate bounds the bubbles that the relay sends, per second in all; 0
	// is no limit.
	BubbleRate int `key:"bubble_rate"`
	// ICMPRate bounds the ICMPv6 errors that the relay sends, per second;
	// 0 is no limit.
	ICMPRate int `key:"icmp_rate"`
	// BehindNAT makes the relay send direct bubbles too, which open its own
	// NAT.
	BehindNAT bool `key:"behind_nat"`
	// EchoThroughServer makes the relay send the answer to a client's
	// connectivity test by the client's server too, which saves a round trip.
	EchoThroughServer bool `key:"echo_through_server"`
	// CarryClients lets the relay carry packets from one Teredo client to
	// another that no direct way leads to, if both are bound to it.
	CarryClients bool `key:"carry_clients"`
	// CarryRate bounds such packets, per second in all, and CarryClientRate
	// those that one client sends; 0 is no limit.
	CarryRate       int `key:"carry_rate"`
	CarryClientRate int `key:"carry_client_rate"`
	// AllowPrivate lists IPv4 ranges that count as global although RFC 4380,
	// section 5.2.4, rejects them.
	AllowPrivate []netip.Prefix `key:"allow_private"`
	// Workers is how many pairs of sockets and TUN queues serve packets, each by
	// cores of its own; 0 leaves it to the program.
	Workers int `key:"workers"`
	// Announce has Prefixes announced to routers while the relay works.
	Announce bool `key:"announce"`
	// KeepState keeps trusted peers over a restart in the file StateFile; empty: one
	// named after the instance. With a fast path its tables are kept.
	KeepState bool   `key:"keep_state"`
	StateFile string `key:"state_file"`
	// FastPath is what carries the packets of established peers; not FastPathXDP
	// in ModeHost.
	FastPath FastPath `key:"fast_path"`
	// FastPathDevices are the devices that it attaches to. Empty: all Ethernet
	// devices that are up, and come up, and are no member of another.
	FastPathDevices []string `key:"fast_path_devices"`
	// FastPathLinger is how long it goes on without the daemon.
	FastPathLinger time.Duration `key:"fast_path_linger"`
}

// FastPath says what carries the packets of established peers: a program in the
// kernel or the engine.
type FastPath string

// Kinds of fast path.
const (
	// FastPathAuto chooses by device, and stays with the engine where a program
	// would pass by what the host does to forwarded packets.
	FastPathAuto FastPath = "auto"
	// FastPathXDP is a program in the driver of each device.
	FastPathXDP FastPath = "xdp"
	// FastPathTC is a program at the ingress of each device, behind the driver.
	FastPathTC FastPath = "tc"
	// FastPathOff is the engine alone.
	FastPathOff FastPath = "off"
)

// Host is an IPv4 address or a name that is to be resolved to one.
type Host struct {
	// Addr is valid if an address was written.
	Addr netip.Addr
	// Name is set if a host name was written.
	Name string
}

// String returns the host as it was written.
func (h Host) String() string {
	if h.Addr.IsValid() {
		return h.Addr.String()
	}
	return h.Name
}

// SecondaryMode says whether a client compares the mappings that two server
// addresses see.
type SecondaryMode string

// Modes of the secondary server address.
const (
	// SecondaryAuto asks the address that follows the primary one.
	SecondaryAuto SecondaryMode = "auto"
	// SecondaryNone asks no second address.
	SecondaryNone SecondaryMode = "none"
	// SecondaryAddress asks the address that the file names.
	SecondaryAddress SecondaryMode = "address"
)

// Secondary is the secondary server address of a client.
type Secondary struct {
	Mode SecondaryMode
	// Addr is valid in SecondaryAddress mode only.
	Addr netip.Addr
}

// Unsolicited is the policy for IPv6 packets of peers to which this host has
// not sent anything before.
type Unsolicited string

// Policies for unsolicited inbound packets.
const (
	// UnsolicitedAllow delivers them.
	UnsolicitedAllow Unsolicited = "allow"
	// UnsolicitedEstablished drops them.
	UnsolicitedEstablished Unsolicited = "established"
)

// Native says what a client does where the host has native IPv6.
type Native string

// Policies for hosts with native IPv6.
const (
	// NativeAside gives the Teredo address up (RFC 4380, section 5.5).
	NativeAside Native = "aside"
	// NativeIgnore stays qualified all the same.
	NativeIgnore Native = "ignore"
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

// Client is one Teredo client (RFC 4380, section 5.2).
type Client struct {
	// Name is unique over all instances.
	Name string `key:"name"`
	// Servers are tried in this order.
	Servers []Host `key:"server"`
	// Secondary is the secondary address of the server.
	Secondary Secondary `key:"secondary"`
	// Port is the local UDP port; 0 is a random one.
	Port uint16 `key:"port"`
	// Bind is the local IPv4 address. Not valid: any.
	Bind netip.Addr `key:"bind"`
	// Interface names the TUN device.
	Interface string `key:"interface"`
	// Prefixes are the /32 service prefixes that a server may announce.
	Prefixes []netip.Prefix `key:"prefixes"`
	// RefreshInterval is the upper end of the randomised interval between
	// router solicitations that keep the NAT mapping alive.
	RefreshInterval time.Duration `key:"refresh_interval"`
	// Interfaces lists the interfaces that each get a socket and an address of
	// their own, the best first. Empty: one socket, which follows the routes.
	Interfaces []string `key:"interfaces"`
	// ProbeAfter is how long the host may send without an answer before the
	// server is asked; 0 is never.
	ProbeAfter time.Duration `key:"probe_after"`
	// OnChange is a program with its arguments, run when the address changes;
	// OnChangeTimeout is how long it may run.
	OnChange        []string      `key:"on_change"`
	OnChangeTimeout time.Duration `key:"on_change_timeout"`
	// QualificationTimeout is the wait for one router advertisement.
	QualificationTimeout time.Duration `key:"qualification_timeout"`
	// QualificationAttempts is how many router solicitations are sent before
	// a server counts as silent.
	QualificationAttempts int `key:"qualification_attempts"`
	// RefreshSearch finds the longest interval that the NAT allows (RFC 4380,
	// section 5.2.7).
	RefreshSearch bool `key:"refresh_search"`
	// LocalDiscovery finds other clients on the same link (RFC 4380, section
	// 5.2.8).
	LocalDiscovery bool `key:"local_discovery"`
	// Fallback is the relay that carries between clients where no direct way
	// leads to a peer. Not valid: none.
	Fallback netip.AddrPort `key:"fallback"`
	// Unsolicited is the policy for unsolicited inbound packets.
	Unsolicited Unsolicited `key:"unsolicited"`
	// Native is the policy for hosts with native IPv6.
	Native Native `key:"native"`
	// RandomPorts bounds the UDP ports beside Port that are opened for peers
	// behind and from behind symmetric NATs; 0 is none.
	RandomPorts int `key:"random_ports"`
	// Hairpin tells peers the local IPv4 address and tries theirs, for clients
	// behind one NAT.
	Hairpin bool `key:"hairpin"`
	// HairpinAllow are ranges of local addresses that are tried although their
	// client does not share this one's public address.
	HairpinAllow []netip.Prefix `key:"hairpin_allow"`
	// LoadReduction asks silent peers directly before their server.
	LoadReduction bool `key:"load_reduction"`
	// OpeningTTL is the time to live of bubbles that only open the own NAT; 0 is
	// that of other packets.
	OpeningTTL uint8 `key:"opening_ttl"`
	// RouteMetric is the metric of the IPv6 default route by the TUN device.
	RouteMetric int `key:"route_metric"`
	// MaxPeers bounds the peer table, in entries.
	MaxPeers int `key:"max_peers"`
	// QueuePackets and QueueBytes bound what waits for one peer.
	QueuePackets int `key:"queue_packets"`
	QueueBytes   int `key:"queue_bytes"`
	// QueueTotalBytes bounds what waits for all peers together.
	QueueTotalBytes int `key:"queue_total_bytes"`
	// AllowPrivate lists IPv4 ranges that count as global although RFC 4380,
	// section 5.2.4, rejects them.
	AllowPrivate []netip.Prefix `key:"allow_private"`
	// KeyID is the client identifier of secure qualification (RFC 4380, section
	// 5.2.2); empty is none.
	KeyID string `key:"key_id"`
	// KeySecret is shared with the server. Empty, with a KeyID: it stands in
	// KeySecretFile, for [ReadSecret].
	KeySecret     Secret           `key:"key_secret"`
	KeySecretFile string           `key:"key_secret_file"`
	KeyAlgorithm  teredo.Algorithm `key:"key_algorithm"`
	// PortMapping is whether and how the gateway is asked to reserve the port
	// (RFC 6081, section 5.3).
	PortMapping PortMapping `key:"port_mapping"`
	// PortMappingFile remembers the reserved port across restarts. Empty: in the
	// state directory of the service.
	PortMappingFile string `key:"port_mapping_file"`
	// FastPath is what carries the packets of established peers; not FastPathXDP,
	// which cannot see what this host sends.
	FastPath FastPath `key:"fast_path"`
}

// Control is the socket of `isthmus status` and `isthmus reload`.
type Control struct {
	// Socket is the path of the Unix socket; empty is none.
	Socket string
	// Mode is the permission bits of the socket.
	Mode fs.FileMode
	// Group owns the socket; empty is the group of the process.
	Group string
}

// Metrics is the Prometheus endpoint.
type Metrics struct {
	// Listen is the TCP address of the endpoint. Not valid: no endpoint.
	Listen netip.AddrPort
}

// Format is the form of log lines.
type Format string

// Forms of log lines.
const (
	FormatText Format = "text"
	FormatJSON Format = "json"
)

// Log says what is logged and how.
type Log struct {
	Level  slog.Level
	Format Format
}

// Server returns the server instance of that name.
func (c *Config) Server(name string) (Server, bool) {
	return find(c.Servers, func(s Server) bool { return s.Name == name })
}

// Relay returns the relay instance of that name.
func (c *Config) Relay(name string) (Relay, bool) {
	return find(c.Relays, func(r Relay) bool { return r.Name == name })
}

// Client returns the client instance of that name.
func (c *Config) Client(name string) (Client, bool) {
	return find(c.Clients, func(r Client) bool { return r.Name == name })
}

// Count is the number of instances of all roles.
func (c *Config) Count() int {
	return len(c.Servers) + len(c.Relays) + len(c.Clients) + len(c.NAT64s) + len(c.SIITs) + len(c.Instances)
}

func find[T any](list []T, match func(T) bool) (T, bool) {
	for _, item := range list {
		if match(item) {
			return item, true
		}
	}
	var none T
	return none, false
}
