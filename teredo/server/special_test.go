// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/special"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
)

// Each row of the registries (RFC 6890), by its first and last address: as who sends, inside
// of a client's address, and as the source of a bubble. Advertised addresses are checked too.
func TestSpecialAddresses(t *testing.T) {
	check := func(name, from, in string, reason Reason, bad bool) {
		t.Helper()
		e, out := newEngine(t, nil), packet.Batch{}
		e.HandleUDP(netip.MustParseAddrPort(from), Primary, testutil.Unhex(t, in), now, &out)
		if got := e.Counters().Dropped[reason] == 1; got != bad {
			t.Errorf("%s: dropped as %q", name, drops(e))
		}
	}
	for _, row := range special.IPv4 {
		for _, a := range testutil.Ends(row.Prefix) {
			bad, at := !special.Global4(a.As4()) && !special.Example4(a.As4()), netip.AddrPortFrom(a, 40000)
			check(row.Name+", from "+a.String(), at.String(), rsMiredo, SourceNotGlobal, bad)
			there := teredo.Addr{Prefix: teredo.Prefix, Server: netip.MustParseAddr("203.0.113.1"), Mapped: at}.IP()
			check(row.Name+", to "+a.String(), otherAddr, bubble(255, native, hex.EncodeToString(there.AsSlice())), MappedNotGlobal, bad)
			cfg := config()
			cfg.AdvertisedPrimary = a
			if _, err := New(cfg); (err != nil) != bad {
				t.Errorf("%s, %s advertised: %v", row.Name, a, err)
			}
		}
	}
	for _, row := range special.IPv6 {
		for _, a := range testutil.Ends(row.Prefix) {
			raw := a.As16()
			if bad := !special.Forwarded6(&raw) && !a.IsLinkLocalUnicast(); !teredo.Prefix.Contains(a) {
				check(row.Name+", from "+a.String(), otherAddr, bubble(255, hex.EncodeToString(raw[:]), peer), SourceNotUnicast, bad)
			}
		}
	}
}
