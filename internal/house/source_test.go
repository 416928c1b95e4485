// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package house_test keeps the house in order: it reads the source of every
// package and checks which way imports point, what pure packages may touch,
// and that each file and package carries its header and comment.
package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// module is this module's path; packages are named without it here.
const module = "github.com/isthmus-net/isthmus"

// sourceFile is one parsed Go file.
type sourceFile struct {
	path    string // below the module root, with slashes
	pkg     string // folder below the module root
	test    bool
	text    []byte
	syntax  *ast.File
	fileSet *token.FileSet
}

// imports returns the paths that the file imports; packages of this module
// come without the module's path.
func (f *sourceFile) imports() []string {
	var paths []string
	for _, spec := range f.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has accepted it, so this cannot be
		}
		paths = append(paths, strings.TrimPrefix(p, module+"/"))
	}
	return paths
}

// moduleRoot returns the folder of go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test's folder")
		}
		dir = filepath.Dir(dir)
	}
}

// readSource parses every Go file of the module.
func readSource(t *testing.T) []*sourceFile {
	t.Helper()
	root := moduleRoot(t)
	var files []*sourceFile
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if base := entry.Name(); name != root && (strings.HasPrefix(base, ".") || base == "testdata" || base == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := parse(filepath.ToSlash(rel), text)
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go file found")
	}
	return files
}

// parse makes a sourceFile of a text.
func parse(name string, text []byte) (*sourceFile, error) {
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	return &sourceFile{
		path:    name,
		pkg:     path.Dir(name),
		test:    strings.HasSuffix(name, "_test.go"),
		text:    text,
		syntax:  syntax,
		fileSet: set,
	}, nil
}
