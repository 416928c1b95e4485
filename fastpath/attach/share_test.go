// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
)

// TestSharedAsPlanned has a second instance take what the first has left of a device, as
// it was planned before either was there.
func TestSharedAsPlanned(t *testing.T) {
	for _, row := range []struct {
		name          string
		first, second fastpath.Mode
		hook          Hook     // of the second; HookNone: it is refused
		why           []string // or the refusal
		warnings      int
	}{
		{"both want XDP", fastpath.ModeXDP, fastpath.ModeXDP, HookNone, []string{`the XDP program of another instance, "first"`, "tc"}, 0},
		{"one wants XDP", fastpath.ModeXDP, fastpath.ModeAuto, hookTC(), []string{`the XDP program of another instance, "first"`}, 1},
		{"one wants XDP, the other tc", fastpath.ModeXDP, fastpath.ModeTC, hookTC(), nil, 1},
		{"both want tc", fastpath.ModeTC, fastpath.ModeTC, hookTC(), nil, 0},
		{"neither says", fastpath.ModeAuto, fastpath.ModeAuto, hookTC(), []string{"veth"}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWire(t)
			w.Show(t)
			first, second := Config{Name: "a", Whose: "first", Mode: row.first}, Config{Name: "b", Whose: "second", Mode: row.second}
			planned, err := w.plan(t, first)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range planned {
				second.Expected = append(second.Expected, Expected{Device: d.Device, Hook: d.Hook, Whose: first.Whose})
			}
			planned, foretold := w.plan(t, second)
			one, two := newCounter(t), newCounter(t)
			w.mustAttach(t, one.Programs, first)
			second.Expected = nil
			a, err := w.attach(t, two.Programs, second)
			if row.hook == HookNone {
				fastpathtest.WantWords(t, foretold, row.why...)
				fastpathtest.WantWords(t, err, row.why...)
				return
			}
			if err != nil || foretold != nil {
				t.Fatal(err, foretold)
			}
			if diff := cmp.Diff(planned, a.Report()); diff != "" {
				t.Errorf("planned (-) and done (+) differ:\n%s", diff)
			}
			r := only(t, a)
			if r.Hook != row.hook || len(r.Warnings) != row.warnings {
				t.Errorf("the report is %+v", r)
			}
			fastpathtest.WantWords(t, r.Why, row.why...)
			w.send(t, 5)
			if got, others := two.await(t, 5), one.await(t, 5); got != 5 || others != 5 {
				t.Errorf("of 5 frames the first saw %d and the second %d", others, got)
			}
			w.finish(t, a.Close)
		})
	}
}
