// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import "net/netip"

// inside are the addresses of terminals of a network: those that no packet from the network
// may have as its source. Of IPv6 it holds the upper halves.
type inside []span

type span struct{ first, last uint64 }

func (in inside) has(n uint64) bool {
	for _, s := range in {
		if s.first <= n && n <= s.last {
			return true
		}
	}
	return false
}

// setInside collects the addresses of all access points of a network. The node's own address
// there is none of them, though it may be of a pool's prefix. Where packets between terminals
// take the way through the network, they come back from it.
func (v *vrf) setInside(apns []*access, number uint8) {
	v.inside4, v.inside6, v.speaker = nil, nil, speaker{silent: true}
	for _, a := range apns {
		if a.VRF != number || a.gone {
			continue
		}
		v.speaker = a.speaker()
		if a.UserToUser == UserExternal {
			continue
		}
		for _, p := range a.pools() {
			if p.Addr().Is4() {
				v.inside4 = append(v.inside4, spans4(p, a.Router4)...)
			} else {
				v.inside6 = append(v.inside6, spans6(p, a.Router6)...)
			}
		}
	}
}

// spans4 are the addresses of a prefix without one.
func spans4(p netip.Prefix, without netip.Addr) []span {
	first := uint64(number4(p.Addr()))
	all := span{first, first | (1<<(32-p.Bits()) - 1)}
	if !p.Contains(without) {
		return []span{all}
	}
	return all.without(uint64(number4(without)))
}

// spans6 are its counterpart: without the address's /64, which no terminal has.
func spans6(p netip.Prefix, without netip.Addr) []span {
	first := prefix6(p.Addr())
	all := span{first, first | (1<<(prefixBits-p.Bits()) - 1)}
	if !p.Contains(without) {
		return []span{all}
	}
	return all.without(prefix6(without))
}

// without are the numbers of a span but for one of them.
func (s span) without(n uint64) (list []span) {
	if n > s.first {
		list = append(list, span{s.first, n - 1})
	}
	if n < s.last {
		list = append(list, span{n + 1, s.last})
	}
	return list
}

// setBeside has the networks that are not apart know of each other: one routing table leads from each of them into
// all others, and so past what their access points allow among terminals.
func setBeside(vrfs []*vrf, apns []*access) {
	joined := make([]bool, len(vrfs))
	for _, a := range apns {
		joined[a.VRF] = joined[a.VRF] || !a.Apart
	}
	for i, v := range vrfs {
		v.beside = nil
		for j, other := range vrfs {
			if i != j && joined[i] && joined[j] {
				v.beside = append(v.beside, other)
			}
		}
	}
}

// owner4 returns the session that has an IPv4 address in a network, or in one beside it; where there is none,
// inside reports whether terminals have such addresses.
func (e *Engine) owner4(v *vrf, n uint32) (owner handle, inside bool) {
	owner, inside = e.find4(v, n), v.inside4.has(uint64(n))
	for _, other := range v.beside {
		if owner != 0 {
			break
		}
		owner, inside = e.find4(other, n), inside || other.inside4.has(uint64(n))
	}
	return owner, inside
}

// owner6 is its counterpart, of the upper half of an IPv6 address.
func (e *Engine) owner6(v *vrf, n uint64) (owner handle, inside bool) {
	owner, inside = e.find6(v, n), v.inside6.has(n)
	for _, other := range v.beside {
		if owner != 0 {
			break
		}
		owner, inside = e.find6(other, n), inside || other.inside6.has(n)
	}
	return owner, inside
}

// isInside reports whether a source is one that no packet from the network may have, by who has it.
func (e *Engine) isInside(owner handle, inside bool) bool { return inside || e.ofTerminal(owner) }

// ofTerminal reports whether a session's address is one that no packet from the network may
// have as its source, also one of a pool that is gone.
func (e *Engine) ofTerminal(h handle) bool {
	return h != 0 && e.accessPoint(e.sessions.at(h)).UserToUser != UserExternal
}
