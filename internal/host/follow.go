// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/port"
)

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
		if ctx.Err() == nil {
			return ErrWatchEnded
		}
		return nil
	})
	return nil
}
