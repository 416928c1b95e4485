// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// binding is where one client can be reached that has proved it.
type binding struct {
	client       [16]byte
	mapping      netip.AddrPort
	until        peer.Instant
	bucket       ratelimit.Bucket // of what the client sends
	requests     ratelimit.Bucket // of its requests to be refreshed
	newer, older *binding         // by until, which is also the order of refreshing
}

// bindings is the table of them. A full one takes no newcomer: no one who has
// proved where he is loses his place to one who has just come.
type bindings struct {
	limit          int
	table          map[[16]byte]*binding
	addresses      map[netip.Addr]int // how many are bound at each
	newest, oldest *binding
}

// lookup returns the binding of a client, or nil.
func (t *bindings) lookup(client *[16]byte, at peer.Instant) *binding {
	if b := t.table[*client]; b != nil && b.until > at {
		return b
	}
	return nil
}

// bind makes or moves the binding of a client; false when there is no room, or none for its
// IPv4 address.
func (t *bindings) bind(client *[16]byte, mapping netip.AddrPort, at peer.Instant) bool {
	t.expire(at)
	b := t.table[*client]
	from := mapping.Addr()
	comes := b == nil || b.mapping.Addr() != from
	if b == nil && len(t.table) >= t.limit || comes && t.addresses[from] >= max(t.limit/addressShare, 1) {
		return false
	}
	if t.table == nil {
		t.table, t.addresses = make(map[[16]byte]*binding), make(map[netip.Addr]int)
	}
	if comes {
		t.addresses[from]++
	}
	switch {
	case b != nil && comes:
		t.leave(b)
	case b == nil:
		b = &binding{client: *client}
		t.table[*client] = b
		t.link(b)
	}
	b.mapping = mapping
	t.extend(b, at)
	return true
}

// extend gives a binding its whole life again.
func (t *bindings) extend(b *binding, at peer.Instant) {
	b.until = at.Add(bindingLife)
	t.unlink(b)
	t.link(b)
}

// expire removes what has ended.
func (t *bindings) expire(at peer.Instant) {
	for b := t.oldest; b != nil && b.until <= at; b = t.oldest {
		t.unlink(b)
		t.leave(b)
		delete(t.table, b.client)
	}
}

// leave counts one less at the address of a binding.
func (t *bindings) leave(b *binding) {
	from := b.mapping.Addr()
	if t.addresses[from]--; t.addresses[from] == 0 {
		delete(t.addresses, from)
	}
}

func (t *bindings) clear() { t.table, t.addresses, t.newest, t.oldest = nil, nil, nil, nil }

func (t *bindings) link(b *binding) {
	b.newer, b.older = nil, t.newest
	if t.newest != nil {
		t.newest.newer = b
	} else {
		t.oldest = b
	}
	t.newest = b
}

func (t *bindings) unlink(b *binding) {
	if b.newer != nil {
		b.newer.older = b.older
	} else {
		t.newest = b.older
	}
	if b.older != nil {
		b.older.newer = b.newer
	} else {
		t.oldest = b.newer
	}
}
