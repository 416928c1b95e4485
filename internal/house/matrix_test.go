// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	testName = regexp.MustCompile(`\b(Test|Fuzz)[A-Z0-9]\w*`)
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	// ofPackage is a package, in backquotes, and the tests of it: all up to a
	// semicolon, the end of the cell or the next word in backquotes.
	ofPackage = regexp.MustCompile("`([\\w/]+)` ((?:Test|Fuzz)[A-Z0-9][^`;|\\n]*)")
)

// TestMatricesNameTestsThatExist checks that what the matrices give as proof can be
// run: a test that was renamed or dropped must not stay behind as a claim, and one whose
// package is named is looked for there.
func TestMatricesNameTestsThatExist(t *testing.T) {
	packages := make(map[string][]string) // that have a test of the name
	for _, f := range readSource(t) {
		for _, m := range testFunc.FindAllSubmatch(f.text, -1) {
			packages[string(m[1])] = append(packages[string(m[1])], f.pkg)
		}
	}
	pages, err := filepath.Glob(filepath.Join(moduleRoot(t), "docs", "[rt][fs][c0-9]*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no matrices: %v, %v", pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range wrongTests(string(text), packages) {
			t.Errorf("%s names %s", filepath.Base(page), wrong)
		}
	}
}

// wrongTests returns the tests that a page names and that are not there, or not in the
// package which it names. packages are those that have a test of the name.
func wrongTests(page string, packages map[string][]string) (wrong []string) {
	for _, name := range testName.FindAllString(page, -1) {
		if packages[name] == nil {
			wrong = append(wrong, name+", which is no test")
		}
	}
	for _, m := range ofPackage.FindAllStringSubmatch(page, -1) {
		for _, name := range testName.FindAllString(m[2], -1) {
			in := packages[name]
			if in != nil && !slices.ContainsFunc(in, func(p string) bool { return p == m[1] || strings.HasSuffix(p, "/"+m[1]) }) {
				wrong = append(wrong, name+" as one of "+m[1]+"; it is in "+strings.Join(in, ", "))
			}
		}
	}
	return wrong
}

// TestWrongTestsAreFound shows the check above what it must find.
func TestWrongTestsAreFound(t *testing.T) {
	packages := map[string][]string{"TestA": {"x/a"}, "TestB": {"x/a", "b"}, "FuzzC": {"y/c"}}
	for _, row := range []struct{ name, page, want string }{
		{"names alone", "| TestA, FuzzC |", ""},
		{"in its package", "| `a` TestA; `x/a` TestB, `c` FuzzC |", ""},
		{"behind a semicolon", "| `a` TestA; FuzzC |", ""},
		{"in another cell", "| `a` TestA | FuzzC |", ""},
		{"no test", "| TestA, TestD |", "TestD, which is no test"},
		{"of another package", "| FuzzC, `a` TestA, FuzzC |", "FuzzC as one of a; it is in y/c"},
		{"of a package with a like name", "| `xa` TestB |", "TestB as one of xa; it is in x/a, b"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := strings.Join(wrongTests(row.page, packages), "\n"); got != row.want {
				t.Errorf("found %q, want %q", got, row.want)
			}
		})
	}
}
