// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"go/ast"
	"go/token"
	"path"
	"strconv"
	"strings"
	"testing"
)

// roleList is the one file outside a role that names it.
const roleList = "cmd/isthmus/roles.go"

// rolePackages are the packages that the list of roles imports.
func rolePackages(t *testing.T, source []*sourceFile) (packages []string) {
	t.Helper()
	for _, f := range source {
		if f.path != roleList {
			continue
		}
		for _, p := range f.imports() {
			if p != "internal/role" {
				packages = append(packages, p)
			}
		}
	}
	if len(packages) == 0 {
		t.Fatalf("%s names no role", roleList)
	}
	return packages
}

// TestRolesAreNamedOnce checks that what all roles share neither imports one of the list
// nor names one: a role that leaves takes its directory and its line, and nothing else.
func TestRolesAreNamedOnce(t *testing.T) {
	source := readSource(t)
	packages := rolePackages(t, source)
	for _, f := range source {
		if f.test || f.path == roleList || matches(doubles, f.pkg) {
			continue
		}
		for _, p := range packages {
			if f.pkg == p || matches(labs, f.pkg) {
				continue
			}
			for _, imported := range f.imports() {
				if imported == p {
					t.Errorf("%s imports the role %s, which only %s may", f.path, p, roleList)
				}
			}
			if name := roleName(source, p); name != "" && shared(f.pkg) {
				for _, word := range namings(f, name) {
					t.Errorf("%s names the role %s as %s, and serves all roles", f.path, name, word)
				}
			}
		}
	}
}

// roleName is what the package of a role declares as its name, or else its own name
// without the ending; "" if it has neither.
func roleName(source []*sourceFile, pkg string) string {
	for _, f := range source {
		if f.pkg != pkg || f.test {
			continue
		}
		if o := f.syntax.Scope.Lookup("name"); o != nil && o.Kind == ast.Con {
			if text, ok := o.Decl.(*ast.ValueSpec).Values[0].(*ast.BasicLit); ok {
				return strings.Trim(text.Value, `"`)
			}
		}
	}
	if name, one := strings.CutSuffix(path.Base(pkg), "role"); one {
		return name
	}
	return ""
}

// shared reports whether a package serves all roles.
func shared(pkg string) bool {
	return matches([]string{"internal/...", "fastpath/...", "cmd/...", "examples"}, pkg)
}

// namings are the identifiers and texts by which a file means the role of that name.
func namings(f *sourceFile, name string) (found []string) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Ident:
			if strings.Contains(strings.ToLower(n.Name), strings.ReplaceAll(name, "_", "")) {
				found = append(found, n.Name)
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil && (text == name || strings.Contains(text, "[["+name)) {
				found = append(found, n.Value)
			}
		}
		return true
	})
	return found
}

// TestNamingsAreFound shows what counts as naming a role, and what does not.
func TestNamingsAreFound(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       int
	}{
		{"an identifier", "package x\nvar defaultEcho = 1", 1},
		{"the name", "package x\nvar role = \"echo\"", 1},
		{"its section", "package x\nvar remedy = \"add [[echo]] with a port\"", 1},
		{"prose", "package x\n// An echo comes back.\nvar help = \"an echo request\"", 0},
	} {
		f, err := parse("x/x.go", []byte(tt.text))
		if err != nil {
			t.Fatal(err)
		}
		if got := namings(f, "echo"); len(got) != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}
