// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/retry"
)

const (
	// settle is how long changes are collected before the keeper looks.
	settle = 10 * time.Millisecond
	// rest is how many times as long as the last look took the next one has to wait, on a
	// host of which changes come without end.
	rest = 10
	// first and last are the waits before what was removed is set up again, unless the device
	// has another last one.
	first = 50 * time.Millisecond
	last  = time.Minute
	// unwatched is how often it looks without a change for what the watch does not tell of,
	// and idle how often where there is nothing of the kind.
	unwatched = 3 * time.Second
	idle      = time.Hour
	// maxNamed bounds what one line of the log or a status names.
	maxNamed = 8
)

// KeptDevice is the TUN device of an instance that a [Keeper] keeps.
type KeptDevice struct {
	Name  string
	Index int
	// Reopen makes the device again, with its settings, after someone has deleted it. It is
	// called in the network namespace of the instance. Nil: the instance sees to that.
	Reopen func() error
	// Up, if set, sets up what could not be while the device was down or deleted.
	Up func() error
	// Back, if set, is told that the device was made again, and all that leads to it.
	Back func()
	// Last is the longest wait before what was removed again and again is set up once more;
	// 0: a minute.
	Last time.Duration
	// Without is what does not work without the device, for the log; empty: others tell of it.
	Without string
}

// Keeper keeps what one instance has set up by a [port.Host]. Its methods may be called by
// all, and on a nil Keeper, which knows nothing.
type Keeper struct {
	log    *slog.Logger
	host   *port.Host
	device KeptDevice
	here   port.Namespace

	trouble retry.Trouble // of the goroutine that looks, as what follows
	looked  bool
	losing  bool
	refused bool // something could not be set up again

	mu    sync.Mutex
	state State
}

// State is what is not as it should be.
type State struct {
	// Down reports that someone has set the device down, which is left to him.
	Down bool
	// Missing is what someone has removed and could not be set up again yet, with the
	// reason.
	Missing []string
	// Expected is what others should have set up, and have not.
	Expected []string
}

// NewKeeper makes a keeper of what host sets up, for a device if it has a name.
func NewKeeper(host *port.Host, device KeptDevice, log *slog.Logger) *Keeper {
	device.Last = cmp.Or(device.Last, last)
	k := &Keeper{log: log, host: host, device: device}
	k.trouble = k.freshTrouble()
	return k
}

func (k *Keeper) freshTrouble() retry.Trouble {
	return retry.Trouble{First: first, Last: k.device.Last}
}

// Start keeps until ctx is done. It watches the network namespace of the calling thread.
func (k *Keeper) Start(ctx context.Context, group *errgroup.Group) error {
	var err error
	if k.here, err = port.CurrentNamespace(); err != nil {
		return err
	}
	changes, err := port.Watch(ctx)
	if err != nil {
		k.here.Close()
		return err
	}
	group.Go(func() error {
		defer k.here.Close()
		return k.follow(ctx, changes)
	})
	return nil
}

// State returns what is not as it should be.
func (k *Keeper) State() State {
	if k == nil {
		return State{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Word is the word of a status for a state that is not as it should be; empty if it is.
func (s *State) Word() string {
	switch {
	case s.Down:
		return "device_down"
	case len(s.Missing) > 0:
		return "incomplete"
	}
	return ""
}

// Problem is an error that says why the instance of a device cannot work; nil: it can.
func (s *State) Problem(device string) error {
	switch {
	case s.Down:
		return fmt.Errorf("the device %s is down: run ip link set %s up", device, device)
	case len(s.Missing) > 0:
		return errors.New("somebody has removed what was set up: " + strings.Join(s.Missing, "; "))
	}
	return nil
}

// All is what is missing, whoever should have set it up.
func (s *State) All() []string { return slices.Concat(s.Missing, s.Expected) }

// follow looks when something has changed, and when it is time to try again.
func (k *Keeper) follow(ctx context.Context, changes <-chan port.Change) error {
	timer := time.NewTimer(0) // something may have changed before the watch began
	defer timer.Stop()
	var next time.Time // not before
	changed := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case c, open := <-changes:
			switch {
			case !open && ctx.Err() == nil:
				return ErrWatchEnded
			case !open:
				return nil
			case !changed && k.concerns(c):
				changed = true
				timer.Reset(max(settle, time.Until(next)))
			}
		case began := <-timer.C:
			if ctx.Err() != nil {
				return nil // what goes now is taken back
			}
			wait := k.look(time.Now(), changed)
			changed = false
			next = time.Now().Add(rest * time.Since(began))
			timer.Reset(wait)
		}
	}
}

func (k *Keeper) concerns(c port.Change) bool {
	return c.Kind == port.LinkChanged && c.Link == k.device.Index || k.host.Concerns(c)
}
