// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// A gateway that may have been restarted is asked again at once, whether it had reserved
// the port or not.
func TestKeeperDoubts(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.time.doubt = 0
	var accepts atomic.Bool
	good := g.reserve
	g.reserve = func(r []byte) []byte {
		if !accepts.Load() {
			return natpmpAnswer(129, 2, r[4:8], r[8:12])
		}
		return good(r)
	}
	g.withNATPMP()
	k, reports, _ := keeper(t, natpmpOnly)
	doubts := make(chan struct{})
	k.Doubts = doubts
	ctx, cancel := context.WithCancel(t.Context())
	targets, ended := make(chan Target), make(chan struct{})
	go func() { defer close(ended); k.Run(ctx, targets) }()

	doubts <- struct{}{} // where there is no target
	targets <- g.target()
	if o := next(t, reports); o.Err == "" {
		t.Errorf("reported %+v", o)
	}
	accepts.Store(true)
	doubts <- struct{}{}
	if o := next(t, reports); o.Mapping.External != mapped {
		t.Errorf("reported %+v", o)
	}
	g.calls()
	doubts <- struct{}{}
	doubts <- struct{}{} // is taken when the first is done with
	cancel()
	<-ended
	calls := g.calls()
	if len(calls) < 2 || calls[0] != "map 3551 for 7200 s" || calls[1] != "address" {
		t.Errorf("calls %q", calls)
	}
}

// Doubts do not have it asked more than once a minute.
func TestKeeperDoubtsWait(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	target := newGateway(t).target()
	target.times = &usual
	for _, tt := range []struct {
		name   string
		target Target
		tried  time.Duration // before
		want   time.Duration
	}{
		{"no target", Target{}, time.Hour, -1},
		{"tried long ago", target, time.Hour, 0},
		{"a minute ago", target, time.Minute, 0},
		{"a second ago", target, time.Second, 59 * time.Second},
	} {
		s := keeping{target: tt.target, tried: now.Add(-tt.tried)}
		if got := s.doubtWait(now); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
