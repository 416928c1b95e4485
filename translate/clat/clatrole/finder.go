// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate/pref64"
	"github.com/isthmus-net/isthmus/translate/pref64/discovery"
)

// finder looks for the prefix on the uplink, as long as the link stays the same.
type finder struct {
	cfg      *Settings
	log      *slog.Logger
	fallback func() []netip.AddrPort
	at       port.Uplink6
	sets     <-chan pref64.Set // nil: no one tells of any
	moves    chan netip.Prefix // holds one, the latest
	cancel   context.CancelFunc
}

// follow has the prefixes of the uplink told, and reports whether that is another place than
// before. It looks for another only if it may. Where the network alone is another, what its
// routers have said already is not asked for again.
func (f *finder) follow(ctx context.Context, at port.Uplink6, may bool) (restarted bool, err error) {
	sameLink := f.at.Name == at.Name && f.at.Index == at.Index
	same := sameLink && f.at.Subnet == at.Subnet
	if len(f.cfg.Prefixes) > 0 || at.Name == "" || same && (f.sets != nil || !may) {
		return false, nil
	}
	f.at = at
	if sameLink && f.sets != nil {
		select {
		case <-f.moves: // outdated
		default:
		}
		f.moves <- at.Subnet
		return false, nil
	}
	f.stop()
	ctx, cancel := context.WithCancel(ctx)
	f.moves = make(chan netip.Prefix, 1)
	sets, err := discovery.Watch(ctx, discovery.Settings{Interface: at.Name, Resolvers: f.cfg.Resolvers, Fallback: f.fallback, Moves: f.moves, Log: f.log})
	if err != nil {
		cancel()
		return true, fmt.Errorf("the prefix of the NAT64 cannot be looked for on %s: %w", at.Name, err)
	}
	f.sets, f.cancel = sets, cancel
	return true, nil
}

func (f *finder) stop() {
	if f.cancel != nil {
		f.cancel()
	}
	f.sets, f.cancel = nil, nil
}

// hostResolvers are the name servers of the host that a link leads to.
func hostResolvers() []netip.AddrPort {
	list, err := discovery.SystemResolvers()
	if err != nil {
		return nil // there are none yet
	}
	return beyond(list)
}

// beyond leaves those out that cannot be asked by way of a link with IPv6 alone, as one on the
// host itself.
func beyond(list []netip.AddrPort) []netip.AddrPort {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.AddrPort) bool { return !a.Addr().Is6() || a.Addr().IsLoopback() })
}
