// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package configtest holds declared sections to what every section has, for the tests of
// roles.
package configtest

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/isthmus-net/isthmus/internal/config"
)

// Update has tests write what they are to compare with.
var Update = flag.Bool("update", false, "write what is to be compared with: texts of errors, the reference")

// Same compares settings; addresses by their own equality.
var Same = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{}),
	cmpopts.EquateEmpty(),
}

// Section checks that the defaults are what the keys' parsers take, that each key is
// explained and bound to a field of its own and each field to a key, that the reference
// is a working section, and that testdata/*.toml gives the errors of the text beside it.
// Where these files have sections of other roles, too, all are to be named.
func Section(t *testing.T, section config.Section, all ...config.Section) {
	t.Helper()
	reference := One(t, section, section.Reference())
	if diff := cmp.Diff(One(t, section, section.Smallest()), reference, Same); diff != "" {
		t.Errorf("the reference differs from the defaults (-default +reference):\n%s", diff)
	}
	names := map[string]bool{}
	for _, k := range section.Keys() {
		if names[k.Name] {
			t.Errorf("%s.%s is declared twice", section.Name, k.Name)
		}
		names[k.Name] = true
		if !strings.HasSuffix(strings.TrimRight(k.Help, ")"), ".") {
			t.Errorf("%s.%s is not explained in whole sentences: %q", section.Name, k.Name, k.Help)
		}
	}
	if !names["name"] {
		t.Errorf("%s has no name", section.Name)
	}
	if n := fields(reflect.TypeOf(reference).Elem()); n != len(names) {
		t.Errorf("%s has %d keys for %d fields", section.Name, len(names), n)
	}
	if len(all) == 0 {
		all = []config.Section{section}
	}
	Errors(t, "testdata/*.toml", all...)
}

// fields counts those that keys set: neither structs of them nor what others claim.
func fields(settings reflect.Type) (n int) {
	for _, f := range reflect.VisibleFields(settings) {
		if !f.Anonymous && f.Type != reflect.TypeFor[config.Claims]() {
			n++
		}
	}
	return n
}

// One reads the settings of the only section of a text.
func One(t testing.TB, section config.Section, text string) (settings any) {
	t.Helper()
	c, err := config.Parse(strings.NewReader(text), "isthmus.toml", section)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(c.Instances) != 1 {
		t.Fatalf("%d sections in:\n%s", len(c.Instances), text)
	}
	return c.Instances[0].Settings
}

// Errors compares the errors of each file of the pattern with the text beside it, which
// people read.
func Errors(t *testing.T, pattern string, sections ...config.Section) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".toml")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = config.Parse(strings.NewReader(string(text)), "isthmus.toml", sections...)
			if err == nil {
				t.Fatal("no error")
			}
			var one *config.Error
			if !errors.As(err, &one) || one.Line == 0 || one.Remedy == "" {
				t.Errorf("error without place or remedy: %#v", one)
			}
			golden := strings.TrimSuffix(file, ".toml") + ".txt"
			got := err.Error() + "\n"
			if *Update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("errors differ (-want +got):\n%s", diff)
			}
		})
	}
}
