// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package special

import "net/netip"

// Row is one block of a registry. Its columns are those of RFC 6890 section 2.2.1, as far
// as a router needs them; of what lies in several blocks the longest counts.
type Row struct {
	Prefix netip.Prefix
	Name   string // with the RFC that says so
	// Source and Destination tell that a packet may have such an address at all.
	Source, Destination bool
	// Forwardable reports that a router may forward such a packet, Global that it may go
	// beyond one administration.
	Forwardable, Global bool
	// Reserved is by the protocol itself: every implementation of IP knows the block.
	Reserved bool
	// Use is what is made of the block beside or against its columns.
	Use Use
}

// Use is what is made of a block here.
type Use uint8

// The uses.
const (
	AsRegistered Use = iota
	// Private blocks number hosts of one administration (RFC 1918, RFC 6598).
	Private
	// Example blocks, for documentation, are forwarded although the registry says no:
	// no one is harmed there, and examples, labs and tests are to work as they are written.
	Example
	// Open blocks are forwarded although the registry says no, by the RFC of the block, or
	// since what will be given out of them is not known yet.
	Open
)

const yes, no = true, false

func row(prefix, name string, source, destination, forwardable, global, reserved bool, use Use) Row {
	return Row{netip.MustParsePrefix(prefix), name, source, destination, forwardable, global, reserved, use}
}

// IPv4 is the registry of IPv4, and multicast, which has a registry of its own.
var IPv4 = []Row{
	row("0.0.0.0/8", "this network (RFC 791)", yes, no, no, no, yes, AsRegistered),
	row("0.0.0.0/32", "this host on this network (RFC 1122)", yes, no, no, no, yes, AsRegistered),
	row("10.0.0.0/8", "private use (RFC 1918)", yes, yes, yes, no, no, Private),
	row("100.64.0.0/10", "shared address space (RFC 6598)", yes, yes, yes, no, no, Private),
	row("127.0.0.0/8", "loopback (RFC 1122)", no, no, no, no, yes, AsRegistered),
	row("169.254.0.0/16", "link-local (RFC 3927)", yes, yes, no, no, yes, AsRegistered),
	row("172.16.0.0/12", "private use (RFC 1918)", yes, yes, yes, no, no, Private),
	row("192.0.0.0/24", "IETF protocol assignments (RFC 6890)", no, no, no, no, no, AsRegistered),
	row("192.0.0.0/29", "IPv4 service continuity: DS-Lite, CLAT (RFC 7335)", yes, yes, yes, no, no, AsRegistered),
	row("192.0.0.8/32", "dummy address, source of ICMP errors (RFC 7600)", yes, no, no, no, no, AsRegistered),
	row("192.0.0.9/32", "PCP anycast (RFC 7723)", yes, yes, yes, yes, no, AsRegistered),
	row("192.0.0.10/32", "TURN anycast (RFC 8155)", yes, yes, yes, yes, no, AsRegistered),
	row("192.0.0.170/32", "discovery of NAT64 and DNS64 (RFC 7050, RFC 8880)", no, no, no, no, yes, AsRegistered),
	row("192.0.0.171/32", "discovery of NAT64 and DNS64 (RFC 7050, RFC 8880)", no, no, no, no, yes, AsRegistered),
	row("192.0.2.0/24", "documentation, TEST-NET-1 (RFC 5737)", no, no, no, no, no, Example),
	row("192.31.196.0/24", "AS112 (RFC 7535)", yes, yes, yes, yes, no, AsRegistered),
	row("192.52.193.0/24", "AMT (RFC 7450)", yes, yes, yes, yes, no, AsRegistered),
	// Its columns are empty since RFC 7526; routers that still have a way there may use it.
	row("192.88.99.0/24", "6to4 relay anycast, deprecated (RFC 7526)", no, no, no, no, no, Open),
	row("192.88.99.2/32", "6a44 relay anycast (RFC 6751)", yes, yes, yes, no, no, AsRegistered),
	row("192.168.0.0/16", "private use (RFC 1918)", yes, yes, yes, no, no, Private),
	row("192.175.48.0/24", "AS112 (RFC 7534)", yes, yes, yes, yes, no, AsRegistered),
	row("198.18.0.0/15", "benchmarking (RFC 2544)", yes, yes, yes, no, no, AsRegistered),
	row("198.51.100.0/24", "documentation, TEST-NET-2 (RFC 5737)", no, no, no, no, no, Example),
	row("203.0.113.0/24", "documentation, TEST-NET-3 (RFC 5737)", no, no, no, no, no, Example),
	row("224.0.0.0/4", "multicast (RFC 5771)", no, yes, no, no, yes, AsRegistered), // not translated (RFC 7915 section 1.2)
	row("240.0.0.0/4", "reserved (RFC 1112)", no, no, no, no, yes, AsRegistered),
	row("255.255.255.255/32", "limited broadcast (RFC 919)", no, yes, no, no, yes, AsRegistered),
}

