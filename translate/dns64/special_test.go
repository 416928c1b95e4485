// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/special"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// Each row of the registry (RFC 6890), by its first and last address: nothing leads to what
// no packet is forwarded to, whichever way a prefix is chosen, and the well-known prefix to
// nothing that is not global.
func TestSpecialAddresses(t *testing.T) {
	p := policy(t, func(s *Settings) {
		s.Prefixes = []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96"), netip.MustParsePrefix("64:ff9b::/96")}
	})
	ranged := policy(t, func(s *Settings) {
		s.Ranges = []Range{{IPv4: netip.MustParsePrefix("0.0.0.0/0"), Prefix: netip.MustParsePrefix("2001:db8:65::/96")}}
	})
	for _, row := range special.IPv4 {
		for _, a := range testutil.Ends(row.Prefix) {
			want := 0
			if special.Forwarded4(a.As4()) {
				want++
			}
			if got := len(ranged.appendAddresses(nil, a)); got != want {
				t.Errorf("%s %s by its range: %d addresses, want %d", row.Name, a, got, want)
			}
			if special.Global4(a.As4()) {
				want++
			}
			if got := len(p.appendAddresses(nil, a)); got != want {
				t.Errorf("%s %s: %d addresses, want %d", row.Name, a, got, want)
			}
		}
	}
}
