// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package serverrole

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo/tunnel"
)

var _ role.Announced = (*Server)(nil)

// AnnouncedPrefixes implements [role.Announced].
func (s *Server) AnnouncedPrefixes() []netip.Prefix {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cfg.Announce {
		return nil
	}
	return s.cfg.own()
}

// CheckSelf implements [role.Announced]: a datagram goes through each socket and
// comes back.
func (s *Server) CheckSelf(ctx context.Context) error {
	s.mu.Lock()
	var paths []tunnel.SelfPath
	for _, group := range s.conns {
		if len(group) > 0 {
			paths = append(paths, tunnel.SelfPath{Name: "server", Service: group[0].LocalAddr()})
		}
	}
	missing := s.addresses.Missing()
	s.mu.Unlock()
	if len(missing) > 0 {
		return fmt.Errorf("this host has lost the address %s", missing[0])
	}
	if len(paths) == 0 {
		return errors.New("the server has no socket")
	}
	for _, path := range paths {
		if err := s.self.Check(ctx, path); err != nil {
			return err
		}
	}
	return nil
}
