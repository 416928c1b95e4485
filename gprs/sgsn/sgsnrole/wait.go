// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"errors"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn"
)

// goal is what an order about a context waits for: the event that it is done, or has failed. Any other may come
// meanwhile, but each order ends with its context.
type goal []sgsn.EventKind

var (
	opening  = goal{sgsn.Attached} // and, by IPv6, a router
	closing  = goal{sgsn.Ended, sgsn.Refused}
	updating = goal{sgsn.Updated, sgsn.UpdateFailed}
	moving   = goal{sgsn.Moved, sgsn.MoveFailed}
	settling = goal{sgsn.Configured}
)

// waiter is an order that waits.
type waiter struct {
	goal   []sgsn.EventKind
	opened bool         // the context is open, and its router is waited for
	told   chan outcome // that it is open, and then the end
}

// take gives an order what has happened to its context. It reports whether the order is over.
func (w *waiter) take(got outcome) bool {
	switch kind := got.event.Kind; {
	case gone(kind), w.opened && (kind == sgsn.Configured || kind == sgsn.NoRouter):
	case !slices.Contains(w.goal, kind):
		return false
	case kind == sgsn.Attached && needsRouter(&got.info):
		if !w.opened {
			w.opened = true
			w.told <- got
		}
		return false
	}
	w.told <- got
	return true
}

// gone reports whether an event is the end of a context.
func gone(kind sgsn.EventKind) bool { return kind == sgsn.Ended || kind == sgsn.Refused }

// needsRouter reports whether an open context has all that it needs only when a router has advertised.
func needsRouter(i *sgsn.Info) bool { return i.Linked == 0 && i.LinkLocal.IsValid() }

// failure is the error of what has become of an order.
func (w *waiter) failure(e sgsn.Event) error {
	if gone(e.Kind) && e.Reason == sgsn.ReasonDetached {
		if slices.Contains(w.goal, sgsn.Ended) {
			return nil
		}
		return errors.New("the context was detached meanwhile")
	}
	return refusal(e)
}

// await returns an order that waits for what becomes of a context.
func (s *SGSN) await(key gtp.TID, g goal) *waiter {
	w := &waiter{goal: g, told: make(chan outcome, 2)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaited[key] = append(s.awaited[key], w)
	return w
}

// wake tells what has happened to those who wait for it.
func (s *SGSN) wake(got outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := got.event.Key
	s.keep(key, slices.DeleteFunc(s.awaited[key], func(w *waiter) bool { return w.take(got) }))
}

// unawait gives up waiting.
func (s *SGSN) unawait(key gtp.TID, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(key, slices.DeleteFunc(s.awaited[key], func(other *waiter) bool { return other == w }))
}

// keep has these orders wait for a context, with the mutex held.
func (s *SGSN) keep(key gtp.TID, left []*waiter) {
	if s.awaited[key] = left; len(left) == 0 {
		delete(s.awaited, key)
	}
}

// allowed is how long an order waits for the GGSN, and then for a router; if that is 0, both have the first time.
type allowed struct{ answer, router time.Duration }

// orderTime bounds how long an order waits, within what the command line waits for it.
var orderTime = allowed{answer: 9 * time.Second}

// order has the engine do something about a context, and waits for what becomes of it.
func (s *SGSN) order(key gtp.TID, g goal, within allowed, do func(now time.Time, out *sgsn.Output) error) (outcome, error) {
	w := s.await(key, g)
	defer s.unawait(key, w)
	var err error
	s.loop.Do(func(now time.Time, out *sgsn.Output) { err = do(now, out) })
	if err != nil {
		return outcome{}, err
	}
	timer := time.NewTimer(within.answer)
	defer timer.Stop()
	var open outcome
	for {
		select {
		case got := <-w.told:
			if got.event.Kind != sgsn.Attached || !needsRouter(&got.info) {
				return got, w.failure(got.event)
			}
			if open = got; within.router > 0 {
				timer.Reset(within.router)
			}
		case <-timer.C:
			if open.event.Kind = sgsn.NoRouter; open.info.LinkLocal.IsValid() {
				return open, nil
			}
			return outcome{}, errors.New("the GGSN has not answered yet: isthmus sgsn contexts shows what becomes of it")
		case <-s.ends:
			return outcome{}, sgsn.ErrRetired
		case <-s.ctx.Done():
			return outcome{}, sgsn.ErrRetired
		}
	}
}

// ending is the error of orders that come too late.
func (s *SGSN) ending() error {
	select {
	case <-s.ends:
	case <-s.ctx.Done():
	default:
		return nil
	}
	return sgsn.ErrRetired
}
