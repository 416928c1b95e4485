// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
)

// finding is what one look has found.
type finding struct {
	gone, down bool // the device
	lost       []*port.Thing
	expected   []string
}

func (f *finding) nothing() bool { return !f.gone && len(f.lost) == 0 }

// look sets up again what was removed, when it is time. It returns when to look next.
func (k *Keeper) look(now time.Time, changed bool) time.Duration {
	if !changed && k.looked && !k.losing {
		if lost, err := k.host.LostUnwatched(); !lost && err == nil {
			return k.pause()
		}
	}
	k.looked = true
	f, err := k.find()
	if err != nil {
		if k.trouble.Failed(err.Error(), now) {
			k.log.Warn("cannot determine whether all is there that was set up", "error", err)
		}
		return k.device.Last
	}
	k.noteDown(f.down)
	switch {
	case f.nothing() || f.down:
		if k.losing && !f.down {
			k.losing = false
			k.trouble.Works(now)
			if k.refused {
				k.log.Info("all that was removed is set up again")
			}
		}
		k.show(&f, nil)
		return k.pause()
	case !k.losing:
		k.losing, k.refused = true, false
		if k.trouble.Failed("removed", now) {
			k.log.Warn("somebody has removed what this instance has set up: it is set up again", "what", k.names(&f, nil))
		}
	case changed && k.refused:
		k.trouble.Changed() // maybe what was in the way has gone
	}
	k.show(&f, nil)
	if wait := k.trouble.Wait(now); wait > 0 {
		return wait
	}
	return k.restore(f, now)
}

// restore sets up again what was removed, and returns when to look next.
func (k *Keeper) restore(f finding, now time.Time) time.Duration {
	var errs []error
	if f.gone {
		errs = append(errs, k.reopen())
	}
	if errors.Join(errs...) == nil {
		errs = append(errs, k.host.Restore(f.lost)...)
	}
	err := errors.Join(errs...)
	k.refused = err != nil
	if err == nil {
		if f.gone && k.device.Back != nil {
			k.device.Back()
		}
		return 0 // to see it
	}
	k.show(&f, errs)
	if k.trouble.Failed(err.Error(), now) {
		k.log.Warn("what somebody has removed cannot be set up again yet", "what", k.names(&f, errs))
	}
	return k.trouble.Wait(now)
}

// reopen makes the device again.
func (k *Keeper) reopen() error {
	if err := k.here.Do(k.device.Reopen); err != nil {
		return err
	}
	return k.up()
}

func (k *Keeper) up() error {
	if k.device.Up == nil {
		return nil
	}
	return k.device.Up()
}

// find looks at the device and at what leads to it.
func (k *Keeper) find() (f finding, err error) {
	if k.device.Name != "" {
		index, up, err := k.host.Link(k.device.Name)
		f.gone = err != nil || index != k.device.Index
		f.down = !f.gone && !up
		if f.gone && k.device.Reopen == nil {
			return finding{}, nil // its end is for those who read it
		}
	}
	lost, err := k.host.Lost()
	for _, t := range lost {
		if t.Expected() {
			f.expected = append(f.expected, t.String())
		} else {
			f.lost = append(f.lost, t)
		}
	}
	return f, err
}

// noteDown reports a device that someone has set down or up. What the kernel drops with
// it is no work of his, so that it is set up again at once.
func (k *Keeper) noteDown(down bool) {
	k.mu.Lock()
	was := k.state.Down
	k.mu.Unlock()
	switch {
	case k.device.Without == "": // others tell of it
	case down && !was:
		k.log.Warn("the device is down, so "+k.device.Without+": run ip link set up", "interface", k.device.Name)
	case was && !down:
		k.log.Info("the device is up again", "interface", k.device.Name)
		if err := k.up(); err != nil {
			k.log.Warn("not all can be set up on the device", "interface", k.device.Name, "error", err)
		}
	}
	if was && !down {
		k.losing, k.refused = true, false
		k.trouble = k.freshTrouble()
	}
}

// show has the state be what was found, with the errors of what could not be set up again.
func (k *Keeper) show(f *finding, errs []error) {
	s := State{Down: f.down, Expected: bounded(f.expected)}
	if !f.down {
		s.Missing = k.names(f, errs)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state = s
}

// names says what is missing, each with its error if there is one.
func (k *Keeper) names(f *finding, errs []error) (list []string) {
	named := func(what string) {
		if i := len(list); i < len(errs) && errs[i] != nil {
			what += ": " + errs[i].Error()
		}
		list = append(list, what)
	}
	if f.gone {
		named("device " + k.device.Name)
	}
	for _, t := range f.lost {
		named(t.String())
	}
	return bounded(list)
}

// bounded cuts a list that no one would read to its end.
func bounded(list []string) []string {
	if more := len(list) - maxNamed; more > 0 {
		return append(list[:maxNamed:maxNamed], fmt.Sprintf("%d more", more))
	}
	return list
}

// pause is how long to wait for a change.
func (k *Keeper) pause() time.Duration {
	if k.host.Unwatched() {
		return unwatched
	}
	return idle
}
