// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import (
	"net/netip"
)

// Entry is the hot record of one peer.
type Entry struct {
	Key     [16]byte // IPv6 address
	Rx      Instant  // last reception from the peer (RFC 4380 section 5.2)
	Tx      Instant  // last transmission to the peer
	self    int32
	newer   int32 // neighbours in the age list; 0 ends it
	older   int32
	cold    int32 // index of the cold state; 0 when there is none
	ip      [4]byte
	port    uint16
	trusted bool

	// Modern is the role's own note that the peer speaks RFC 6081.
	Modern bool
}

// IP returns the peer's IPv6 address.
func (e *Entry) IP() netip.Addr { return netip.AddrFrom16(e.Key) }

// Mapped returns the IPv4 address and port that packets to the peer go to.
func (e *Entry) Mapped() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(e.ip), e.port)
}

// MappedIs reports whether a is the peer's mapped address and port.
func (e *Entry) MappedIs(a netip.AddrPort) bool {
	return e.port == a.Port() && a.Addr() == netip.AddrFrom4(e.ip)
}

// SetMapped records the IPv4 address and port that packets to the peer go to.
func (e *Entry) SetMapped(a netip.AddrPort) { e.ip, e.port = a.Addr().As4(), a.Port() }

// Trusted reports whether the mapped address has been proved (RFC 4380 section 5.2,
// "status of the peer").
func (e *Entry) Trusted() bool { return e.trusted }

// Limits bound a table.
type Limits struct {
	Peers     int // entries in all; at least 1
	Untrusted int // of which not trusted; at least 1
}

// Table is a bounded list of peers by IPv6 address, with cold state of type C.
// When a limit is reached the least recently heard untrusted peer is evicted;
// trusted ones go only when there is no untrusted one left. Pointers to entries
// stay valid until the entry is deleted or evicted.
type Table[C any] struct {
	limits  Limits
	onEvict func(*Entry, *C)
	filter  Filter // nil: none

	index  map[[16]byte]int32
	chunks [][]Entry // entries never move, so pointers to them hold
	used   int32     // entries ever handed out
	free   int32     // list of freed entries, linked by newer

	trusted, untrusted ageList

	colds     []*coldState[C]
	freeColds []int32
	spare     []*coldState[C]
	deadlines deadlineHeap[C]

	evictions uint64
}

type coldState[C any] struct {
	state C
	entry int32
	at    Instant
	pos   int // place in the deadline heap; -1 when it has no deadline
}

const chunkBits = 10

// Filter is told which addresses are in a table, so that who cannot look into the
// table, a fast path outside this program, knows of most addresses that they are
// not: a Bloom filter, say.
type Filter interface {
	Add(key [16]byte)
	Remove(key [16]byte)
}

// SetFilter has a filter told what comes and goes from now on.
func (t *Table[C]) SetFilter(f Filter) { t.filter = f }

// NewTable makes a table. onEvict, if not nil, is called for an entry that loses
// its place to another, before it is deleted; its cold state may be nil.
func NewTable[C any](limits Limits, onEvict func(*Entry, *C)) *Table[C] {
	limits.Peers = max(limits.Peers, 1)
	limits.Untrusted = min(max(limits.Untrusted, 1), limits.Peers)
	return &Table[C]{
		limits:  limits,
		onEvict: onEvict,
		index:   make(map[[16]byte]int32),
		colds:   []*coldState[C]{nil},
	}
}

// Len returns the number of peers, and how many of them are trusted.
func (t *Table[C]) Len() (all, trusted int) {
	return t.trusted.len + t.untrusted.len, t.trusted.len
}

// Evictions returns how many peers have lost their place to others.
func (t *Table[C]) Evictions() uint64 { return t.evictions }

// Lookup returns the entry of an address, or nil.
func (t *Table[C]) Lookup(key *[16]byte) *Entry {
	if i, ok := t.index[*key]; ok {
		return t.entry(i)
	}
	return nil
}

// Insert returns the entry of an address and makes an untrusted one, with both
// times at longAgo, if there is none. fresh reports whether it did. The role gives
// longAgo as 30 seconds before now (RFC 4380 sections 5.2.3 and 5.2.6).
func (t *Table[C]) Insert(key *[16]byte, longAgo Instant) (e *Entry, fresh bool) {
	if e := t.Lookup(key); e != nil {
		return e, false
	}
	t.makeRoom()
	e = t.take()
	*e = Entry{Key: *key, Rx: longAgo, Tx: longAgo, self: e.self}
	t.index[*key] = e.self
	t.untrusted.pushNewest(t, e)
	if t.filter != nil {
		t.filter.Add(*key)
	}
	return e, true
}

