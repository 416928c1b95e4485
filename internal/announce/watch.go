// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/role"
)

// follow checks one instance until ctx is done.
func (a *Announcer) follow(ctx context.Context, m *member) {
	select {
	case <-ctx.Done():
		return
	case <-m.instance.Ready():
	}
	results := make(chan string)
	go a.checks(ctx, m, results)
	for {
		var due <-chan time.Time
		if next := a.next(m); !next.IsZero() {
			due = time.After(time.Until(next))
		}
		// A failure of the speaker is in the log and in the status.
		select {
		case <-ctx.Done():
			return
		case problem := <-results:
			_ = a.change(m, func(now time.Time) { m.machine.Check(problem, now) })
			m.once.Do(func() { close(m.checked) })
		case <-due:
			_ = a.change(m, func(now time.Time) { m.machine.Tick(now) })
		case <-m.wake:
		}
	}
}

func (a *Announcer) next(m *member) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return m.machine.Next()
}

// checks reports one result after the other until ctx is done.
func (a *Announcer) checks(ctx context.Context, m *member, results chan<- string) {
	for {
		a.mu.Lock()
		cfg := a.cfg
		a.mu.Unlock()
		again := time.After(cfg.CheckInterval)
		problem := ""
		if err := a.check(ctx, cfg, m.instance); err != nil {
			problem = err.Error()
		}
		if ctx.Err() != nil {
			return // the check was broken off, and its result means nothing
		}
		select {
		case <-ctx.Done():
			return
		case results <- problem:
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		}
	}
}

// check looks at the instance, then whether one of the hosts answers that stand
// for the rest of the network.
func (a *Announcer) check(ctx context.Context, cfg config.Announce, instance role.Announced) error {
	ctx, cancel := context.WithTimeout(ctx, cfg.CheckTimeout)
	defer cancel()
	if err := instance.CheckSelf(ctx); err != nil {
		return err
	}
	if len(cfg.Check) == 0 {
		return nil
	}
	answers := make(chan error, len(cfg.Check))
	for _, host := range cfg.Check {
		go func() { answers <- a.ping(ctx, host) }()
	}
	var problems []error
	for range cfg.Check {
		err := <-answers
		if err == nil {
			return nil
		}
		problems = append(problems, err)
	}
	if len(problems) > 1 {
		return fmt.Errorf("none of the hosts to check answers: %w", problems[0])
	}
	return problems[0]
}
