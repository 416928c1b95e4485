// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

// list is what waits, from the oldest to the newest, by slots of a table.
type list struct{ oldest, newest int32 }

type link struct{ older, newer int32 }

// The lists that what waits is in.
const (
	byDeadline = iota
	ofAccount
	lists
)

const noSlot = int32(-1)

// links are those of each slot of a table.
type links [][lists]link

// push puts a slot at the end of a list, and cut takes it out.
func (t links) push(l *list, which int, i int32) {
	t[i][which] = link{older: l.newest, newer: noSlot}
	if l.newest == noSlot {
		l.oldest = i
	} else {
		t[l.newest][which].newer = i
	}
	l.newest = i
}

func (t links) cut(l *list, which int, i int32) {
	at := t[i][which]
	if at.older == noSlot {
		l.oldest = at.newer
	} else {
		t[at.older][which].newer = at.newer
	}
	if at.newer == noSlot {
		l.newest = at.older
	} else {
		t[at.newer][which].older = at.older
	}
}
