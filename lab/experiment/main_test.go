// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/report"
)

// atOnce is how many tests run beside each other of those that are parallel: they wait
// for timers of daemons more than they work, and no time of theirs is judged. What
// loads the machine runs alone.
const atOnce = 4

func TestMain(m *testing.M) {
	testutil.ParallelTests(atOnce)
	os.Exit(program.Main(m))
}

// testEnvOf is what an experiment is given in a test: of the peers, it finds only those
// that it says it needs.
func testEnvOf(t *testing.T, x lab.Experiment) (context.Context, *lab.Env) {
	t.Helper()
	ctx, e := testEnv(t)
	whole := e.Peers
	e.Peers = t.TempDir()
	if err := os.Mkdir(filepath.Join(e.Peers, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	links := []string{"root"}
	for _, name := range x.Needs {
		links = append(links, filepath.Join("bin", name))
	}
	for _, name := range links {
		if err := os.Symlink(filepath.Join(whole, name), filepath.Join(e.Peers, name)); err != nil {
			t.Fatal(err)
		}
	}
	return ctx, e
}

// testEnv is what an experiment is given in a test. It needs root and peers.
func testEnv(t *testing.T) (context.Context, *lab.Env) {
	t.Helper()
	testutil.NeedRoot(t)
	found, err := peers.Find()
	switch {
	case err == nil:
	case !errors.Is(err, peers.ErrMissing):
		t.Fatal(err)
	default:
		testutil.Missing(t, err)
	}
	path := program.Path(t)
	// The time of the package ends a test that hangs; this ends what it started.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx, &lab.Env{Binary: path, Peers: found.Dir, Out: t.Output()}
}

// runShort runs experiments in their short forms, one round of each: another takes the same way.
func runShort(t *testing.T, experiments ...lab.Experiment) {
	t.Helper()
	for _, x := range experiments {
		t.Run(x.Name, func(t *testing.T) {
			ctx, e := testEnvOf(t, x)
			e.Runs = 1
			var out strings.Builder
			e.Out = &out
			if err := x.Run(ctx, e); err != nil {
				t.Error(err)
			}
			t.Log(out.String())
		})
	}
}

// mustBeMeasured shows a report, in which nothing may be wrong or missing.
func mustBeMeasured(t *testing.T, r *report.Report) {
	t.Helper()
	if err := r.WriteText(t.Output()); err != nil {
		t.Fatal(err)
	}
	if err := r.Verdict(false); err != nil {
		t.Error(err)
	}
	for _, f := range r.Figures {
		if !f.Isthmus.Known() {
			t.Errorf("%s was not measured", f.Name)
		}
	}
}

// mustSay looks for what a tour has to say.
func mustSay(t *testing.T, said string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(said, want) {
			t.Errorf("the tour does not say %q:\n%s", want, said)
		}
	}
}
