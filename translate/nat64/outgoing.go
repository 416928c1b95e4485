// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// target is where an IPv6 packet goes: Z, and the number of the prefix that its
// destination has.
type target struct {
	peer   [4]byte
	prefix uint8
}

// slot6 is one prefix of pool6. A prefix that was taken out of the settings stays in its
// place, for the sessions that use it, and makes no new ones.
type slot6 struct {
	prefix translate.Prefix
	out    bool
	gone   bool // out, and no session has it: it keeps its place alone
}

// destination finds the IPv4 address in a destination, by the longest prefix of pool6
// that it has (RFC 6052 section 2.3).
func (e *Engine) destination(dst netip.Addr) (target, Reason) {
	best, bits := -1, -1
	var peer netip.Addr
	for i := range e.prefixes {
		p := &e.prefixes[i].prefix
		if n := p.Prefix().Bits(); n > bits && !e.prefixes[i].gone {
			if a, ok := p.Extract(dst); ok {
				best, bits, peer = i, n, a
			}
		}
	}
	switch {
	case best < 0:
		return target{}, NotPool6
	case !translate.Forwarded(peer):
		return target{}, Reason(translate.ReasonIllegalDestination)
	case !e.mayEmbed(best, peer):
		return target{}, Reason(translate.ReasonNonGlobal)
	case e.closed.has(peer) && !e.pool.has(peer): // what is for the pool is turned round
		return target{}, OwnAddress
	}
	return target{peer.As4(), uint8(best)}, none
}

// mayEmbed reports whether a prefix may represent an IPv4 address (RFC 6052 section 3.1).
func (e *Engine) mayEmbed(prefix int, a netip.Addr) bool {
	return !e.prefixes[prefix].prefix.WellKnown() || e.settings.Translate.NonGlobal || !translate.NonGlobal(a)
}

// inPool6 reports whether an address has a prefix of pool6. A packet from there would
// loop (RFC 6146 section 5.4).
func (e *Engine) inPool6(a netip.Addr) bool {
	for i := range e.prefixes {
		if !e.prefixes[i].gone && e.prefixes[i].prefix.Prefix().Contains(a) {
			return true
		}
	}
	return false
}

// embed returns the IPv6 form of an IPv4 address that packets of a session have.
func (e *Engine) embed(prefix uint8, a netip.Addr) (netip.Addr, Reason) {
	if int(prefix) >= len(e.prefixes) {
		return netip.Addr{}, NoSession // of an earlier engine with more prefixes
	}
	if !e.mayEmbed(int(prefix), a) {
		return netip.Addr{}, Reason(translate.ReasonNonGlobal)
	}
	return e.prefixes[prefix].prefix.Embed(a), none
}

// tuple4 computes the outgoing tuple of an IPv6 packet (RFC 6146 section 3.6): T,t to
// Z,z. In an ICMP query t is the identifier.
func tuple4(s *state.Session) translate.Endpoints {
	return translate.Endpoints{
		Src: netip.AddrFrom4(s.Pool), Dst: netip.AddrFrom4(s.Peer),
		Ports: true, SrcPort: s.PoolPort, DstPort: s.PeerPort,
	}
}

// tuple6 computes that of an IPv4 packet: Y',z to X',x.
func (e *Engine) tuple6(s *state.Session) (translate.Endpoints, Reason) {
	peer, r := e.embed(s.Prefix, netip.AddrFrom4(s.Peer))
	if r != none {
		return translate.Endpoints{}, r
	}
	ends := translate.Endpoints{
		Src: peer, Dst: netip.AddrFrom16(s.Client),
		Ports: true, SrcPort: s.PeerPort, DstPort: s.ClientPort,
	}
	if s.Transport == state.ICMP {
		ends.SrcPort = s.ClientPort
	}
	return ends, none
}
