// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Settings are what a router tells all its links.
type Settings struct {
	// MTU is that of the links.
	MTU int
	// DNS are the name servers, Domains the search list: both are told by advertisements
	// (RFC 8106), and by DHCP.
	DNS     []netip.Addr
	Domains []string
	// DHCP serves stateless DHCPv6, and says so in advertisements.
	DHCP bool
	// UUID tells this server from others (RFC 8415 section 11.5), also after a restart.
	UUID [16]byte
	// Interval is the longest time between two advertisements that nobody asked for; 0 is
	// [DefaultInterval]. What they say holds for three times as long.
	Interval time.Duration
	// Refresh is when terminals ask DHCP again; 0 is a day.
	Refresh time.Duration
}

// Bounds of the settings. An interval of a third of the longest lifetime of a router (RFC
// 8319 section 4) is allowed, since each advertisement may have a terminal paged.
const (
	DefaultInterval = 6 * time.Hour
	MinInterval     = 4 * time.Second                 // RFC 4861 section 6.2.1
	MaxInterval     = 65535 / lifetimes * time.Second // which a lifetime can be thrice
	lifetimes       = 3

	defaultRefresh = 24 * time.Hour
	minRefresh     = 600 * time.Second // IRT_MINIMUM of RFC 8415 section 7.6

	maxServers = 8
	maxDomains = 8
)

// Router is the router's end of all links of one kind. It never changes, and may be used
// by several callers at once.
type Router struct {
	mtu      int
	interval time.Duration
	// advertisement is one for a link whose prefix and address are missing.
	advertisement []byte
	server        []byte                 // the option with the server's DUID; empty: no DHCP
	options       [numDHCPOptions][]byte // by their order in dhcpCodes
}

// New makes the router of links.
func New(s Settings) (*Router, error) {
	if s.Interval == 0 {
		s.Interval = DefaultInterval
	}
	if s.Refresh == 0 {
		s.Refresh = defaultRefresh
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	domains, err := EncodeDomains(s.Domains)
	if err != nil {
		return nil, err
	}
	r := &Router{mtu: s.MTU, interval: s.Interval, advertisement: s.advertisement(domains)}
	if s.DHCP {
		r.server = append(appendOption(nil, optionServerID, 18), 0, 4) // DUID-UUID
		r.server = append(r.server, s.UUID[:]...)
		r.options = s.dhcpOptions(domains)
	}
	if len(r.advertisement) > packet.MinMTU || r.longestReply() > packet.MinMTU {
		return nil, errors.New("name servers and search list do not fit into a packet of 1280 octets")
	}
	return r, nil
}

func (s *Settings) check() error {
	switch {
	case s.MTU < packet.MinMTU || s.MTU > 65535:
		return fmt.Errorf("an MTU of %d is impossible: IPv6 has %d to 65535", s.MTU, packet.MinMTU)
	case s.Interval < MinInterval || s.Interval > MaxInterval:
		return fmt.Errorf("an interval of %v between advertisements is impossible: it is %v to %v", s.Interval, MinInterval, MaxInterval)
	case s.Refresh < minRefresh || s.Refresh/time.Second >= time.Duration(packet.Infinite):
		return fmt.Errorf("DHCP cannot be asked again after %v: it is %v or more", s.Refresh, minRefresh)
	case len(s.DNS) > maxServers || len(s.Domains) > maxDomains:
		return fmt.Errorf("%d name servers and %d domains are too many: there are %d and %d at most", len(s.DNS), len(s.Domains), maxServers, maxDomains)
	}
	for _, a := range s.DNS {
		if !a.Is6() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() {
			return fmt.Errorf("%s is no IPv6 address of a name server", a)
		}
	}
	return nil
}

// EncodeDomains writes names as sequences of labels without compression (RFC 1035 section
// 3.1, RFC 8415 section 10).
func EncodeDomains(names []string) (b []byte, err error) {
	for _, name := range names {
		begin, label := len(b), len(b)
		b = append(b, 0)
		for i := range len(name) {
			if name[i] != '.' {
				b = append(b, name[i])
				continue
			}
			if i == len(name)-1 {
				break // the root may be written
			}
			b[label] = byte(min(len(b)-label-1, 64))
			if b[label] == 0 || b[label] > 63 {
				return nil, fmt.Errorf("%q is no domain", name)
			}
			label = len(b)
			b = append(b, 0)
		}
		b[label] = byte(min(len(b)-label-1, 64))
		if b = append(b, 0); b[label] == 0 || b[label] > 63 || len(b)-begin > 255 {
			return nil, fmt.Errorf("%q is no domain", name)
		}
	}
	return b, nil
}

// Places in an advertisement.
const (
	advertisedOptions = packet.IPv6HeaderLen + 16
	advertisedPrefix  = advertisedOptions + 16
)

// advertisement makes one (RFC 4861 section 4.2) that says of the prefix that addresses
// under it are not on the link, and without an end (RFC 7066 section 2.3).
func (s *Settings) advertisement(domains []byte) []byte {
	const currentHopLimit, otherConfiguration = 64, 0x40
	lifetime := uint32(lifetimes * s.Interval / time.Second)
	m := make([]byte, 12, packet.MinMTU)
	m[0] = currentHopLimit
	if s.DHCP {
		m[1] = otherConfiguration
	}
	binary.BigEndian.PutUint16(m[2:], uint16(lifetime))
	m = packet.AppendPrefixInformation(m, Link{}.prefix(), packet.PrefixAutonomous, packet.Infinite, packet.Infinite)
	m = packet.AppendMTU(m, uint32(s.MTU))
	if len(s.DNS) > 0 {
		m = append(m, packet.NDResolvers, byte(1+2*len(s.DNS)), 0, 0)
		m = appendAddresses(binary.BigEndian.AppendUint32(m, lifetime), s.DNS)
	}
	if len(domains) > 0 {
		m = AppendSearchList(m, domains, lifetime)
	}
	return packet.AppendICMPv6(nil, RouterAddress, packet.AllNodes, packet.NDHopLimit, packet.ICMPv6RouterAdvert, 0, m)
}

// AppendSearchList appends the option with a search list (RFC 8106 section 5.2), as
// [EncodeDomains] has written it.
func AppendSearchList(b, domains []byte, lifetime uint32) []byte {
	units := (8 + len(domains) + 7) / 8
	b = append(b, packet.NDSearchList, byte(min(units, 255)), 0, 0)
	b = append(binary.BigEndian.AppendUint32(b, lifetime), domains...)
	return append(b, make([]byte, units*8-8-len(domains))...)
}

func appendAddresses(b []byte, list []netip.Addr) []byte {
	for _, a := range list {
		raw := a.As16()
		b = append(b, raw[:]...)
	}
	return b
}
