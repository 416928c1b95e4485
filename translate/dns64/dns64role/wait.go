// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"context"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/translate/dns64"
)

// flights are the questions that one query waits for.
type flights struct {
	resolver *resolver
	client   netip.Addr
	joined   map[dns64.Ask]*flight
	late     dns64.Ask // that the query waits for no more
}

// of returns the flight of a question, which the query joins unless it has.
func (s *flights) of(a dns64.Ask) *flight {
	f := s.joined[a]
	if f == nil {
		f = s.resolver.join(a, s.client)
		s.joined[a] = f
	}
	return f
}

// land ends the wait for all questions, for one that was late not before it is answered, or
// ctx is done: the lookup did not wait for that answer, but the next one will know it.
func (s *flights) land(ctx context.Context) {
	for a, f := range s.joined {
		if a == s.late {
			select {
			case <-f.done:
			case <-ctx.Done():
			}
		}
		s.resolver.part(a, f)
	}
}

// advance has a lookup go on with the next answer, or with its being late, and reports
// whether ctx is not done.
func (s *flights) advance(ctx context.Context, l *dns64.Lookup) bool {
	ask, _ := l.Next()
	main := s.of(ask)
	waited := time.Since(main.begun)
	if l.Late(waited) {
		s.late = ask
		l.Take(dns64.Result{})
		return true
	}
	var ahead *flight
	var early <-chan struct{}
	if beside, ok := l.Ahead(waited); ok {
		if result, ok := s.resolver.cached(beside, s.client); ok {
			l.TakeAhead(result)
			return true
		}
		ahead = s.of(beside)
		early = ahead.done
	}
	var due <-chan time.Time
	if again := l.Again(waited); again > 0 {
		due = time.After(again - waited)
	}
	select {
	case <-main.done:
		l.Take(main.copy())
	case <-early:
		l.TakeAhead(ahead.copy())
	case <-due:
	case <-ctx.Done():
		return false
	}
	return true
}
