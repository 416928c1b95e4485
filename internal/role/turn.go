// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package role

import (
	"context"
	"slices"
	"time"
)

// Seat is a place at a device where the programs of an instance are, or would be.
type Seat struct{ Device, Hook, Instance string }

// Seats are those that instances would take, each beside what earlier ones have taken.
type Seats struct{ taken []Seat }

// Take has an instance take one.
func (s *Seats) Take(one Seat) { s.taken = append(s.taken, one) }

// Leave gives up what an instance has taken.
func (s *Seats) Leave(instance string) {
	s.taken = slices.DeleteFunc(s.taken, func(one Seat) bool { return one.Instance == instance })
}

// Taken are those of all instances, in their order.
func (s *Seats) Taken() []Seat { return s.taken }

// turnLimit bounds the wait for one's turn, so that an instance that does not become ready holds
// up no other one.
const turnLimit = 10 * time.Second

type turnKey struct{}

// InTurn has an instance that is run with the context take its seats when an earlier one is ready,
// as a check foretells it; nil: at once.
func InTurn(ctx context.Context, earlier <-chan struct{}) context.Context {
	if earlier == nil {
		return ctx
	}
	return context.WithValue(ctx, turnKey{}, earlier)
}

// AwaitTurn waits until it is the turn of the instance that runs with the context.
func AwaitTurn(ctx context.Context) {
	earlier, _ := ctx.Value(turnKey{}).(<-chan struct{})
	if earlier == nil {
		return
	}
	limit := time.NewTimer(turnLimit)
	defer limit.Stop()
	select {
	case <-earlier:
	case <-limit.C:
	case <-ctx.Done():
	}
}
