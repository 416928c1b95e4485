// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import "time"

// spent are the cookies of associations that have ended, as long as they might be used again: one that comes late, or
// from someone who has seen it, makes no second association (RFC 9260 sections 5.1.3 and 5.1.5). Our tag tells them
// apart, which is drawn anew for each association.
type spent struct {
	tags  map[uint32]struct{}
	queue ring[spentTag] // in the order in which the associations have ended
	floor time.Time      // cookies made up to then count as spent: there was no room for all of them
}

// spentTag is our tag of an association that has ended. No cookie with it was made after the association was set up.
type spentTag struct {
	tag uint32
	at  time.Time // of the set-up
}

// maxSpent is how many tags are kept.
const maxSpent = 1 << 16

// add keeps the tag of an association that has ended.
func (s *spent) add(t spentTag) {
	if s.queue.length == maxSpent {
		if oldest := s.queue.at(0).at; oldest.After(s.floor) {
			s.floor = oldest
		}
		s.drop()
	}
	if s.tags == nil {
		s.tags = map[uint32]struct{}{}
	}
	s.tags[t.tag] = struct{}{}
	*s.queue.push() = t
}

// forget drops the tags of which no cookie lives any more that was made before an instant.
func (s *spent) forget(before time.Time) {
	for s.queue.length > 0 && s.queue.at(0).at.Before(before) {
		s.drop()
	}
}

func (s *spent) drop() {
	delete(s.tags, s.queue.at(0).tag)
	s.queue.drop()
}

// has reports whether a cookie is that of an association that has ended.
func (s *spent) has(c *cookie) bool {
	_, kept := s.tags[c.tag]
	return kept || !s.floor.IsZero() && c.made <= s.floor.UnixNano()
}
