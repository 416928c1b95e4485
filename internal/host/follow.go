// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/port"
)

// Group returns a group for what an instance does side by side, and a function to defer that
// ends it and waits: a failed start must not be tidied up beside a watch that goes on.
func Group(ctx context.Context) (group *errgroup.Group, inGroup context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	group, ctx = errgroup.WithContext(ctx)
	return group, ctx, func() {
		cancel()
		_ = group.Wait()
	}
}

// ErrWatchEnded ends an instance that would not hear of changes any more.
var ErrWatchEnded = errors.New("the netlink monitor of addresses, links and routes has closed: restart isthmus")

// Follow has changed called for each change of the machine, in the network namespace of the
// calling thread, until ctx is done. Who looks at the machine after Follow has returned misses
// nothing.
func Follow(ctx context.Context, group *errgroup.Group, changed func(port.Change)) error {
	changes, err := port.Watch(ctx)
	if err != nil {
		return err
	}
	group.Go(func() error {
		for c := range changes {
			changed(c)
		}
		return watchEnded(ctx)
	})
	return nil
}

func watchEnded(ctx context.Context) error {
	if ctx.Err() == nil {
		return ErrWatchEnded
	}
	return nil
}

// settling is how long changes are gathered before anybody looks: a new address and its
// routes come in a burst.
const settling = 5 * time.Millisecond

// Bursts has changed called for each change of a watch, and settled when no other comes
// along, until ctx is done.
func Bursts(ctx context.Context, changes <-chan port.Change, changed func(port.Change), settled func()) error {
	for c := range changes {
		changed(c)
		Settle(ctx, changes, changed)
		settled()
	}
	return watchEnded(ctx)
}

// Settle waits for the time in which changes come along with others, and has changed called
// for each.
func Settle(ctx context.Context, changes <-chan port.Change, changed func(port.Change)) {
	timer := time.NewTimer(settling)
	defer timer.Stop()
	for {
		select {
		case c, ok := <-changes:
			if !ok {
				return
			}
			changed(c)
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
