// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package serverrole

import (
	"context"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/port"
)

// watchAddresses tells people when an address of the server leaves this host,
// and when it is back, until the watch ends. The sockets stay bound and work
// again by themselves.
func (s *Server) watchAddresses(ctx context.Context, changes <-chan port.Change) error {
	s.lookForAddresses() // one may have gone before the watch began
	look := false
	return host.Bursts(ctx, changes, func(c port.Change) { look = look || s.addresses.Concerns(c) }, func() {
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
	var list []netip.Addr
	for _, group := range s.conns {
		if len(group) > 0 { // none in single-address mode
			list = append(list, group[0].LocalAddr().Addr())
		}
	}
	s.addresses.Look(s.host, list, s.log)
}
