// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/special"
	"github.com/isthmus-net/isthmus/teredo"
)

// isTeredo reports whether a lies below one of the served Teredo prefixes.
func (r *Relay) isTeredo(a *[16]byte) bool {
	for i := range r.prefixes {
		if [4]byte(a[:4]) == r.prefixes[i] {
			return true
		}
	}
	return false
}

// isHost reports whether a can be one host beyond this link, which packets are
// forwarded from and to; nothing below ::/64 is.
func isHost(a *[16]byte) bool { return special.Forwarded6(a) && [8]byte(a[:8]) != [8]byte{} }

// isOwn reports whether a is one of the host's IPv4 addresses.
func (r *Relay) isOwn(a netip.Addr) bool { return slices.Contains(r.cfg.Own, a) }

// checkMapping applies the rules on where a client may be.
func (r *Relay) checkMapping(at netip.AddrPort) (why Reason, ok bool) {
	switch {
	case r.isOwn(at.Addr()):
		return OwnAddress, false
	case !r.cfg.Global.OK(at.Addr()) || at.Port() == 0:
		return MappedNotGlobal, false
	}
	return 0, true
}

// checkClient applies the rules on the two IPv4 addresses inside a Teredo
// address, before anything is sent to either (RFC 4380 sections 5.4.1 and 7.4.3).
func (r *Relay) checkClient(a *[16]byte) (why Reason, ok bool) {
	mapped, server := teredo.Mapped(a), teredo.Server(a)
	if why, ok := r.checkMapping(mapped); !ok {
		return why, false
	}
	switch {
	case !r.cfg.Global.OK(server):
		return ServerNotGlobal, false
	case mapped == netip.AddrPortFrom(server, teredo.Port):
		return MappedToServer, false
	}
	return 0, true
}

// serves reports whether clients may send to a.
func (s *shared) serves(a *[16]byte) bool {
	addr := netip.AddrFrom16(*a)
	for _, p := range s.serve {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
