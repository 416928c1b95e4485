// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
)

// Settings are what a router tells all its links.
type Settings struct {
	// MTU is that of the links.
	MTU int
	// DNS are the name servers, Domains the search list: both are told by advertisements
	// (RFC 8106), and by DHCP.
	DNS     []netip.Addr
	Domains []string
	// PREF64 are the prefixes of NAT64s on the way (RFC 8781).
	PREF64 []netip.Prefix
	// DHCP serves stateless DHCPv6, and says so in advertisements.
	DHCP bool
	// Delegate has DHCP delegate prefixes, where a link has them: see [Link.Delegations].
	Delegate bool
	// UUID tells this server from others (RFC 8415 section 11.5), also after a restart.
	UUID [16]byte
	// Interval is the longest time between two advertisements that nobody asked for; 0 is
	// [DefaultInterval]. What they say holds for three times as long.
	Interval time.Duration
	// Refresh is when terminals ask DHCP again; 0 is a day.
	Refresh time.Duration

	withdrawn struct { // see Replace
		dns    []netip.Addr
		pref64 []netip.Prefix
	}
}

// Bounds of the settings. An interval of a third of the longest lifetime of a router (RFC
// 8319 section 4) is allowed, since each advertisement may have a terminal paged.
const (
	DefaultInterval = 6 * time.Hour
	MinInterval     = 4 * time.Second                 // RFC 4861 section 6.2.1
	MaxInterval     = 65535 / lifetimes * time.Second // which a lifetime can be thrice
	lifetimes       = 3

	maxServers   = 8
	maxDomains   = 8
	maxPREF64    = 4
	maxWithdrawn = 4 // of a kind
)

// Router is the router's end of all links of one kind. It never changes, and may be used
// by several callers at once.
type Router struct {
	mtu      int
	interval time.Duration
	// advertisement is one for a link whose prefix and address are missing; bare has no name servers either, for
	// links with some of their own: so many of them have room.
	advertisement, bare []byte
	room                int
	delegates           bool
	server              []byte                 // the option with the server's DUID; empty: no DHCP
	options             [numDHCPOptions][]byte // by their order in dhcpCodes
}

// New makes the router of links.
func New(s Settings) (*Router, error) {
	if s.Interval == 0 {
		s.Interval = DefaultInterval
	}
	if s.Refresh == 0 {
		s.Refresh = RefreshDefault
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	domains, err := EncodeDomains(s.Domains)
	if err != nil {
		return nil, err
	}
	r := &Router{mtu: s.MTU, interval: s.Interval, delegates: s.Delegate, advertisement: s.advertisement(domains)}
	if len(r.advertisement) > packet.MinMTU {
		s.withdrawn.dns, s.withdrawn.pref64 = nil, nil // they end by their lifetimes
		r.advertisement = s.advertisement(domains)
	}
	if s.DHCP {
		r.server = append(appendOption(nil, OptionServerID, 18), 0, 4) // DUID-UUID
		r.server = append(r.server, s.UUID[:]...)
		r.options = s.dhcpOptions(domains)
	}
	s.DNS, s.withdrawn.dns = nil, nil // which such a link was never told
	r.bare = s.advertisement(domains)
	r.room = max(0, min((packet.MinMTU-len(r.bare)-8)/16, (packet.MinMTU-r.longestReply()+len(r.options[0])-4)/16))
	if len(r.advertisement) > packet.MinMTU || r.longestReply() > packet.MinMTU {
		return nil, errors.New("name servers, search list and prefixes do not fit into a packet of 1280 octets")
	}
	return r, nil
}

func (s *Settings) check() error {
	switch {
	case s.MTU < packet.MinMTU || s.MTU > 65535:
		return fmt.Errorf("an MTU of %d is impossible: IPv6 has %d to 65535", s.MTU, packet.MinMTU)
	case s.Interval < MinInterval || s.Interval > MaxInterval:
		return fmt.Errorf("an interval of %v between advertisements is impossible: it is %v to %v", s.Interval, MinInterval, MaxInterval)
	case s.Refresh < RefreshLeast || s.Refresh/time.Second >= time.Duration(packet.Infinite):
		return fmt.Errorf("DHCP cannot be asked again after %v: it is %v or more", s.Refresh, RefreshLeast)
	case len(s.DNS) > maxServers || len(s.Domains) > maxDomains:
		return fmt.Errorf("%d name servers and %d domains are too many: there are %d and %d at most", len(s.DNS), len(s.Domains), maxServers, maxDomains)
	case len(s.PREF64) > maxPREF64:
		return fmt.Errorf("%d prefixes of NAT64s are too many: there are %d at most", len(s.PREF64), maxPREF64)
	}
	for _, p := range s.PREF64 {
		if _, err := translate.NewPrefix(p); err != nil {
			return err
		}
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
