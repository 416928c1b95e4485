// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
)

// settle is how long changes are collected before anybody looks: a new address
// and its routes come in a burst.
const settle = 5 * time.Millisecond

// errWatchEnded is the end of a watch that nobody asked for: without it an
// instance would work on with addresses that are no more.
var errWatchEnded = errors.New("the kernel ended the watch of the network configuration: restart isthmus")

// collect takes what comes within the time that changes need to settle, and
// shows each to look.
func collect(ctx context.Context, changes <-chan port.Change, look func(port.Change)) {
	timer := time.NewTimer(settle)
	defer timer.Stop()
	for {
		select {
		case change, ok := <-changes:
			if !ok {
				return
			}
			look(change)
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
