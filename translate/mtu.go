// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

// headerGrowth is what an IPv6 header is larger than an IPv4 header without options.
const headerGrowth = ipv6HeaderLen - ipv4HeaderLen

// mtuTo6 translates the MTU of a Fragmentation Needed message (RFC 7915 section 4.2).
// A router that reports none has it guessed from the length of the packet that it
// refused.
func (p *pass) mtuTo6(mtu, innerTotal int) int {
	if mtu == 0 {
		mtu = p.t.plateauBelow(innerTotal)
	}
	mtu += headerGrowth
	if p.path.MTU6 != 0 {
		mtu = min(mtu, p.path.MTU6)
	}
	if p.path.MTU4 != 0 {
		mtu = min(mtu, p.path.MTU4+headerGrowth)
	}
	return max(maxError6, mtu)
}

// plateauBelow returns the largest plateau that is less than total and at least 1280,
// or 0 (RFC 7915 section 4.2, RFC 1191 section 7).
func (t *Translator) plateauBelow(total int) int {
	for _, mtu := range t.plateaus {
		if mtu < total {
			if mtu < maxError6 {
				return 0
			}
			return mtu
		}
	}
	return 0
}

// mtuTo4 translates the MTU of a Packet Too Big message (RFC 7915 section 5.2). When
// the refused packet had a Fragment Header, that too is missing on the IPv4 side. No
// IPv4 link has less than 68, and 0 would say that the router reports none.
func (p *pass) mtuTo4(mtu uint32, innerHasFragment bool) int {
	smaller := headerGrowth
	if innerHasFragment {
		smaller += fragmentHeaderLen
	}
	out := int(min(mtu, 1<<20)) - smaller
	if p.path.MTU4 != 0 {
		out = min(out, p.path.MTU4)
	}
	if p.path.MTU6 != 0 {
		out = min(out, p.path.MTU6-headerGrowth)
	}
	return max(smallest4, min(out, 65535))
}
