// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
)

// TestPoolAlarm: a pool that is nearly full stands in the log once, and so does that it has room
// again, by more than one context that comes and goes.
func TestPoolAlarm(t *testing.T) {
	var log strings.Builder
	g, err := New(written(t, "", "pool_alarm = 80"), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		pool         ggsn.PoolSize
		taken, again int
	}{
		{ggsn.PoolSize{}, 0, 0}, // static addresses alone
		{ggsn.PoolSize{Used: 79, Free: 21}, 0, 0},
		{ggsn.PoolSize{Used: 70, Held: 10, Free: 20}, 1, 0},
		{ggsn.PoolSize{Used: 79, Free: 21}, 1, 0}, // one came and went
		{ggsn.PoolSize{Used: 80, Free: 20}, 1, 0},
		{ggsn.PoolSize{Used: 60, Free: 40}, 1, 1},
		{ggsn.PoolSize{Used: 60, Leaving: 60, Free: 40}, 1, 1}, // of others than are left
		{ggsn.PoolSize{Used: 100}, 2, 1},
	} {
		step.pool.APN = "internet"
		g.tellAlarms([]ggsn.PoolSize{step.pool})
		text := log.String()
		if taken, again := strings.Count(text, "nearly full"), strings.Count(text, "has room again"); taken != step.taken || again != step.again {
			t.Errorf("step %d: told %d and %d times, want %d and %d", i, taken, again, step.taken, step.again)
		}
	}
}

// TestFullPoolIsTold: a pool that has become full stands in the log once, and so does that it has
// addresses again.
func TestFullPoolIsTold(t *testing.T) {
	var log strings.Builder
	g, err := New(written(t, "", ""), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		pool         ggsn.PoolSize
		taken, again int
	}{
		{ggsn.PoolSize{}, 0, 0}, // static addresses alone
		{ggsn.PoolSize{Used: 63, Free: 1}, 0, 0},
		{ggsn.PoolSize{Used: 60, Held: 4}, 1, 0},
		{ggsn.PoolSize{Used: 60, Held: 4}, 1, 0}, // no news
		{ggsn.PoolSize{Used: 62, Free: 2}, 1, 0}, // one came and went
		{ggsn.PoolSize{Used: 64}, 1, 0},
		{ggsn.PoolSize{Used: 54, Free: 10}, 1, 1},
		{ggsn.PoolSize{Used: 64, IPv6: true}, 2, 1},
		{ggsn.PoolSize{Free: 64, IPv6: true}, 2, 2},
	} {
		step.pool.APN = "internet"
		g.tellFull([]ggsn.PoolSize{step.pool})
		text := log.String()
		if taken, again := strings.Count(text, "new contexts are refused"), strings.Count(text, "get addresses again"); taken != step.taken || again != step.again {
			t.Errorf("step %d: told %d and %d times, want %d and %d", i, taken, again, step.taken, step.again)
		}
	}
}
