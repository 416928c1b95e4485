// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
)

// TestEveryKeyIsInEffect wants a test for every key that sees what it does, and says so.
func TestEveryKeyIsInEffect(t *testing.T) {
	shown := map[string]bool{}
	for _, f := range readSource(t) {
		if !f.test {
			continue
		}
		keys, unread := inEffect(f)
		for _, k := range keys {
			shown[k] = true
		}
		for _, at := range unread {
			t.Errorf("%s: the section and the keys must be written out, or nobody sees which they are", f.fileSet.Position(at))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(configtest.Declared())) {
		if !shown[k] {
			t.Errorf("no test shows what the key %s does: see it in a packet, the kernel or the engine, and call configtest.InEffect there", k)
		}
	}
}

// inEffect returns the keys that the tests of a file show, each with its section in front,
// and where a call names what cannot be read.
func inEffect(f *sourceFile) (keys []string, unread []token.Pos) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if called, ok := call.Fun.(*ast.SelectorExpr); !ok || called.Sel.Name != "InEffect" || len(call.Args) < 3 {
			return true
		}
		var words []string
		for _, arg := range call.Args[1:] {
			literal, ok := arg.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				unread = append(unread, arg.Pos())
				return true
			}
			word, _ := strconv.Unquote(literal.Value) // the parser has accepted it
			words = append(words, word)
		}
		for _, k := range words[1:] {
			keys = append(keys, words[0]+"."+k)
		}
		return true
	})
	return keys, unread
}

// TestCallsAreRead shows which calls are counted.
func TestCallsAreRead(t *testing.T) {
	for _, tt := range []struct {
		name, call string
		keys       []string
		unread     int
	}{
		{"one key", `configtest.InEffect(t, "echo", "port")`, []string{"echo.port"}, 0},
		{"several", `configtest.InEffect(t, "echo", "port", "rate")`, []string{"echo.port", "echo.rate"}, 0},
		{"in a row of a table", `rows{{configtest.InEffect(t, "echo.list", "id"), 1}}`, []string{"echo.list.id"}, 0},
		{"a key that is a variable", `configtest.InEffect(t, "echo", row.key)`, nil, 1},
		{"another function", `other.Effect(t, "echo", "port")`, nil, 0},
	} {
		f, err := parse("x/x_test.go", []byte("package x\nvar _ = "+tt.call))
		if err != nil {
			t.Fatal(err)
		}
		if keys, unread := inEffect(f); !slices.Equal(keys, tt.keys) || len(unread) != tt.unread {
			t.Errorf("%s: %q, %d not read", tt.name, keys, len(unread))
		}
	}
}
