// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

// hairpins reports whether the packet is to be turned round at once (RFC 7757 section
// 4.2.2): the address that decides came by RFC 6052 and has an explicit mapping.
func (p *pass) hairpins() bool {
	if p.t.hairpin != HairpinIntrinsic || p.bound != nil || p.hairpin.by != byPrefix {
		return false
	}
	_, ok := p.t.mappings.to6(p.hairpin.addr)
	return ok
}

// turn makes the IPv4 packet and sends it back to IPv6.
func (p *pass) turn(h *header6, f *fields4) fault {
	if f.total > 65535 {
		return fault{ReasonTooBig, uint32(max(maxError6, p.path.MTU6))}
	}
	return p.back(p.build4(h, f))
}

// back translates an IPv4 packet made here once more, without taking another hop.
func (p *pass) back(ip []byte) fault {
	inner, r := parseIPv4(ip)
	if r != ReasonNone {
		return refuse(r)
	}
	second := pass{t: p.t, path: p.path, out: p.out, turned: true}
	f := second.toIPv6(&inner)
	if f.reason == ReasonTooBig {
		// The sender is an IPv6 node: it must hear the MTU of the IPv6 link.
		f.param = uint32(max(maxError6, p.path.MTU6))
	}
	return f
}
