// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/isthmus-net/isthmus/examples"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/config/key"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, ok := examples.Read(name)
	if !ok {
		t.Fatalf("there is no example %q", name)
	}
	return text
}

func TestExamplesAreValid(t *testing.T) {
	for _, name := range examples.Names() {
		t.Run(name, func(t *testing.T) {
			text := read(t, name)
			c, err := roles.Parse(strings.NewReader(text), name)
			if err != nil {
				t.Fatalf("\n%v", err)
			}
			if c.Count() == 0 {
				t.Error("nothing to run")
			}
			if _, err := roles.Parse(strings.NewReader(uncomment(text)), name); err != nil {
				t.Errorf("with the commented keys:\n%v", err)
			}
		})
	}
}

// uncomment turns lines like `#key = value` into settings; prose has a blank
// after the hash.
func uncomment(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "# ") && strings.Contains(line, " = ") {
			lines[i] = line[1:]
		}
	}
	return strings.Join(lines, "\n")
}

// TestErrorsBetweenRoles: sections of several roles that are in each other's way.
func TestErrorsBetweenRoles(t *testing.T) {
	configtest.Errors(t, "testdata/errors/*.toml", roles.Sections()...)
}

// TestReferenceTellsTheDefaults compares the reference with what the program
// does without a key.
func TestReferenceTellsTheDefaults(t *testing.T) {
	got, err := roles.Parse(strings.NewReader(read(t, "reference")), "reference.toml")
	if err != nil {
		t.Fatalf("\n%v", err)
	}
	want := config.Default()
	same := cmp.Options{
		cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{}),
		cmpopts.EquateEmpty(),
	}
	if diff := cmp.Diff(&want, got, same, cmpopts.IgnoreFields(config.Config{}, "Instances")); diff != "" {
		t.Errorf("reference differs from the defaults (-default +reference):\n%s", diff)
	}
}

// TestReferenceIsComplete looks for keys that the reference does not list or
// does not explain.
func TestReferenceIsComplete(t *testing.T) {
	text := read(t, "reference")
	listed := func(section string, keys []key.Key) {
		for _, k := range keys {
			names := []string{section + "." + k.Name}
			for _, entry := range k.Entry() {
				names = append(names, names[0]+"."+entry)
			}
			for _, name := range names {
				if !configtest.Declared()[name] {
					t.Errorf("%s is not listed", name)
				}
			}
		}
	}
	for _, section := range []string{"announce", "control", "metrics", "log"} {
		listed(section, config.SingleKeys(section))
	}
	for _, r := range roles {
		listed(r.Name, r.Keys())
		if section := r.Reference(); !strings.Contains(text, section) {
			if *configtest.Update {
				part := regexp.MustCompile(`(?ms)(^# -+\n)((?:#[^\n]*\n)*\[\[` + r.Name + `\]\]\n.*?)(\n# -+\n)`)
				text = part.ReplaceAllString(text, "${1}"+strings.ReplaceAll(section, "$", "$$")+"${3}")
				if err := os.WriteFile("../../examples/reference.toml", []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			t.Errorf("what is declared of %s is not in the reference (go test -update writes it) as:\n%s", r.Name, section)
		}
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		explained := slices.ContainsFunc(lines[max(0, i-4):i], func(above string) bool { return strings.HasPrefix(above, "# ") })
		if strings.Contains(line, " = ") && !strings.HasPrefix(line, "#") && !explained {
			t.Errorf("no explanation above %q", line)
		}
	}
}
