// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
)

// signs announces by routes of the kernel, which a routing daemon of this host
// exports.
type signs struct {
	routes *port.Signs
	note   *os.File           // that they are there; nil: it could not be written
	cancel context.CancelFunc // of what keeps them
	kept   errgroup.Group

	mu    sync.Mutex
	known []netip.Prefix
}

func openSigns(cfg config.Announce, owner string, log *slog.Logger) (*signs, error) {
	routes, err := port.OpenSigns(cfg.Table, cfg.Protocol)
	if err != nil {
		return nil, err
	}
	s := &signs{routes: routes}
	if s.note, err = noteRoutes(cfg.Table, cfg.Protocol, owner); err != nil {
		log.Warn("routes that announce prefixes would stay if this process were killed and none came that announces by the same table", "error", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	if err := host.NewKeeper(routes.Host, host.KeptDevice{}, log).Start(ctx, &s.kept); err != nil {
		cancel()
		_ = s.note.Close()
		routes.Close()
		return nil, err
	}
	return s, nil
}

// Announce implements [Speaker].
func (s *signs) Announce(prefixes ...netip.Prefix) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range prefixes {
		if !slices.Contains(s.known, p) {
			s.known = append(s.known, p)
		}
	}
	return s.routes.Set(prefixes...)
}

// Withdraw implements [Speaker].
func (s *signs) Withdraw(prefixes ...netip.Prefix) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = slices.DeleteFunc(s.known, func(p netip.Prefix) bool { return slices.Contains(prefixes, p) })
	return s.routes.Remove(prefixes...)
}

// AddPeers implements [Speaker]: what a process before this one has left and this one
// does not announce goes.
func (s *signs) AddPeers() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.routes.Keep(s.known...)
}

// Reconfigure implements [Speaker]; a route has no attributes.
func (s *signs) Reconfigure(config.Announce) error { return nil }

// Neighbors implements [Speaker]; the routing daemon knows them.
func (s *signs) Neighbors() []role.Neighbor { return nil }

// Heard implements [Speaker]; the routing daemon knows.
func (s *signs) Heard() (some bool, since time.Time) { return true, time.Time{} }

// Close implements [Speaker].
func (s *signs) Close(leave bool) error {
	s.cancel()
	err := s.kept.Wait()
	if !leave {
		err = errors.Join(err, s.Withdraw(slices.Clone(s.known)...), s.AddPeers())
		if err == nil && s.note != nil {
			err = os.Remove(s.note.Name())
		}
	}
	_ = s.note.Close() // of nil it is an error, no more
	s.routes.Close()
	return err
}