// IPv6 is the registry of IPv6, and with it multicast and what RFC 4291 and RFC 3879 have
// taken out of use.
var IPv6 = []Row{
	row("::/96", "IPv4-compatible, deprecated (RFC 4291)", no, no, no, no, yes, AsRegistered),
	row("::/128", "unspecified (RFC 4291)", yes, no, no, no, yes, AsRegistered),
	row("::1/128", "loopback (RFC 4291)", no, no, no, no, yes, AsRegistered),
	row("::ffff:0:0/96", "IPv4-mapped (RFC 4291)", no, no, no, no, yes, AsRegistered),
	row("64:ff9b::/96", "IPv4/IPv6 translation (RFC 6052)", yes, yes, yes, yes, no, AsRegistered),
	row("64:ff9b:1::/48", "IPv4/IPv6 translation, local use (RFC 8215)", yes, yes, yes, no, no, AsRegistered),
	row("100::/64", "discard-only (RFC 6666)", yes, yes, yes, no, no, AsRegistered), // routes discard
	row("100:0:0:1::/64", "dummy prefix (RFC 9780)", yes, no, no, no, no, AsRegistered),
	row("2001::/23", "IETF protocol assignments (RFC 2928)", no, no, no, no, no, Open),
	row("2001::/32", "Teredo (RFC 4380)", yes, yes, yes, no, no, AsRegistered),
	row("2001:1::1/128", "PCP anycast (RFC 7723)", yes, yes, yes, yes, no, AsRegistered),
	row("2001:1::2/128", "TURN anycast (RFC 8155)", yes, yes, yes, yes, no, AsRegistered),
	row("2001:1::3/128", "DNS-SD registration anycast (RFC 9665)", yes, yes, yes, yes, no, AsRegistered),
	row("2001:2::/48", "benchmarking (RFC 5180)", yes, yes, yes, no, no, AsRegistered),
	row("2001:3::/32", "AMT (RFC 7450)", yes, yes, yes, yes, no, AsRegistered),
	row("2001:4:112::/48", "AS112 (RFC 7535)", yes, yes, yes, yes, no, AsRegistered),
	// No software shall treat it apart (RFC 7343 section 3).
	row("2001:10::/28", "ORCHID, deprecated (RFC 4843)", no, no, no, no, no, Open),
	row("2001:20::/28", "ORCHIDv2 (RFC 7343)", yes, yes, yes, yes, no, AsRegistered),
	row("2001:30::/28", "drone remote identification (RFC 9374)", yes, yes, yes, yes, no, AsRegistered),
	row("2001:db8::/32", "documentation (RFC 3849)", no, no, no, no, no, Example),
	row("2002::/16", "6to4 (RFC 3056)", yes, yes, yes, no, no, AsRegistered),
	row("2620:4f:8000::/48", "AS112 (RFC 7534)", yes, yes, yes, yes, no, AsRegistered),
	row("3fff::/20", "documentation (RFC 9637)", no, no, no, no, no, Example),
	row("5f00::/16", "SRv6 segment identifiers (RFC 9602)", yes, yes, yes, no, no, AsRegistered),
	row("fc00::/7", "unique local (RFC 4193)", yes, yes, yes, no, no, AsRegistered),
	row("fe80::/10", "link-local (RFC 4291)", yes, yes, no, no, yes, AsRegistered),
	row("fec0::/10", "site-local, deprecated (RFC 3879)", no, no, no, no, no, AsRegistered), // not routed (section 4)
	row("ff00::/8", "multicast (RFC 4291)", no, yes, no, no, yes, AsRegistered),
}
