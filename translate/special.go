// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/special"
)

// isNonGlobal reports whether the well-known prefix must not represent an address (RFC
// 6052 section 3.1).
func isNonGlobal(a [4]byte) bool { return !special.Global4(a) }

// illegal4 reports whether no forwarded packet may have a as source or destination (RFC
// 1812 section 5.3.7, RFC 3927 section 2.7, RFC 6890).
func illegal4(a [4]byte) bool { return !special.Forwarded4(a) }

// illegal6 is the IPv6 counterpart (RFC 4291 sections 2.5 to 2.7).
func illegal6(a *[16]byte) bool { return !special.Forwarded6(a) }

// Represents reports whether the prefix may stand for an IPv4 address: none does for one
// that no packet is forwarded to, and the well-known one does for global addresses alone
// (RFC 6052 section 3.1).
func (p *Prefix) Represents(a netip.Addr) bool {
	return Forwarded(a) && (!p.wellKnown || !NonGlobal(a))
}
