// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/link"
)

// reply6 is what a terminal needs of an Advertise or a Reply.
type reply6 struct {
	client, server []byte // nil: not named
	preference     byte
	failed         bool // it has no answer
	refresh        time.Duration
	longest        time.Duration // INF_MAX_RT; 0: not told
	longestSolicit time.Duration // SOL_MAX_RT; 0: not told
	servers        []netip.Addr
	domains        []string
	prefixes       association6
}

// association6 is the IA_PD of a terminal (RFC 8415 section 21.21).
type association6 struct {
	there         bool
	renew, rebind time.Duration // T1 and T2; 0: as the terminal likes
	status        uint16
	leases        []lease6
}

// lease6 is a prefix with its lifetimes (RFC 8415 section 21.22), and what is left out of it (RFC 6603).
type lease6 struct {
	prefix, excluded netip.Prefix
	preferred, valid time.Duration
}

// parse reads the options. What is known and malformed spoils all of it (RFC 8415 section 16).
func (r *reply6) parse(b []byte) bool {
	r.refresh = link.RefreshDefault
	return allDHCP6(b, r.option)
}

// allDHCP6 reports whether options are whole, and take has taken each.
func allDHCP6(b []byte, take func(code uint16, v []byte) bool) bool {
	for len(b) > 0 {
		if len(b) < 4 || len(b) < 4+int(binary.BigEndian.Uint16(b[2:])) {
			return false
		}
		end := 4 + int(binary.BigEndian.Uint16(b[2:]))
		if !take(binary.BigEndian.Uint16(b), b[4:end]) {
			return false
		}
		b = b[end:]
	}
	return true
}

func (r *reply6) option(code uint16, v []byte) (ok bool) {
	switch code {
	case link.OptionClientID:
		r.client = v
	case link.OptionServerID:
		r.server = v
		return len(v) >= link.ShortestDUID && len(v) <= link.LongestDUID
	case link.OptionPreference:
		if len(v) != 1 {
			return false
		}
		r.preference = v[0]
	case link.OptionStatus:
		r.failed = len(v) >= 2 && binary.BigEndian.Uint16(v) != 0
		return len(v) >= 2
	case link.OptionDNS:
		for rest := v; len(rest) >= 16; rest = rest[16:] {
			r.servers = addServer(r.servers, rest[:16])
		}
		return len(v)%16 == 0
	case link.OptionDomains:
		r.domains, ok = parseDomains(v)
		return ok
	case link.OptionRefresh:
		if len(v) != 4 {
			return false
		}
		r.refresh = max(seconds32(v), link.RefreshLeast) // RFC 8415 section 21.23
	case link.OptionInfMaxRT:
		return maxRepeat6(v, &r.longest)
	case link.OptionSolMaxRT:
		return maxRepeat6(v, &r.longestSolicit)
	case link.OptionIAPD:
		return r.prefixes.parse(v)
	}
	return true
}

// maxRepeat6 reads SOL_MAX_RT or INF_MAX_RT, which are of no effect out of their bounds (RFC 8415 sections 21.24
// and 21.25).
func maxRepeat6(v []byte, into *time.Duration) bool {
	if len(v) != 4 {
		return false
	}
	if d := seconds32(v); d >= leastMaxRepeat && d <= mostMaxRepeat {
		*into = d
	}
	return true
}

// parse reads an association. One of another client's, or with times that cannot be, is passed over.
func (a *association6) parse(v []byte) bool {
	if len(v) < 12 {
		return false
	}
	in := association6{there: true, renew: seconds32(v[4:]), rebind: seconds32(v[8:])}
	if !allDHCP6(v[12:], in.option) {
		return false
	}
	if binary.BigEndian.Uint32(v) == iaid6 && (in.renew <= in.rebind || in.rebind == 0) {
		*a = in
	}
	return true
}

func (a *association6) option(code uint16, v []byte) bool {
	switch code {
	case link.OptionStatus:
		if len(v) < 2 {
			return false
		}
		a.status = binary.BigEndian.Uint16(v)
	case link.OptionPrefix:
		if len(v) < 25 {
			return false
		}
		l := lease6{preferred: seconds32(v), valid: seconds32(v[4:])}
		l.prefix = netip.PrefixFrom(netip.AddrFrom16([16]byte(v[9:])), int(v[8])).Masked()
		if !allDHCP6(v[25:], l.option) {
			return false
		}
		if l.usable() && len(a.leases) < maxDelegated {
			a.leases = append(a.leases, l)
		}
	}
	return true
}

func (l *lease6) option(code uint16, v []byte) bool {
	if code == link.OptionExclude && l.prefix.IsValid() {
		excluded, ok := link.ParseExcluded(l.prefix, v)
		l.excluded = excluded
		return ok
	}
	return code != link.OptionStatus || len(v) >= 2
}

// usable reports whether a terminal can make use of a prefix: it is global, has a /64, and is not to be preferred
// for longer than it is valid (RFC 8415 section 21.22).
func (l *lease6) usable() bool {
	return l.prefix.IsValid() && l.prefix.Bits() > 0 && l.prefix.Bits() <= 64 && l.prefix.Addr().IsGlobalUnicast() && l.preferred <= l.valid
}
