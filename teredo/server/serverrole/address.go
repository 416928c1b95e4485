// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package serverrole

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/teredo/tunnel"
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
	for change := range changes {
		look := matters(change)
		tunnel.Settle(ctx, changes, func(more port.Change) { look = look || matters(more) })
		if look {
			s.lookForAddresses()
		}
	}
	if ctx.Err() == nil {
		return errors.New("the kernel ended the watch of the network configuration: restart isthmus")
	}
	return nil
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
