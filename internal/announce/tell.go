// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package announce

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// told is what the speaker knows of a prefix.
type told struct {
	of   *member
	done bool // what it was last asked for; if not, the prefix may be announced or not
}

// failedAgain is how long announcing must have worked for the same failure to be logged again.
const failedAgain = time.Minute

// change applies one event to the machine of a member, and tells routers what
// follows from it. The error is what they could not be told of the member.
func (a *Announcer) change(m *member, apply func(now time.Time)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return nil
	}
	m.readPrefixes()
	was := m.machine.Announced()
	apply(time.Now())
	state, _, problem := m.machine.State()
	switch is := m.machine.Announced(); {
	case is && !was:
		m.log.Info("announcing", "prefixes", m.prefixes)
	case was && !is:
		m.log.Warn("withdrawing", "prefixes", m.prefixes, "state", state, "problem", problem)
	}
	a.tell()
	return m.failure
}

// readPrefixes asks the instance for its prefixes, which a reload changes, and the end of
// what it still serves. a.mu is held.
func (m *member) readPrefixes() {
	before := m.prefixes
	m.prefixes = m.instance.AnnouncedPrefixes()
	if m.machine.Announced() && !slices.Equal(before, m.prefixes) {
		m.log.Info("announcing other prefixes", "prefixes", m.prefixes, "before", before)
	}
}

// tell has routers know the prefixes of announced members and no others. What fails is
// tried again at the next call, and each check is followed by one. a.mu is held.
func (a *Announcer) tell() {
	if a.speaker == nil {
		return
	}
	want := map[netip.Prefix]*member{}
	var add, drop []netip.Prefix
	for _, m := range a.members {
		if !m.machine.Announced() {
			continue
		}
		for _, p := range m.prefixes {
			if want[p] == nil && !a.told[p].done {
				add = append(add, p)
			}
			want[p] = m
		}
	}
	for p := range a.told {
		if want[p] == nil {
			drop = append(drop, p)
		}
	}
	slices.SortFunc(drop, netip.Prefix.Compare)
	failed := map[*member]error{}
	ask(a.speaker.Announce, add, func(p netip.Prefix, err error) {
		a.told[p] = told{want[p], err == nil}
		failed[want[p]] = cmp.Or(failed[want[p]], err)
	})
	ask(a.speaker.Withdraw, drop, func(p netip.Prefix, err error) {
		of := a.told[p].of
		failed[of] = cmp.Or(failed[of], err)
		if delete(a.told, p); err != nil {
			a.told[p] = told{of, false}
		}
	})
	for _, m := range a.members {
		m.note(failed[m], time.Now())
	}
}

// ask asks the speaker for prefixes, for each by itself if not all succeed together.
func ask(what func(...netip.Prefix) error, prefixes []netip.Prefix, done func(netip.Prefix, error)) {
	if len(prefixes) == 0 {
		return
	}
	together := what(prefixes...)
	for _, p := range prefixes {
		err := together
		if err != nil && len(prefixes) > 1 {
			err = what(p)
		}
		done(p, err)
	}
}

// note keeps what has become of announcing a member; a.mu is held.
func (m *member) note(failure error, now time.Time) {
	switch {
	case failure != nil:
		if m.trouble.Failed(failure.Error(), now) {
			m.log.Warn("announcing fails, and is tried again with each check", "error", failure)
			m.reported = true
		}
	case m.failure != nil:
		m.trouble.Works(now)
		if m.reported {
			m.log.Info("announcing works again")
			m.reported = false
		}
	}
	m.failure = failure
}
