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
	four, six := p.path.nextHops()
	return max(maxError6, min(mtu+headerGrowth, six, four+headerGrowth))
}

// nextHops returns the MTUs of the next hops on either side, as far as they are known.
func (p *Path) nextHops() (four, six int) {
	return least(p.MTU4, p.Link4), least(p.MTU6, p.Link6)
}

// least returns the smaller of two MTUs, of which 0 is not known; if neither is, more than
// any link takes.
func least(a, b int) int {
	const unknown = 1 << 20
	if a == 0 {
		a = unknown
	}
	if b == 0 {
		b = unknown
	}
	return min(a, b)
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
	four, six := p.path.nextHops()
	out := min(int(min(mtu, 1<<20))-smaller, four, six-headerGrowth)
	return max(smallest4, min(out, 65535))
}
