// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package announce

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
)

// hearing is a speaker that routers hear or not, and whose neighbors must not be asked for.
type hearing struct {
	recorder
	t     *testing.T
	some  bool
	since time.Time
}

func (h *hearing) Heard() (bool, time.Time)   { return h.some, h.since }
func (h *hearing) Neighbors() []role.Neighbor { h.t.Error("neighbors are asked for"); return nil }

// TestHeard looks at an instance that is announced while routers come and go: since when, and that the speaker does not
// have to walk over its neighbors for each look.
func TestHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInstance("north", "2001::/32")
		i.ready = make(chan struct{})
		h := &hearing{t: t}
		a := New(settings(), "", []role.Instance{i}, slog.New(slog.DiscardHandler))
		a.speaker = h
		m := a.members[0]
		_ = a.change(m, func(now time.Time) { m.machine.Check("", now) })
		began := time.Now()
		for _, step := range []struct {
			some  bool
			heard time.Duration // before or behind the beginning
			want  string
			since time.Duration
		}{
			{false, -time.Hour, "no_neighbor", 0},
			{true, -time.Minute, "announced", 0},
			{true, time.Second, "announced", time.Second},
			{false, time.Minute, "no_neighbor", time.Minute},
		} {
			h.some, h.since = step.some, began.Add(step.heard)
			got, _ := a.Announcement("north")
			if got.State != step.want || !got.Since.Equal(began.Add(step.since)) || (got.Problem == "") != step.some {
				t.Errorf("%+v: %+v, since %v", step, got, got.Since.Sub(began))
			}
		}
	})
}
