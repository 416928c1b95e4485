// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// stored are the SYNs from the IPv4 side that found nothing to open: each waits for a SYN
// of the IPv6 side, or is answered with an error (RFC 6146 section 3.5.2.2, V4 INIT).
// All wait equally long, so they end in the order in which they came.
type stored struct {
	index     map[state.Key4]int32
	slots     []storedSYN
	free      []int32
	oldest    int32
	newest    int32
	perSource int
	shares    [1024]int32 // by a hash of the source
	seed      uint64
}

// storedSYN is one of them, with as much of its packet as an error quotes of a SYN.
type storedSYN struct {
	key          state.Key4
	deadline     time.Duration
	size         int
	packet       [128]byte
	share        int
	older, newer int32
}

func newStored(l *Limits, seed uint64) stored {
	f := stored{
		index: make(map[state.Key4]int32, l.StoredSYNs), slots: make([]storedSYN, l.StoredSYNs),
		perSource: l.StoredSYNsSource, seed: seed, oldest: noSlot, newest: noSlot,
	}
	for i := len(f.slots) - 1; i >= 0; i-- {
		f.free = append(f.free, int32(i))
	}
	return f
}

// add stores a SYN.
func (f *stored) add(k *state.Key4, ip []byte, deadline time.Duration) Reason {
	if _, ok := f.index[*k]; ok {
		return StoredSYN // sent again
	}
	share := int(mix(f.seed, netip.AddrFrom4(k.Peer).As16()) % uint64(len(f.shares)))
	switch {
	case int(f.shares[share]) >= f.perSource:
		return StoredSYNsSource
	case len(f.free) == 0:
		return StoredSYNsFull
	}
	i := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	f.index[*k] = i
	f.shares[share]++
	e := &f.slots[i]
	e.key, e.deadline, e.share, e.older, e.newer = *k, deadline, share, f.newest, noSlot
	e.size = copy(e.packet[:], ip)
	if f.newest == noSlot {
		f.oldest = i
	} else {
		f.slots[f.newest].newer = i
	}
	f.newest = i
	return none
}

// remove ends the one in a slot.
func (f *stored) remove(i int32) {
	e := &f.slots[i]
	if e.older == noSlot {
		f.oldest = e.newer
	} else {
		f.slots[e.older].newer = e.newer
	}
	if e.newer == noSlot {
		f.newest = e.older
	} else {
		f.slots[e.newer].older = e.older
	}
	delete(f.index, e.key)
	f.shares[e.share]--
	f.free = append(f.free, i)
}

// next returns when the oldest has waited long enough; ok is false when there is none.
func (f *stored) next() (at time.Duration, ok bool) {
	if f.oldest == noSlot {
		return 0, false
	}
	return f.slots[f.oldest].deadline, true
}

// store keeps a SYN for IncomingSYN.
func (e *Engine) store(c *call, ip []byte, k *state.Key4) Reason {
	if r := e.stored.add(k, ip[:totalLength4(ip)], c.mono+e.settings.Timers.IncomingSYN); r != none {
		return r
	}
	if e.waiting != nil {
		e.waiting.Wait(peerOf(k))
	}
	return StoredSYN
}

// unstore ends a stored SYN; false when there is none.
func (e *Engine) unstore(k *state.Key4) bool {
	i, ok := e.stored.index[*k]
	if !ok {
		return false
	}
	e.stored.remove(i)
	if e.waiting != nil {
		e.waiting.Done(peerOf(k))
	}
	return true
}

// expireStored answers SYNs that waited in vain with Port Unreachable.
func (e *Engine) expireStored(c *call) {
	for range 256 {
		at, ok := e.stored.next()
		if !ok || at > c.mono {
			return
		}
		s := &e.stored.slots[e.stored.oldest]
		key := s.key
		e.stats.Dropped[StoredSYNUnanswered]++
		e.refuse4(c, s.packet[:s.size], ErrorStoredSYN, icmpUnreachable, codePort, StoredSYNUnanswered)
		e.unstore(&key)
	}
}

// peerOf is Z,z.
func peerOf(k *state.Key4) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(k.Peer), k.PeerPort)
}
