// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// stored are the SYNs from the IPv4 side that found nothing to open: each waits for a SYN
// of the IPv6 side, or is answered with an error (RFC 6146 section 3.5.2.2, V4 INIT), as
// resources permit. All wait equally long, so they end in the order in which they came.
//
// No one is refused. Whoever holds most gives way, as with fragments: a client that has the
// port a SYN is for, a host that has sessions, or all others for an address of the pool, who
// may be anybody's forgery (docs/decisions/0018).
type stored struct {
	index    map[state.Key4]int32
	slots    []storedSYN
	links    links
	free     []int32
	all      list
	accounts accounts
}

// storedSYN is one of them, with as much of its packet as an error quotes of a SYN.
type storedSYN struct {
	key      state.Key4
	account  int32
	deadline time.Duration
	size     int
	packet   [128]byte
}

func newStored(l *Limits, length int) stored {
	f := stored{
		index: make(map[state.Key4]int32, l.StoredSYNs), slots: make([]storedSYN, l.StoredSYNs),
		links: make(links, l.StoredSYNs), all: list{noSlot, noSlot},
		accounts: newAccounts(l.StoredSYNs, length, [things]int{packets: l.StoredSYNsSource}),
	}
	for i := len(f.slots) - 1; i >= 0; i-- {
		f.free = append(f.free, int32(i))
	}
	return f
}

// loser returns the one that gives way to another of an account, and why; noSlot if none
// must.
func (f *stored) loser(of accountKey) (i int32, why Reason) {
	own := f.accounts.find(of)
	switch {
	case own != noSlot && f.accounts.beyond(own, packets, 1):
		why = StoredSYNsSource
	case len(f.free) == 0:
		own, why = f.accounts.greatest(of, packets, 1), StoredSYNsFull
	default:
		return noSlot, none
	}
	return f.accounts.slots[own].lists[0].oldest, why
}

// add stores a SYN. There is room.
func (f *stored) add(k *state.Key4, of accountKey, ip []byte, deadline time.Duration) {
	i := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	f.index[*k] = i
	e := &f.slots[i]
	e.key, e.deadline, e.account = *k, deadline, f.accounts.open(of)
	e.size = copy(e.packet[:], ip)
	f.accounts.hold(e.account, packets, 1)
	f.links.push(&f.all, byDeadline, i)
	f.links.push(&f.accounts.slots[e.account].lists[0], ofAccount, i)
}

// remove ends the one in a slot.
func (f *stored) remove(i int32) {
	e := &f.slots[i]
	f.links.cut(&f.all, byDeadline, i)
	f.links.cut(&f.accounts.slots[e.account].lists[0], ofAccount, i)
	f.accounts.hold(e.account, packets, -1)
	delete(f.index, e.key)
	f.free = append(f.free, i)
}

// next returns when the oldest has waited long enough; ok is false when there is none.
func (f *stored) next() (at time.Duration, ok bool) {
	if f.all.oldest == noSlot {
		return 0, false
	}
	return f.slots[f.all.oldest].deadline, true
}

// store keeps a SYN on an account for IncomingSYN. One that gives way is forgotten in
// silence: an answer before 6 s are over is forbidden (RFC 5382 REQ-4).
func (e *Engine) store(c *call, ip []byte, k *state.Key4, of accountKey) Reason {
	f := &e.stored
	if _, ok := f.index[*k]; ok {
		return StoredSYN // sent again
	}
	switch {
	case len(f.slots) == 0:
		return StoredSYNsFull
	case f.accounts.share[packets] == 0:
		return StoredSYNsSource
	}
	if i, why := f.loser(of); i != noSlot {
		loser := f.slots[i].key
		e.stats.Dropped[why]++
		e.unstore(&loser)
	}
	f.add(k, of, ip[:totalLength4(ip)], c.mono+e.settings.Timers.IncomingSYN)
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
		s := &e.stored.slots[e.stored.all.oldest]
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
