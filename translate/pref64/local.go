// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pref64

import "net/netip"

// Local are the prefixes by which a NAT64 of this host translates. It offers them to
// the instances beside it.
type Local []netip.Prefix
