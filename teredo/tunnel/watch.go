// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
)

// settling is how long changes are collected before anybody looks: a new address
// and its routes come in a burst.
const settling = 5 * time.Millisecond

// ErrWatchEnded is the end of a watch that nobody asked for: without it an
// instance would work on with addresses that are no more.
var ErrWatchEnded = errors.New("the kernel ended the watch of the network configuration: restart isthmus")

// Settle takes what comes within the time that changes need to settle, and
// shows each to look.
func Settle(ctx context.Context, changes <-chan port.Change, look func(port.Change)) {
	timer := time.NewTimer(settling)
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
