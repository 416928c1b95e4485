// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package roletest runs instances of roles in namespaces of tests, as the program would.
package roletest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// Running is an instance that serves in a namespace.
type Running struct {
	end  context.CancelCauseFunc
	wait func() error
}

// Start runs an instance in a namespace and waits until it is ready. It is stopped when
// the test ends, and must end without an error.
func Start(t *testing.T, ns *testutil.Netns, i role.Instance) *Running {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := ns.Go(func() error { return i.Run(ctx) })
	r := &Running{end: cancel, wait: sync.OnceValue(func() error { return <-ended })}
	select {
	case <-i.Ready():
	case err := <-ended:
		cancel(nil)
		t.Fatalf("%s %s ended: %v", i.Role(), i.Name(), err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Errorf("%s %s ended with %v", i.Role(), i.Name(), err)
		}
	})
	return r
}

// Stop ends the instance.
func (r *Running) Stop() error {
	r.end(nil)
	return r.wait()
}

// Leave ends the instance for a successor to go on.
func (r *Running) Leave() error {
	r.end(role.ErrLeave)
	return r.wait()
}

// Reload has an instance that runs with some settings take others as a reload does. It
// returns the keys that wait for a restart.
func Reload[S any](of role.Role, i role.Instance, running, next S) ([]string, error) {
	alone := func(settings S) *config.Config {
		return &config.Config{Instances: []config.Instance{{Section: of.Section, Settings: &settings}}}
	}
	made := alone(running)
	change, err := role.List{of}.Prepare(i, made.Reload(made, alone(next)).Instances[0])
	if err != nil {
		return nil, err
	}
	return change()
}

// MustReload applies settings that need no restart.
func MustReload[S any](t *testing.T, of role.Role, i role.Instance, running, next S) {
	t.Helper()
	if restart, err := Reload(of, i, running, next); err != nil || len(restart) > 0 {
		t.Fatalf("reload: %v, needs a restart: %v", err, restart)
	}
}

// CheckSelf has an instance check itself inside its namespace.
func CheckSelf(t *testing.T, ns *testutil.Netns, i role.Announced, limit time.Duration) (problem error) {
	t.Helper()
	ns.Do(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		problem = i.CheckSelf(ctx)
		return nil
	})
	return problem
}

// WantProblem checks that an error has these words; "" wants none.
func WantProblem(t *testing.T, problem error, words string) {
	t.Helper()
	switch {
	case words == "" && problem != nil:
		t.Errorf("problem %v", problem)
	case words != "" && (problem == nil || !strings.Contains(problem.Error(), words)):
		t.Errorf("problem %v, want one with %q", problem, words)
	}
}
