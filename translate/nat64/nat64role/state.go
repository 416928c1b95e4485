// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"crypto/rand"
	"errors"
	"os"
	"time"

	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// takeMemory returns memory for the state: the programs' tables, or a file that a
// successor finds, if that can be had; n.mu is held.
func (n *NAT64) takeMemory(z state.Sizes) (*memory, error) {
	var earlier *memory
	if n.cfg.KeepState {
		// The programs' tables need no file but that of a process without them.
		existing := n.fast.table != nil
		m, err := fileMemory(stateFile(&n.cfg), z, existing)
		if err != nil && !(existing && errors.Is(err, os.ErrNotExist)) {
			n.log.Warn("sessions end with this process", "error", err)
		}
		earlier = m
	}
	switch {
	case n.fast.table == nil && earlier != nil:
		return earlier, nil
	case n.fast.table == nil:
		return ownMemory(z)
	}
	m := n.fast.memory()
	if earlier == nil {
		return m, nil
	}
	// What a process without these tables has left goes on in them, unless they hold
	// something newer.
	if !m.slabs.Holds() {
		m.other = earlier.other
		if earlier.slabs.Holds() {
			if err := earlier.copyTo(m); err != nil {
				n.log.Warn("sessions of an earlier process end: they cannot be moved into the fast path", "error", err)
			}
		}
	}
	return m, earlier.file.Drop()
}

// stateFile is where the state is kept over a restart.
func stateFile(cfg *Settings) string {
	return kept.Path(cfg.StateFile, cfg.Name, name)
}

// saveState keeps the state of the programs' tables, which are about to go, in the file;
// n.mu is held.
func (n *NAT64) saveState() error {
	if n.fast.table == nil || n.memory == nil || !n.cfg.KeepState {
		return nil
	}
	m, err := fileMemory(stateFile(&n.cfg), sizesOf(&n.cfg), false)
	if err != nil {
		return err
	}
	return errors.Join(n.memory.copyTo(m), m.free())
}

// newEngine makes the engine, over sessions of an earlier process if they are adopted.
func (n *NAT64) newEngine(settings nat64.Settings, table *state.Table, adopted bool, prefixes []translate.Prefix) (e *nat64.Engine, err error) {
	if adopted {
		e, err = n.resume(settings, table, prefixes)
	} else {
		e, err = nat64.New(settings, table, port.MonotonicEpoch(), rand.Reader)
	}
	if err != nil {
		return nil, err
	}
	if n.fast.table != nil {
		e.SetWaiting(waiting{n.fast.table.Waiting()})
		e.SetIDs(n.fast.table.IDs())
	}
	return e, nil
}

// resume takes over sessions. They have the numbers of the prefixes of pool6 that the process
// before this one gave.
func (n *NAT64) resume(settings nat64.Settings, table *state.Table, prefixes []translate.Prefix) (*nat64.Engine, error) {
	left := nat64.Earlier{Prefixes: prefixes, Static: staticsOf(&n.cfg), Now: time.Now(), Tell: n.events.add}
	e, ended, err := nat64.Resume(settings, left, table, port.MonotonicEpoch(), rand.Reader)
	switch {
	case err != nil:
		return nil, err
	case ended.Displaced > 0 && len(left.Prefixes) == 0:
		// Without the numbers they would answer from wrong addresses.
		n.log.Warn("sessions of an earlier process end: the note of their prefixes is lost", "sessions", ended.Displaced)
	case ended.Displaced > 0:
		n.log.Warn("sessions of an earlier process end: the configuration needs ports, addresses or prefixes that they have", "sessions", ended.Displaced)
	}
	return e, nil
}

// tell gives settings that the engine has taken to the programs, and notes for a successor
// what it cannot know of sessions. No one else has the engine meanwhile; n.mu is held.
func (n *NAT64) tell(e *nat64.Engine, s *nat64.Settings, cfg *Settings) {
	defer n.fast.configure(cfg, s, e) // no one makes sessions with a number before it is noted
	if n.memory.setNote == nil {
		return
	}
	noted := note{own: n.fast.leavingOwn()}
	noted.prefixes, _ = e.Prefixes()
	for _, r := range s.Pool4 {
		if r.Own {
			noted.own = append(noted.own, r)
		}
	}
	if err := n.memory.setNote(noted.String()); err != nil {
		n.log.Warn("what a successor must know of sessions cannot be noted", "error", err)
	}
}
