// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pref64

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Lengths of messages of Neighbor Discovery without options (RFC 4861 sections 4.1 and 4.2).
const (
	solicitationLen  = 8
	advertisementLen = 16
)

// Bounds of what is read of one advertisement.
const (
	maxOptions  = 16
	maxNetworks = 16
	// MaxResolvers is also how many name servers are asked in turn.
	MaxResolvers = 8
)

// Advertisement is what matters here of a Router Advertisement.
type Advertisement struct {
	// RouterLifetime is how long the sender serves as a default router; 0: not at all.
	RouterLifetime time.Duration
	// Options are the PREF64 options, in their order.
	Options []Option
	// Resolvers are name servers of the link.
	Resolvers []Resolver
	// Networks are those of the link that the sender announces.
	Networks []Network
}

// Resolver is a name server that a router names, and for how long it may be used; 0 is the end of
// that (RFC 8106 section 5.1).
type Resolver struct {
	Addr     netip.Addr
	Lifetime time.Duration
}

// Network is one that a router announces for addresses of hosts (RFC 4861 section 4.6.2), and
// for how long these are preferred; 0 is the end of that: they are deprecated or invalid.
type Network struct {
	Prefix    netip.Prefix
	Preferred time.Duration
}

var (
	errNoAdvertisement = errors.New("this is no router advertisement")
	errBadOption       = errors.New("an option of the advertisement has a length of zero, or leads beyond the message")
)

// AppendAdvertisement appends a Router Advertisement of a router that is no one's default
// router and says nothing but the options. The kernel fills the checksum in.
func AppendAdvertisement(b []byte, options []Option) ([]byte, error) {
	b = append(b, packet.ICMPv6RouterAdvert, 0, 0, 0)
	b = append(b, make([]byte, advertisementLen-4)...) // all of it: unspecified
	for _, o := range options {
		var err error
		if b, err = AppendOption(b, o); err != nil {
			return b, err
		}
	}
	return b, nil
}

// ParseAdvertisement reads an ICMPv6 message from its type on. A message with a faulty
// option is worth nothing (RFC 4861 section 6.1.2).
func ParseAdvertisement(b []byte) (a Advertisement, err error) {
	if len(b) < advertisementLen || b[0] != packet.ICMPv6RouterAdvert || b[1] != 0 {
		return a, errNoAdvertisement
	}
	a.RouterLifetime = time.Duration(binary.BigEndian.Uint16(b[6:])) * time.Second
	if !packet.NDOptionsWellFormed(b[advertisementLen:]) {
		return Advertisement{}, errBadOption
	}
	for rest := b[advertisementLen:]; len(rest) > 0; {
		length := int(rest[1]) * 8
		if o, ok := ParseOption(rest[:length]); ok && len(a.Options) < maxOptions {
			a.Options = append(a.Options, o)
		}
		a.Resolvers = appendResolvers(a.Resolvers, rest[:length])
		a.Networks = appendNetwork(a.Networks, rest[:length])
		rest = rest[length:]
	}
	return a, nil
}

// appendResolvers appends the addresses of an RDNSS option:
//
//	25 | length | reserved (2 octets) | lifetime in s (4 octets) | addresses
func appendResolvers(to []Resolver, option []byte) []Resolver {
	const header = 8
	if option[0] != packet.NDResolvers || len(option) < header {
		return to
	}
	lifetime := time.Duration(binary.BigEndian.Uint32(option[4:])) * time.Second
	for rest := option[header:]; len(rest) >= 16 && len(to) < MaxResolvers; rest = rest[16:] {
		if a := netip.AddrFrom16([16]byte(rest)); !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() {
			to = append(to, Resolver{a, lifetime})
		}
	}
	return to
}

// appendNetwork appends the network of a Prefix Information option:
//
//	3 | 4 | length | flags | two lifetimes in s, reserved (4 octets each) | prefix
func appendNetwork(to []Network, option []byte) []Network {
	if option[0] != packet.NDPrefixInformation || len(option) != 32 || len(to) == maxNetworks {
		return to
	}
	valid, preferred := binary.BigEndian.Uint32(option[4:]), binary.BigEndian.Uint32(option[8:])
	p, err := netip.AddrFrom16([16]byte(option[16:])).Prefix(int(option[2]))
	if err != nil || !p.Addr().IsGlobalUnicast() {
		return to
	}
	return append(to, Network{p, time.Duration(min(valid, preferred)) * time.Second})
}

// AppendSolicitation appends a Router Solicitation without options.
func AppendSolicitation(b []byte) []byte {
	return append(b, packet.ICMPv6RouterSolicitation, 0, 0, 0, 0, 0, 0, 0)
}

// IsSolicitation reports whether an ICMPv6 message is a Router Solicitation that a router
// answers.
func IsSolicitation(b []byte) bool {
	return len(b) >= solicitationLen && b[0] == packet.ICMPv6RouterSolicitation && b[1] == 0 && packet.NDOptionsWellFormed(b[solicitationLen:])
}
