// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package keys parses what the roles of translation have alike in the
// configuration, and is for their declarations of keys.
//
//house:keys
package keys

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/translate"
)

// DNSPort need not be written.
const DNSPort = 53

// Prefix parses a prefix of RFC 6052.
var Prefix = key.Text(translate.WellKnownPrefix.String(), func(s string) (netip.Prefix, *key.Fault) {
	p, f := key.Prefix6(s)
	if f != nil {
		return p, f
	}
	if _, err := translate.NewPrefix(p); err != nil {
		return p, key.Wrong("write 64:ff9b::/96, or a /32, /40, /48, /56, /64 or /96 of your own", "%v", err)
	}
	return p, nil
})

// NameServer parses the address of a name server, with a port if it is not [DNSPort].
var NameServer = key.Text("2001:db8::53", func(s string) (netip.AddrPort, *key.Fault) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a.Unmap(), DNSPort), nil
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 {
		return a, key.Wrong("write it like 2001:db8::53, [2001:db8::53]:5353 or 192.0.2.53:53", "%q is not an address, with a port or without", s)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
})
