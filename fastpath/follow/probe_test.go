// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
)

// bumpedTable says when it is bumped.
type bumpedTable struct {
	countingTable
	bumped chan struct{}
}

func (b *bumpedTable) Bump() { b.bumped <- struct{}{} }

// TestNextHopsAreAskedForAgain: where nothing changes answers become void all the same, and more
// often than next hops are forgotten.
func TestNextHopsAreAskedForAgain(t *testing.T) {
	if refreshEvery >= fastpath.InUse {
		t.Errorf("next hops are asked for every %v, and in use for %v", refreshEvery, fastpath.InUse)
	}
	table := &bumpedTable{bumped: make(chan struct{})}
	p := &prober{table: table, every: time.Hour, refresh: time.Millisecond}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.run(ctx, new(atomic.Uint64))
	}()
	for range 3 {
		<-table.bumped
	}
	stop()
	for {
		select {
		case <-table.bumped:
		case <-ended:
			return
		}
	}
}
