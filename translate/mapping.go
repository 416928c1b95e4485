// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

// origin says by which rule an address was mapped.
type origin uint8

const (
	byNothing  origin = iota
	byMapping         // RFC 7757
	byPrefix          // RFC 6052
	bySettings        // RFC 6791 pool, own address or a binding
)

// to6 maps an IPv4 address (RFC 7915 section 6), by an explicit mapping first if
// those may be used.
func (t *Translator) to6(a [4]byte, explicit bool) ([16]byte, Reason) {
	if explicit {
		if out, ok := t.mappings.to6(a); ok {
			return out, ReasonNone
		}
	}
	if len(t.prefixes) == 0 {
		return [16]byte{}, ReasonSourceUnmapped
	}
	p := &t.prefixes[0]
	if p.wellKnown && !t.nonGlobal && isNonGlobal(a) {
		return [16]byte{}, ReasonNonGlobal
	}
	return p.embed(a), ReasonNone
}

// to4 maps an IPv6 address.
func (t *Translator) to4(a *[16]byte) ([4]byte, origin, Reason) {
	if out, ok := t.mappings.to4(a); ok {
		return out, byMapping, ReasonNone
	}
	for i := range t.longestFirst {
		p := &t.longestFirst[i]
		if !p.contains(a) {
			continue
		}
		out := p.extract(a)
		if p.wellKnown && !t.nonGlobal && isNonGlobal(out) {
			return out, byPrefix, ReasonNonGlobal
		}
		return out, byPrefix, ReasonNone
	}
	return [4]byte{}, byNothing, ReasonSourceUnmapped
}

// asDestination turns the reason for a source into that for a destination.
func asDestination(r Reason) Reason {
	if r == ReasonSourceUnmapped {
		return ReasonDestinationUnmapped
	}
	return r
}

// routerSource6 returns the source of an ICMPv4 error from an address that no rule
// maps (RFC 6791, the IPv4 side).
func (t *Translator) routerSource6(router [4]byte, known *Routers) ([16]byte, bool) {
	if a, ok := t.pooled6(router, known); ok {
		return a, true
	}
	return t.own6.As16(), t.own6.IsValid()
}

// pooled6 returns the address of the pool that stands for an IPv4 router, if there is a
// pool.
func (t *Translator) pooled6(router [4]byte, known *Routers) (a [16]byte, ok bool) {
	if t.pool6.size == 0 {
		return a, false
	}
	n := uint64(0)
	if known != nil {
		var wide [16]byte
		copy(wide[:], router[:])
		n = known.place(&known.from4, &wide, t.pool6.size)
	}
	return t.pool6.at(n, 16), true
}

// routerSource4 returns the source of an ICMPv6 error from an address that has no
// IPv4 form (RFC 6791 section 5).
func (t *Translator) routerSource4(router *[16]byte, known *Routers) ([4]byte, bool) {
	if a, ok := t.pooled4(router, known); ok {
		return a, true
	}
	if !t.own4.IsValid() {
		return [4]byte{}, false
	}
	return t.own4.As4(), true
}

// pooled4 returns the address of the pool that stands for an IPv6 router, if there is a
// pool.
func (t *Translator) pooled4(router *[16]byte, known *Routers) (a [4]byte, ok bool) {
	if t.pool4.size == 0 {
		return a, false
	}
	n := uint64(0)
	if known != nil {
		n = known.place(&known.from6, router, t.pool4.size)
	}
	wide := t.pool4.at(n, 4)
	return [4]byte(wide[:4]), true
}
