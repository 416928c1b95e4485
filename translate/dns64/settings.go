// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/miekg/dns"

	"github.com/isthmus-net/isthmus/translate"
)

// Bounds of [Settings.MaxUDP].
const (
	MinUDP     = 512  // RFC 1035 section 4.2.1
	DefaultUDP = 1232 // what fits into IPv6's minimum MTU of 1280 octets
	MaxUDP     = 4096 // RFC 6891 section 6.2.5
)

// ShareOfClient is which part of the cache, of the queries that wait and of the connections
// one client may hold.
const ShareOfClient = 8

// MaxPrefixes bounds the records that one A record can become.
const MaxPrefixes = 8

// DefaultPrefix is that of AAAA records where none is configured.
var DefaultPrefix = translate.WellKnownPrefix

// DefaultExclude are the addresses that count as no answer unless told otherwise: no
// IPv6 host can be reached by them (RFC 6147 section 5.1.4).
var DefaultExclude = []netip.Prefix{netip.MustParsePrefix("::ffff:0:0/96")}

// Range has the addresses of an IPv4 range made with a prefix of its own (RFC 6147
// section 5).
type Range struct {
	IPv4 netip.Prefix
	// Prefix is that of RFC 6052. Not valid: no AAAA is made of these addresses.
	Prefix netip.Prefix
}

// Settings are what the operator decides.
type Settings struct {
	// Prefixes are those of the translators, in the order of the answers; each A
	// record becomes one AAAA record by each. None: the well-known prefix.
	Prefixes []netip.Prefix
	// Ranges go before Prefixes; of several that hold an address the longest counts.
	Ranges []Range
	// Exclude are prefixes of AAAA records that count as no answer.
	Exclude []netip.Prefix
	// Clients are those who are answered.
	Clients []netip.Prefix
	// ClientLength is how many bits of an IPv6 address tell one client from another; 0 is
	// DefaultClientLength. Of IPv4, each address is one.
	ClientLength int
	// NoSynthesis are clients that get what the upstream says: hosts with IPv4 of
	// their own.
	NoSynthesis []netip.Prefix
	// PTRName is what all reverse queries below the prefixes are answered with.
	// Empty: with a CNAME into in-addr.arpa.
	PTRName string
	// MaxUDP bounds answers over UDP, in octets; 0 is DefaultUDP.
	MaxUDP int
}

// Policy is a set of checked settings. It never changes, so that several threads may
// share it.
type Policy struct {
	prefixes    []translate.Prefix
	ranges      []ipv4Range
	reverse     []translate.Prefix // all whose reverse names are ours
	exclude     []netip.Prefix
	clients     []netip.Prefix
	noSynthesis []netip.Prefix
	ptrName     string
	maxUDP      int

	clientLength int
}

// New checks settings.
func New(s Settings) (*Policy, error) {
	p := &Policy{
		exclude: s.Exclude, clients: s.Clients, noSynthesis: s.NoSynthesis,
		maxUDP: s.MaxUDP, clientLength: s.ClientLength,
	}
	if len(s.Clients) == 0 {
		return nil, errors.New("no one may use this DNS64; list its clients")
	}
	if p.clientLength == 0 {
		p.clientLength = DefaultClientLength
	}
	if p.clientLength < 1 || p.clientLength > 128 {
		return nil, fmt.Errorf("a client cannot be a prefix of %d bits; write 1 to 128", s.ClientLength)
	}
	if p.maxUDP == 0 {
		p.maxUDP = DefaultUDP
	}
	if p.maxUDP < MinUDP || p.maxUDP > MaxUDP {
		return nil, fmt.Errorf("answers over UDP of %d octets are out of range; write %d to %d", s.MaxUDP, MinUDP, MaxUDP)
	}
	if s.PTRName != "" {
		if _, ok := dns.IsDomainName(s.PTRName); !ok {
			return nil, fmt.Errorf("%q is no domain name", s.PTRName)
		}
		p.ptrName = dns.Fqdn(s.PTRName)
	}
	return p, p.setPrefixes(s)
}

// setPrefixes fills what addresses are made of.
func (p *Policy) setPrefixes(s Settings) error {
	if len(s.Prefixes) > MaxPrefixes {
		return fmt.Errorf("%d prefixes are too many; name at most %d", len(s.Prefixes), MaxPrefixes)
	}
	wanted := s.Prefixes
	if len(wanted) == 0 {
		wanted = []netip.Prefix{DefaultPrefix} // RFC 6147 section 5.2
	}
	for _, prefix := range wanted {
		made, err := translate.NewPrefix(prefix)
		if err != nil {
			return err
		}
		p.prefixes = append(p.prefixes, made)
		p.addReverse(made)
	}
	for _, r := range s.Ranges {
		made, err := newRange(r)
		if err != nil {
			return err
		}
		p.ranges = append(p.ranges, made)
		if made.synthesises {
			p.addReverse(made.prefix)
		}
	}
	wellKnown, err := translate.NewPrefix(translate.WellKnownPrefix)
	if err != nil {
		return err
	}
	p.addReverse(wellKnown) // RFC 6147 section 5.3.1: it too, whatever is configured
	return nil
}

func (p *Policy) addReverse(prefix translate.Prefix) {
	for _, known := range p.reverse {
		if known.Prefix() == prefix.Prefix() {
			return
		}
	}
	p.reverse = append(p.reverse, prefix)
}

// within reports whether one of the prefixes holds the address.
func within(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
