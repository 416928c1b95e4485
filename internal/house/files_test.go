// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"bytes"
	"go/ast"
	"go/format"
	"path"
	"slices"
	"strings"
	"testing"
)

const header = "// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0\n\n"

// TestEveryFileHasTheHeader checks the licence header of hand-written files.
func TestEveryFileHasTheHeader(t *testing.T) {
	for _, f := range readSource(t) {
		if !bytes.HasPrefix(f.text, []byte(header)) && !ast.IsGenerated(f.syntax) {
			t.Errorf("%s does not start with the licence header and an empty line", f.path)
		}
	}
}

// TestEveryFileIsFormatted checks what gofmt would do.
func TestEveryFileIsFormatted(t *testing.T) {
	for _, f := range readSource(t) {
		formatted, err := format.Source(f.text)
		if err != nil {
			t.Errorf("%s: %v", f.path, err)
			continue
		}
		if !bytes.Equal(formatted, f.text) {
			t.Errorf("%s is not formatted; run gofmt -w %s", f.path, f.path)
		}
	}
}

// TestEveryPackageHasOneComment checks that each package says once what it is.
func TestEveryPackageHasOneComment(t *testing.T) {
	comments := make(map[string][]string)
	for _, f := range readSource(t) {
		if f.test {
			continue
		}
		if _, ok := comments[f.pkg]; !ok {
			comments[f.pkg] = nil
		}
		if f.syntax.Doc != nil {
			comments[f.pkg] = append(comments[f.pkg], f.path)
		}
	}
	for pkg, files := range comments {
		if len(files) != 1 {
			t.Errorf("%s has %d package comments %v, want one", pkg, len(files), files)
		}
	}
}

// TestNoPackageIsADrawer forbids names that say nothing of what is inside.
func TestNoPackageIsADrawer(t *testing.T) {
	drawers := []string{"util", "utils", "common", "helper", "helpers", "misc"}
	for _, f := range readSource(t) {
		if name := f.syntax.Name.Name; slices.Contains(drawers, name) || slices.Contains(drawers, path.Base(f.pkg)) {
			t.Errorf("%s: a package named %s says nothing of what is in it", f.path, name)
		}
	}
}

// clockCalls are the functions of package time that read or wait for a clock.
var clockCalls = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// seeded are the names of math/rand/v2 that take their randomness from the
// caller; its other functions draw from a generator of the process.
var seeded = []string{"New", "NewChaCha8", "NewPCG", "ChaCha8", "PCG", "Rand", "Source"}

// impurities returns what a pure file does that only a run package may: read a
// clock, draw from the process's generator, or start a goroutine.
func impurities(f *sourceFile) []string {
	var found []string
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, f.fileSet.Position(n.Pos()).String()+": starts a goroutine")
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			clock := x.Name == "time" && slices.Contains(clockCalls, n.Sel.Name)
			dice := x.Name == "rand" && !slices.Contains(seeded, n.Sel.Name)
			if clock || dice {
				found = append(found, f.fileSet.Position(n.Pos()).String()+": uses "+x.Name+"."+n.Sel.Name)
			}
		}
		return true
	})
	return found
}

// TestPurePackagesSeeNoClock checks that time and randomness are arguments
// everywhere below the run packages, and that nothing there runs on the side.
func TestPurePackagesSeeNoClock(t *testing.T) {
	for _, f := range readSource(t) {
		if f.test || !matches(pure, f.pkg) {
			continue
		}
		for _, what := range impurities(f) {
			t.Errorf("%s; engines and codecs take time and randomness as arguments and run in their caller's thread", what)
		}
	}
}

// TestImpuritiesAreFound shows the check above what it must find.
func TestImpuritiesAreFound(t *testing.T) {
	f, err := parse("teredo/x.go", []byte(`package teredo

import ("math/rand/v2"; "time")

func f() time.Time { go f(); return time.Now().Add(rand.N(time.Second)) }

var g = rand.New(rand.NewPCG(1, 2))
`))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(impurities(f), "\n")
	want := "teredo/x.go:5:22: starts a goroutine\nteredo/x.go:5:37: uses time.Now\nteredo/x.go:5:52: uses rand.N"
	if got != want {
		t.Errorf("impurities:\n%s\nwant:\n%s", got, want)
	}
}
