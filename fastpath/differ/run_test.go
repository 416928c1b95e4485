// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/teredo/teredobpf"
)

// runner runs the program of a hook.
func (w *world) runner(at runtest.Hook) *runtest.Runner {
	return runtest.NewRunner(at, w.fast.Programs(), ports[0].index, 4096)
}

// coarse is the clock of programs.
func coarse() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now)
	return time.Duration(now.Nano())
}

// counted returns the reasons that were counted since the last call.
func (w *world) counted() map[teredobpf.Reason]uint64 {
	w.t.Helper()
	list, err := w.fast.Counters()
	if err != nil {
		w.t.Fatal(err)
	}
	news, now := make(map[teredobpf.Reason]uint64), make(map[teredobpf.Reason]uint64)
	for i, c := range list {
		r := teredobpf.Reason(i)
		now[r] = c.Packets
		if n := c.Packets - w.last[r]; n > 0 {
			news[r] = n
		}
	}
	w.last = now
	return news
}
