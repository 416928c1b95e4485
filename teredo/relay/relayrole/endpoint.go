// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-net/isthmus/teredo"
)

// maxEndpoint bounds the addresses of an endpoint.
const maxEndpoint = 64

// endpoint is where clients know the relay, in words: its port, and the address that it is
// bound to or those that they may know. Their NATs let in nothing from elsewhere. r.mu is
// held.
func (r *Relay) endpoint() string {
	words := []string{strconv.Itoa(int(r.local.port))}
	global := teredo.GlobalCheck{Allow: r.cfg.AllowPrivate}
	for _, a := range reachedAt(&r.cfg, &r.local) {
		if (global.OK(a) || r.cfg.BehindNAT && a.IsGlobalUnicast()) && len(words) <= maxEndpoint {
			words = append(words, a.String())
		}
	}
	slices.Sort(words[1:])
	return strings.Join(words, " ")
}

// sameEndpoint reports whether those who know the relay at before know it now: the port is
// the same, and no address has gone.
func sameEndpoint(before, now string) bool {
	had, has := strings.Fields(before), strings.Fields(now)
	return len(had) > 0 && had[0] == has[0] && !slices.ContainsFunc(had[1:], func(a string) bool { return !slices.Contains(has[1:], a) })
}

// noteEndpoint leaves word of it for a successor; r.mu is held.
func (r *Relay) noteEndpoint() {
	if r.store == nil {
		return
	}
	if err := r.store.setEndpoint(r.endpoint()); err != nil {
		r.log.Warn("the relay's address cannot be noted for a successor", "error", err)
	}
}

// addresses reads the host's IPv4 addresses; r.mu is held.
func (r *Relay) addresses() (own, broadcasts []netip.Addr, err error) {
	addrs, err := r.host.IPv4()
	for _, a := range addrs {
		own = append(own, a.Prefix.Addr())
		if a.Broadcast.IsValid() {
			broadcasts = append(broadcasts, a.Broadcast)
		}
	}
	return own, broadcasts, err
}
