// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/special"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
)

// Each row of the registries (RFC 6890), by its first and last address: inside of a peer's
// address, and as a host on the IPv6 side.
func TestSpecialAddresses(t *testing.T) {
	judge := func(name, reason string, bad bool, hand func(b *bench)) {
		b := newQualified(t)
		hand(b)
		if got := strings.Contains(b.dropped(), reason+" 1"); got != bad {
			t.Errorf("%s: dropped %q", name, b.dropped())
		}
	}
	for _, row := range special.IPv4 {
		for _, a := range testutil.Ends(row.Prefix) {
			bad := !special.Global4(a.As4()) && !special.Example4(a.As4())
			at := netip.AddrPortFrom(a, 99)
			there := teredo.Addr{Prefix: teredo.Prefix, Server: peerServer, Mapped: at}.IP()
			judge(row.Name+", to "+a.String(), "not_global", bad, func(b *bench) { b.ip(data(b.address(), there, "hi")) })
			judge(row.Name+", from "+a.String(), "not_global", bad, func(b *bench) { b.udp(at, data(there, b.address(), "hi")) })
			there = teredo.Addr{Prefix: teredo.Prefix, Server: a, Mapped: peerMapping}.IP()
			judge(row.Name+", by the server "+a.String(), "not_global", bad, func(b *bench) { b.ip(data(b.address(), there, "hi")) })
		}
	}
	for _, row := range special.IPv6 {
		for _, a := range testutil.Ends(row.Prefix) {
			if teredo.Prefix.Contains(a) {
				continue
			}
			raw := a.As16()
			bad := !special.Forwarded6(&raw)
			judge(row.Name+", to "+a.String(), "bad_destination", bad, func(b *bench) { b.ip(data(b.address(), a, "hi")) })
			judge(row.Name+", from "+a.String(), "bad_source", bad, func(b *bench) { b.udp(relayAddr, data(a, b.address(), "hi")) })
		}
	}
}
