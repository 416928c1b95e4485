// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestStateStaysWithTheRun(t *testing.T) {
	i := instance{dir: "/run/x", name: "a-b"}
	for _, c := range []struct{ situation, sections, want string }{
		{"an SGSN", "[[sgsn]]\nname = \"s\"\n", "[[sgsn]]\nstate_file = \"/run/x/a-b.sgsn-1.state\"\nname = \"s\"\n"},
		{"one that says it itself", "[[sgsn]]\nname = \"s\"\nstate_file = \"y\"\n", "[[sgsn]]\nname = \"s\"\nstate_file = \"y\"\n"},
		{"one that keeps nothing", "[[siit]]\n", "[[siit]]\n"},
		{
			"parts of a section, and two of a role", "[metrics]\n[[ggsn]]\n[[ggsn.apn]]\nname = \"a\"\n[[ggsn]]\n[[nat64]]\n",
			"[metrics]\n[[ggsn]]\nstate_file = \"/run/x/a-b.ggsn-1.state\"\n[[ggsn.apn]]\nname = \"a\"\n" +
				"[[ggsn]]\nstate_file = \"/run/x/a-b.ggsn-2.state\"\n[[nat64]]\nstate_file = \"/run/x/a-b.nat64-1.state\"\n",
		},
		{"none", "", ""},
	} {
		t.Run(c.situation, func(t *testing.T) {
			if got := i.keeping(c.sections); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// The machine's folders are an operator's: nothing in them comes or changes by an experiment.
func TestStateOfTheMachineIsLeftAlone(t *testing.T) {
	ctx, e := testEnv(t)
	before := machineState(t, "sgsn")
	if _, err := loadsOf(ctx, e, isthmus, shortLoad.few, shortLoad.enough, 1); err != nil {
		t.Fatal(err)
	}
	if after := machineState(t, "sgsn"); !slices.Equal(before, after) {
		t.Errorf("there was %q, and now there is %q", before, after)
	}
}

// machineState lists the machine's files of state of instances, with when they were written.
func machineState(t *testing.T, names ...string) (list []string) {
	t.Helper()
	testutil.NeedRoot(t)
	for _, name := range names {
		for _, folder := range []string{kept.Folder, kept.StateFolder} {
			files, err := filepath.Glob(filepath.Join(folder, name+".*.state"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if info, err := os.Stat(file); err == nil {
					list = append(list, file+" of "+info.ModTime().String())
				}
			}
		}
	}
	return list
}
