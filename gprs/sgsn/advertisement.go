// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

// advertisement is what a terminal needs of a router advertisement (RFC 4861 section 4.2).
type advertisement struct {
	router   netip.Addr
	lifetime time.Duration // of the router; 0: it is none
	mtu      int           // 0: not told
	// prefix is the first of 64 bits from which addresses are made, not valid if there is none:
	// an advertisement to a terminal has one at most (RFC 6459 section 5.2).
	prefix           netip.Addr
	valid, preferred time.Duration
	servers          []netip.Addr // of names; nil: not told, none: those known are no more
	ended            []netip.Addr // those that are not to be used any more, however they were told
	nat64            []pref64.Option
	domains          []string // the search list, likewise
	more             bool     // there is more to be had by DHCP
}

// Flags of an advertisement (RFC 4861 section 4.2). With either there is information to be had by
// DHCP; addresses are not (RFC 6459 section 5.2).
const (
	managed            = 0x80
	otherConfiguration = 0x40
)

// parseAdvertisement reads an advertisement and applies the checks of RFC 4861 section 6.1.2.
func parseAdvertisement(p packet.IPv6) (ra advertisement, ok bool) {
	m, ok := p.ICMPv6()
	if !ok || len(m) < 16 || m[1] != 0 || p.HopLimit() != packet.NDHopLimit || !packet.NDOptionsWellFormed(m[16:]) || !p.Src().IsLinkLocalUnicast() {
		return ra, false
	}
	ra.router, ra.lifetime = p.Src(), seconds16(m[6:])
	ra.more = m[5]&(managed|otherConfiguration) != 0
	for b := m[16:]; len(b) > 0; b = b[8*int(b[1]):] {
		ra.option(b[:8*int(b[1])])
	}
	return ra, true
}

func seconds16(b []byte) time.Duration {
	return time.Duration(binary.BigEndian.Uint16(b)) * time.Second
}

func seconds32(b []byte) time.Duration {
	return time.Duration(binary.BigEndian.Uint32(b)) * time.Second
}

// option takes one option; those that make no sense are passed over.
func (ra *advertisement) option(b []byte) {
	switch b[0] {
	case packet.NDMTU:
		if mtu := binary.BigEndian.Uint32(b[4:]); len(b) == 8 && mtu >= packet.MinMTU && mtu <= 1<<16-1 {
			ra.mtu = int(mtu)
		}
	case packet.NDPrefixInformation:
		if len(b) == 32 && !ra.prefix.IsValid() {
			ra.prefixOption(b)
		}
	case packet.NDResolvers:
		if len(b) >= 24 && len(b)%16 == 8 {
			ra.serversOption(b)
		}
	case packet.NDSearchList:
		if len(b) >= 16 {
			ra.domainsOption(b)
		}
	default:
		if o, ok := pref64.ParseOption(b); ok && len(ra.nat64) < maxNAT64 {
			ra.nat64 = append(ra.nat64, o)
		}
	}
}

// prefixOption takes a prefix (RFC 4862 section 5.5.3 a to d).
func (ra *advertisement) prefixOption(b []byte) {
	prefix := network(netip.AddrFrom16([16]byte(b[16:32])))
	valid, preferred := seconds32(b[4:]), seconds32(b[8:])
	if b[2] != 64 || b[3]&packet.PrefixAutonomous == 0 || prefix.IsLinkLocalUnicast() || prefix.IsMulticast() || preferred > valid {
		return
	}
	ra.prefix, ra.valid, ra.preferred = prefix, valid, preferred
}

// serversOption takes name servers; a lifetime of zero ends those known.
func (ra *advertisement) serversOption(b []byte) {
	if ra.servers == nil {
		ra.servers = []netip.Addr{}
	}
	to := &ra.servers
	if seconds32(b[4:]) == 0 {
		to = &ra.ended
	}
	for b = b[8:]; len(b) >= 16 && len(*to) < maxServers; b = b[16:] {
		*to = append(*to, netip.AddrFrom16([16]byte(b)))
	}
}

// domainsOption takes the search list (RFC 8106 section 5.2); a lifetime of zero ends what is
// known. Zeros fill it up.
func (ra *advertisement) domainsOption(b []byte) {
	if ra.domains == nil {
		ra.domains = []string{}
	}
	if list, ok := parseDomains(b[8:]); ok && seconds32(b[4:]) != 0 {
		ra.domains = append(ra.domains, list[:min(len(list), maxDomains-len(ra.domains))]...)
	}
}
