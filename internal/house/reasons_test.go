// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/sip/message"
)

// reasonTable is how a variable is called that holds what counters are labelled with.
var reasonTable = regexp.MustCompile(`(?i)(reason|fault|verdict|drop|end|counter)(name|word)?s$`)

// label is one of these.
var label = regexp.MustCompile(`^[a-z0-9_]+$`)

// TestReasonsAreDocumented checks that whoever sees a counter of drops can look its reason up:
// in the page of a role that has the package, or in one that this links to.
func TestReasonsAreDocumented(t *testing.T) {
	source := readSource(t)
	pages := rolePages(t, source)
	check := func(from, pkg string, labels []string) {
		for _, one := range labels {
			if !strings.Contains(pages[pkg], "`"+one+"`") {
				t.Errorf("%s has `%s`, of which no page of a role that has it says what it means and what to do", from, one)
			}
		}
	}
	tables := 0
	for _, f := range source {
		if f.test || pages[f.pkg] == "" {
			continue
		}
		for variable, labels := range labelTables(f) {
			tables++
			check(f.path+": "+variable, f.pkg, labels)
		}
	}
	if tables < 20 {
		t.Errorf("only %d tables of reasons were found", tables)
	}
	check("sip/message", "sip/message", message.FaultNames())
}

// docLink is one of a page of docs to another.
var docLink = regexp.MustCompile(`\]\(([a-z0-9-]+)\.md`)

// rolePages are, for each package, the texts for who runs a role that has it: the role's own page,
// and those that it links to and are no other role's.
func rolePages(t *testing.T, source []*sourceFile) map[string]string {
	t.Helper()
	imports, pages := map[string][]string{}, map[string]string{}
	for _, f := range source {
		if !f.test {
			imports[f.pkg] = append(imports[f.pkg], f.imports()...)
		}
	}
	own := ownPages(t, source)
	for r, page := range own {
		text := readPage(t, page)
		for _, link := range docLink.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(slices.Collect(maps.Values(own)), link[1]) {
				text += readPage(t, link[1])
			}
		}
		seen := map[string]bool{}
		for todo := []string{r}; len(todo) > 0; todo = todo[1:] {
			if pkg := todo[0]; !seen[pkg] && imports[pkg] != nil {
				seen[pkg] = true
				pages[pkg] += text
				todo = append(todo, imports[pkg]...)
			}
		}
	}
	return pages
}

// ownPages are the pages of the roles, each called as the role, the end of its name or its family.
func ownPages(t *testing.T, source []*sourceFile) map[string]string {
	t.Helper()
	own := map[string]string{}
	for _, r := range rolePackages(t, source) {
		name := roleName(source, r)
		family, _, _ := strings.Cut(r, "/")
		called := []string{strings.ReplaceAll(name, "_", "-"), name[strings.LastIndex(name, "_")+1:], family}
		n := slices.IndexFunc(called, func(page string) bool { return readPage(t, page) != "" })
		if n < 0 {
			t.Fatalf("docs has no page for the role %s: call it %s.md", name, strings.Join(called, ".md or "))
		}
		own[r] = called[n]
	}
	return own
}

// readPage is the text of a page of docs, empty if there is none.
func readPage(t *testing.T, page string) string {
	t.Helper()
	b, _ := os.ReadFile(filepath.Join(moduleRoot(t), "docs", page+".md"))
	return string(b)
}

// labelTables are the tables of labels that a file declares, without "none" and the empty one.
func labelTables(f *sourceFile) map[string][]string {
	tables := map[string][]string{}
	for _, d := range f.syntax.Decls {
		declared, ok := d.(*ast.GenDecl)
		if !ok || declared.Tok != token.VAR {
			continue
		}
		for _, spec := range declared.Specs {
			v := spec.(*ast.ValueSpec)
			if name := v.Names[0].Name; reasonTable.MatchString(name) {
				tables[name] = labelsIn(v)
			}
		}
	}
	return tables
}

// labelsIn are the strings of a variable; none if one is for people.
func labelsIn(v *ast.ValueSpec) (found []string) {
	ast.Inspect(v, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		if s, err := strconv.Unquote(literal.Value); err == nil && s != "" && s != "none" {
			found = append(found, s)
		}
		return true
	})
	if slices.ContainsFunc(found, func(s string) bool { return !label.MatchString(s) }) {
		return nil
	}
	return found
}
