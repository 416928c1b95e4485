// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

// ageList is a list of entries from the oldest to the newest, linked by index.
type ageList struct {
	newest, oldest int32
	len            int
}

// entries is what an ageList needs of its table.
type entries interface{ entry(int32) *Entry }

func (l *ageList) pushNewest(t entries, e *Entry) {
	e.newer, e.older = 0, l.newest
	if l.newest != 0 {
		t.entry(l.newest).newer = e.self
	} else {
		l.oldest = e.self
	}
	l.newest = e.self
	l.len++
}

func (l *ageList) remove(t entries, e *Entry) {
	if e.newer != 0 {
		t.entry(e.newer).older = e.older
	} else {
		l.newest = e.older
	}
	if e.older != 0 {
		t.entry(e.older).newer = e.newer
	} else {
		l.oldest = e.newer
	}
	l.len--
}
