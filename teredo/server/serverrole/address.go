// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package serverrole

import (
	"context"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/port"
)

// watchAddresses tells people when an address of the server leaves this host,
// and when it is back, until the watch ends. The sockets stay bound and work
// again by themselves.
func (s *Server) watchAddresses(ctx context.Context, changes <-chan port.Change) error {
	s.lookForAddresses() // one may have gone before the watch began
	// The kernel tells of an address first and changes its routes behind that.
	matters := func(c port.Change) bool {
		return c.Kind == port.Overrun || c.Family == 4 && (c.Kind == port.AddressChanged || c.Kind == port.RouteChanged)
	}
	look := false
	return host.Bursts(ctx, changes, func(c port.Change) { look = look || matters(c) }, func() {
		if look {
			s.lookForAddresses()
		}
		look = false
	})
}

// lookForAddresses notes which of the server's addresses this host lacks.
func (s *Server) lookForAddresses() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.host == nil {
		return // stopped meanwhile
	}
	var missing []netip.Addr
	for _, group := range s.conns {
		if len(group) == 0 {
			continue // single-address mode
		}
		a := group[0].LocalAddr().Addr()
		here, was := s.host.Local(a), slices.Contains(s.missing, a)
		switch {
		case !here && !was:
			s.log.Warn("the address has gone from this host, so clients get no answer from it: add it again (ip address add), or change address and restart", "address", a)
		case here && was:
			s.log.Info("the address is back, and served again", "address", a)
		}
		if !here {
			missing = append(missing, a)
		}
	}
	s.missing = missing
}