func (t *Table[C]) makeRoom() {
	all := t.trusted.len + t.untrusted.len
	switch {
	case t.untrusted.len >= t.limits.Untrusted, all >= t.limits.Peers && t.untrusted.len > 0:
		t.Evict(t.entry(t.untrusted.oldest))
	case all >= t.limits.Peers:
		t.Evict(t.entry(t.trusted.oldest))
	}
}

// Evict deletes an entry that loses its place to another.
func (t *Table[C]) Evict(e *Entry) {
	t.evictions++
	if t.onEvict != nil {
		t.onEvict(e, t.Cold(e))
	}
	t.Delete(e)
}

// Delete removes an entry with its cold state and deadline.
func (t *Table[C]) Delete(e *Entry) {
	t.Release(e)
	t.ages(e).remove(t, e)
	delete(t.index, e.Key)
	if t.filter != nil {
		t.filter.Remove(e.Key)
	}
	e.newer = t.free
	t.free = e.self
}

// Trust marks an entry trusted with the mapping that its last packet came from,
// and as heard at now.
func (t *Table[C]) Trust(e *Entry, mapped netip.AddrPort, now Instant) {
	e.SetMapped(mapped)
	t.setTrusted(e, true)
	e.Rx = now
}

// Distrust takes an entry's trust away.
func (t *Table[C]) Distrust(e *Entry) { t.setTrusted(e, false) }

func (t *Table[C]) setTrusted(e *Entry, trusted bool) {
	t.ages(e).remove(t, e)
	e.trusted = trusted
	t.ages(e).pushNewest(t, e)
	if t.untrusted.len > t.limits.Untrusted {
		t.Evict(t.entry(t.untrusted.oldest))
	}
}

// touchGrain is how far the age order may lag behind the truth: moving an entry
// in its list for each packet would cost more than the look-up.
const touchGrain = Instant(1e9)

// Touch records a reception at now. An entry moves with the first packet of each
// grain of the clock, not after a pause of that length: an entry heard all the
// time has no pauses, and would drift to the end.
func (t *Table[C]) Touch(e *Entry, now Instant) {
	if now/touchGrain != e.Rx/touchGrain {
		list := t.ages(e)
		list.remove(t, e)
		list.pushNewest(t, e)
	}
	e.Rx = now
}

// OldestTrusted returns the trusted entry that was heard least recently, within a
// second, or nil. Roles age their table from this end.
func (t *Table[C]) OldestTrusted() *Entry {
	if t.trusted.len == 0 {
		return nil
	}
	return t.entry(t.trusted.oldest)
}

// OldestUntrusted is the untrusted counterpart of [Table.OldestTrusted].
func (t *Table[C]) OldestUntrusted() *Entry {
	if t.untrusted.len == 0 {
		return nil
	}
	return t.entry(t.untrusted.oldest)
}

// Walk calls f for entries from the most to the least recently heard, trusted
// ones first, until f returns false.
func (t *Table[C]) Walk(f func(*Entry) bool) {
	for _, list := range []*ageList{&t.trusted, &t.untrusted} {
		for i := list.newest; i != 0; i = t.entry(i).older {
			if !f(t.entry(i)) {
				return
			}
		}
	}
}

func (t *Table[C]) ages(e *Entry) *ageList {
	if e.trusted {
		return &t.trusted
	}
	return &t.untrusted
}

// entry returns entry i; entries count from 1, so that 0 can mean "none".
func (t *Table[C]) entry(i int32) *Entry {
	return &t.chunks[(i-1)>>chunkBits][(i-1)&(1<<chunkBits-1)]
}

// take returns an unused entry.
func (t *Table[C]) take() *Entry {
	if i := t.free; i != 0 {
		e := t.entry(i)
		t.free = e.newer
		return e
	}
	if int(t.used) == len(t.chunks)<<chunkBits {
		t.chunks = append(t.chunks, make([]Entry, 1<<chunkBits))
	}
	t.used++
	e := t.entry(t.used)
	e.self = t.used
	return e
}
