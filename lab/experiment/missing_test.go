// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// Where a program is missing, each experiment that needs it says so in one sentence, with
// what to do, before it draws anything. That they name all they need is shown by the tests
// that run them: testEnvOf gives them no others.
func TestMissingPeers(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	missing := func(t *testing.T, x lab.Experiment, folder string, names []string) {
		t.Helper()
		var progress strings.Builder
		e := &lab.Env{Peers: folder, Out: &progress}
		calls := map[string]func() error{
			"run": func() error { return lab.RunAll(context.Background(), []lab.Experiment{x}, e) },
		}
		if x.Up != nil {
			calls["up"] = func() error { return lab.Up(context.Background(), x, e) }
		}
		for call, f := range calls {
			err := f()
			if !errors.Is(err, peers.ErrMissing) || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), x.Name+": ") {
				t.Errorf("%s: %v", call, err)
				continue
			}
			if !strings.Contains(err.Error(), "("+strings.Join(names, ", ")+")") {
				t.Errorf("%s does not name %v: %v", call, names, err)
			}
		}
		if progress.Len() > 0 {
			t.Errorf("it began: %s", progress.String())
		}
	}
	for _, x := range All {
		t.Run(x.Name, func(t *testing.T) {
			if len(x.Needs) == 0 {
				return // needs no program
			}
			missing(t, x, "", x.Needs)
			missing(t, x, t.TempDir(), x.Needs)
			for i, one := range x.Needs {
				folder := t.TempDir()
				if err := os.Mkdir(filepath.Join(folder, "bin"), 0o755); err != nil {
					t.Fatal(err)
				}
				for _, name := range slices.Delete(slices.Clone(x.Needs), i, i+1) {
					if err := os.WriteFile(filepath.Join(folder, "bin", name), nil, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				missing(t, x, folder, []string{one})
			}
		})
	}
}

// What only adds a column is left out, with the reason in its place.
func TestMissingMiredo(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  lab.Env
		want string
	}{
		{"no folder", lab.Env{}, "needs 'make peers'"},
		{"an empty folder", lab.Env{Peers: t.TempDir()}, "not in this release"},
		{"a user namespace", lab.Env{Limited: true}, "needs root"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := missing(&tt.env, miredo); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if got := missing(&tt.env, isthmus); got != "" {
				t.Errorf("ours %q", got)
			}
		})
	}
}
