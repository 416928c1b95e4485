// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/sip/message"
)

// reasonTables are the variables that hold what counters are labelled with, and the pages
// of docs, one of which must say of each label what it means.
var reasonTables = []struct {
	file, variable string
	pages          []string
}{
	{"teredo/fault.go", "faultNames", []string{"client.md"}},
	{"teredo/client/stats.go", "reasonNames", []string{"client.md"}},
	{"teredo/portmap/doc.go", "Reasons", []string{"client.md"}},
	{"teredo/relay/stats.go", "reasonNames", []string{"relay.md"}},
	{"teredo/server/stats.go", "reasonNames", []string{"server.md"}},
	{"teredo/teredobpf/counters.go", "teredoReasons", []string{"relay.md", "client.md", "fastpath.md"}},
	{"translate/result.go", "reasonNames", []string{"siit.md"}},
	{"translate/siit/siitbpf/counters.go", "siitReasons", []string{"siit.md", "fastpath.md"}},
	{"translate/nat64/reason.go", "reasonNames", []string{"nat64.md"}},
	{"translate/nat64/nat64bpf/counters.go", "nat64Reasons", []string{"nat64.md", "fastpath.md"}},
	{"translate/dns64/reason.go", "reasonNames", []string{"dns64.md"}},
	{"translate/ftpalg/counter.go", "counterNames", []string{"ftp.md"}},
	{"gprs/gtp/fault.go", "faultNames", []string{"ggsn.md"}},
	{"gprs/ggsn/reason.go", "reasonNames", []string{"ggsn.md"}},
	{"gprs/ggsn/output.go", "endNames", []string{"ggsn.md"}},
	{"gprs/ggsn/behind.go", "routeFaultNames", []string{"ggsn.md"}},
	{"gprs/link/verdict.go", "verdictNames", []string{"ggsn.md"}},
	{"gprs/sgsn/stats.go", "dropNames", []string{"sgsn.md"}},
	{"internal/radius/reason.go", "reasonNames", []string{"ggsn.md"}},
	{"sip/registrar/stats.go", "reasonNames", []string{"sip.md"}},
	{"sip/registrar/proxy.go", "verdictNames", []string{"sip.md"}},
	{"sctp/media/mediarole/counters.go", "reasonWords", []string{"sctp-media.md"}},
}

// TestReasonsAreDocumented checks that whoever sees a counter of drops can look its reason up.
func TestReasonsAreDocumented(t *testing.T) {
	source := make(map[string]*sourceFile)
	for _, f := range readSource(t) {
		source[f.path] = f
	}
	check := func(from string, labels, pages []string) {
		var text strings.Builder
		for _, page := range pages {
			b, err := os.ReadFile(filepath.Join(moduleRoot(t), "docs", page))
			if err != nil {
				t.Fatal(err)
			}
			text.Write(b)
		}
		for _, label := range labels {
			if !strings.Contains(text.String(), "`"+label+"`") {
				t.Errorf("%s has `%s`, of which no table in docs/%s says what it means and what to do", from, label, strings.Join(pages, ", docs/"))
			}
		}
	}
	for _, table := range reasonTables {
		from := table.file + ": " + table.variable
		f := source[table.file]
		if f == nil {
			t.Errorf("%s: there is no such file", from)
			continue
		}
		labels := stringsOf(f, table.variable)
		if len(labels) == 0 {
			t.Errorf("%s: there is no such variable, or no string in it", from)
		}
		check(from, labels, table.pages)
	}
	check("sip/message", message.FaultNames(), []string{"sip.md"})
}

// stringsOf returns the string literals in a variable of a file, but those that are no
// label: "none", and the empty one.
func stringsOf(f *sourceFile, variable string) (found []string) {
	for _, d := range f.syntax.Decls {
		declared, ok := d.(*ast.GenDecl)
		if !ok || declared.Tok != token.VAR {
			continue
		}
		for _, spec := range declared.Specs {
			v := spec.(*ast.ValueSpec)
			if !slices.ContainsFunc(v.Names, func(n *ast.Ident) bool { return n.Name == variable }) {
				continue
			}
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
		}
	}
	return found
}
