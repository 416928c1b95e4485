// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package announce

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/internal/announce/health"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/role"
)

// Drain withdraws the prefixes of the instance of that name, or of all if it is
// empty, and keeps them so until it is called with false, or the process ends. It
// returns the names of those concerned, none if there is no such instance.
func (a *Announcer) Drain(instance string, on bool) (names []string, err error) {
	for _, m := range a.members {
		if instance != "" && m.instance.Name() != instance {
			continue
		}
		names = append(names, m.instance.Name())
		err = errors.Join(err, a.change(m, func(now time.Time) { m.machine.Drain(on, now) }))
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
	return names, err
}

// Announcement tells the state of an instance; ok is false for one that is not
// announced by its configuration.
func (a *Announcer) Announcement(instance string) (s role.Announcement, ok bool) {
	i := slices.IndexFunc(a.members, func(m *member) bool { return m.instance.Name() == instance })
	if i < 0 {
		return s, false
	}
	m := a.members[i]
	a.mu.Lock()
	defer a.mu.Unlock()
	state, since, problem := m.machine.State()
	s = role.Announcement{State: state.String(), Since: since, Problem: problem, Prefixes: slices.Clone(m.prefixes)}
	switch {
	case a.ended:
		s.State = "stopped"
	case m.failure != nil:
		if state == health.Announced {
			s.State = "announce_failed"
		}
		s.Problem = strings.TrimPrefix(problem+"; "+m.failure.Error(), "; ")
	case state == health.Announced && len(m.prefixes) == 0:
		s.State = "nothing_to_announce"
	case state == health.Announced && a.speaker != nil:
		// The speaker takes announcements in any case, and tells routers when a session is up.
		some, changed := a.speaker.Heard()
		if changed.After(since) {
			s.Since = changed
		}
		if !some {
			s.State, s.Problem = "no_neighbor", "no BGP session is established"
		}
	}
	return s, true
}

// Neighbors are the routers that are told, if they are known.
func (a *Announcer) Neighbors() []role.Neighbor {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.speaker == nil || a.ended {
		return nil
	}
	return a.speaker.Neighbors()
}

// DrainTime is how long an end serves on for what is under way.
func (a *Announcer) DrainTime() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cfg.DrainTime
}

// Reload takes a new section, and what the instances have to announce by now. It returns
// the keys that wait for a restart.
func (a *Announcer) Reload(next config.Announce) (needsRestart []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	live, needsRestart := config.Reload(a.cfg, next)
	if a.speaker != nil && !a.ended {
		err = a.speaker.Reconfigure(live)
	}
	if err == nil {
		a.cfg = live
	}
	for _, m := range a.members {
		m.machine.Config = patience(a.cfg)
		m.readPrefixes() // the instances have been reloaded before
	}
	if !a.ended {
		a.tell()
	}
	return needsRestart, err
}
