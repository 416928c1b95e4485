// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package role

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurn waits for the one before, but not for ever.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		AwaitTurn(t.Context())
		AwaitTurn(InTurn(t.Context(), nil))
		if time.Since(begin) != 0 {
			t.Error("the first one waits")
		}
		ready := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(ready) })
		AwaitTurn(InTurn(t.Context(), ready))
		if got := time.Since(begin); got != time.Second {
			t.Errorf("its turn comes after %v", got)
		}
		AwaitTurn(InTurn(t.Context(), make(chan struct{})))
		if got := time.Since(begin); got != time.Second+turnLimit {
			t.Errorf("behind one that is never ready, its turn comes after %v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		AwaitTurn(InTurn(ctx, make(chan struct{})))
		if got := time.Since(begin); got != time.Second+turnLimit {
			t.Errorf("it waits when all is over, until %v", got)
		}
	})
}

// TestSeats are taken in turns, and given up.
func TestSeats(t *testing.T) {
	var s Seats
	one, two := Seat{"eth0", "xdp", "one"}, Seat{"eth0", "tcx", "two"}
	s.Take(one)
	s.Take(two)
	s.Leave("one")
	if got := s.Taken(); !slices.Equal(got, []Seat{two}) {
		t.Errorf("taken are %v", got)
	}
}
