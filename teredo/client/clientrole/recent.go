// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// recentPeers bounds the peers whose way is kept open on paths that stand by,
	// and so the tests that a path in reserve makes: 8 in 20 s.
	recentPeers = 8
	// recentFor is how long a destination counts after the last packet to it.
	recentFor = 30 * time.Second
)

// recent remembers the destinations that the host sent to last.
type recent struct {
	mu   sync.Mutex
	list [recentPeers]destination // the newest first
}

type destination struct {
	addr [16]byte
	at   time.Time // zero: none
}

// note reports a packet to addr, and whether it is a new destination.
func (r *recent) note(addr *[16]byte, now time.Time) (fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := 0
	for i < recentPeers-1 && r.list[i].addr != *addr {
		i++
	}
	fresh = r.list[i].addr != *addr || now.Sub(r.list[i].at) > recentFor
	copy(r.list[1:i+1], r.list[:i])
	r.list[0] = destination{*addr, now}
	return fresh
}

// peers lists what was sent to within recentFor.
func (r *recent) peers(now time.Time) (list []netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.list {
		if !d.at.IsZero() && now.Sub(d.at) <= recentFor {
			list = append(list, netip.AddrFrom16(d.addr))
		}
	}
	return list
}
