// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/port"
)

// Addresses are those of the host where an instance has sockets. It tells people when the host
// loses one, and when it is back; the sockets stay bound, and work again by themselves.
type Addresses struct {
	// Without is what does not work without one, for the log.
	Without string

	mu      sync.Mutex
	missing []netip.Addr
}

// Watch looks after a list of addresses, in the network namespace of the calling thread, until
// ctx is done. What was gone before is known when it returns.
func (a *Addresses) Watch(ctx context.Context, group *errgroup.Group, list []netip.Addr, log *slog.Logger) error {
	changes, err := port.Watch(ctx)
	if err != nil {
		return err
	}
	at, err := port.OpenHost()
	if err != nil {
		return err
	}
	a.look(at, list, log)
	group.Go(func() error {
		defer at.Abandon()
		matters := false
		// The kernel tells of an address first and changes its routes behind that.
		return Bursts(ctx, changes, func(c port.Change) { matters = matters || c.Kind != port.RouteChanged || c.Local }, func() {
			if matters {
				a.look(at, list, log)
			}
			matters = false
		})
	})
	return nil
}

// look notes which addresses the host lacks.
func (a *Addresses) look(host *port.Host, list []netip.Addr, log *slog.Logger) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var missing []netip.Addr
	for _, one := range list {
		why, remedy := host.Lacks(one)
		was := slices.Contains(a.missing, one)
		switch {
		case why != "" && !was:
			log.Warn("the address "+why+", so "+a.Without+": "+remedy, "address", one)
		case why == "" && was:
			log.Info("the address is back, and served again", "address", one)
		}
		if why != "" {
			missing = append(missing, one)
		}
	}
	a.missing = missing
}

// Missing are those that the host lacked when it was looked at last.
func (a *Addresses) Missing() []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.missing)
}
