// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/internal/special"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
)

// Each row of the registries (RFC 6890), by its first and last address: inside a client's
// address, and as a host on the IPv6 side.
func TestSpecialAddresses(t *testing.T) {
	judge := func(name string, wrong bool, reason string, hand func(b *bench)) {
		b := newBench(t)
		b.trust()
		hand(b)
		if got := slices.Contains(b.dropped(), reason+" 1"); got != wrong {
			t.Errorf("%s: dropped %q", name, b.dropped())
		}
	}
	for _, row := range special.IPv4 {
		for _, a := range testutil.Ends(row.Prefix) {
			bad := !special.Global4(a.As4()) && !special.Example4(a.As4())
			at := netip.AddrPortFrom(a, 40000)
			judge(row.Name+", mapped "+a.String(), bad, "mapped_not_global", func(b *bench) { b.ip(data(host, teredoAddr(server, at), "hello")) })
			judge(row.Name+", server "+a.String(), bad, "server_not_global", func(b *bench) { b.ip(data(host, teredoAddr(a, mapped), "hello")) })
		}
	}
	for _, row := range special.IPv6 {
		for _, a := range testutil.Ends(row.Prefix) {
			raw := a.As16()
			bad := !special.Forwarded6(&raw)
			judge(row.Name+", from "+a.String(), bad, "bad_source", func(b *bench) { b.ip(data(a, client, "hello")) })
			if a.IsMulticast() || !teredo.Prefix.Contains(a) {
				judge(row.Name+", to "+a.String(), bad, "bad_destination", func(b *bench) { b.udp(mapped, data(client, a, "hello")) })
			}
		}
	}
}
