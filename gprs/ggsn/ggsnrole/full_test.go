// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/role"
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
		{ggsn.PoolSize{Used: 8, Part: "gold"}, 3, 2},
		{ggsn.PoolSize{Used: 4, Free: 4, Part: "gold"}, 3, 3},
	} {
		step.pool.APN = "internet"
		g.tellFull([]ggsn.PoolSize{step.pool})
		text := log.String()
		if taken, again := strings.Count(text, "new contexts are refused"), strings.Count(text, "get addresses again"); taken != step.taken || again != step.again {
			t.Errorf("step %d: told %d and %d times, want %d and %d", i, taken, again, step.taken, step.again)
		}
	}
}

// TestPartAlarm: the part without a name is nearly full while the pool is not, as metrics and status say.
func TestPartAlarm(t *testing.T) {
	const lines = "pool4 = [\"10.99.0.0/28\"]\nnamed_pools = [\"gold 10.99.0.8/29\"]\npool_alarm = 50"
	b := benchOf(t, "", lines)
	g, err := New(written(t, "", lines), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	g.loop.Engine = b.Engine
	g.engine.Store(b.Engine)
	for n := range 4 {
		b.create(sgsn, request(n, sgsn, gtp.PDPTypeIPv4))
	}
	got := map[string]float64{}
	g.Collect(func(m role.Metric) {
		if strings.HasPrefix(m.Name, "pool_") {
			got[strings.TrimSpace(m.Name+" "+m.Reason+" "+m.Verdict)] = m.Value
		}
	})
	for name, want := range map[string]float64{
		"pool_addresses internet ipv4 used": 4, "pool_addresses internet ipv4 free": 10, "pool_alarm internet ipv4": 0,
		"pool_part_addresses internet ipv4 gold used": 0, "pool_part_addresses internet ipv4 gold free": 7, "pool_part_alarm internet ipv4 gold": 0,
		"pool_part_addresses internet ipv4 no name used": 4, "pool_part_addresses internet ipv4 no name held": 0, "pool_part_addresses internet ipv4 no name free": 3, "pool_part_alarm internet ipv4 no name": 1,
	} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("%s is %v (%t), want %v", name, value, there, want)
		}
	}
	want := []PoolUse{{APN: "internet", Family: "ipv4", Part: "no name", Used: 4, Free: 3, Alarm: true}, {APN: "internet", Family: "ipv4", Part: "gold", Free: 7}}
	if st := g.Status().(Status); !slices.Equal(st.Parts, want) || len(st.Pools) != 2 || st.Pools[0].Alarm {
		t.Errorf("%+v, %+v", st.Pools, st.Parts)
	}
}
