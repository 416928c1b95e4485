// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	declaration "github.com/isthmus-net/isthmus/internal/config/key"
)

// maxSize bounds a configuration file, in bytes: more is a wrong file, not a
// long one.
const maxSize = 4 << 20

// maxFaults bounds how many faults of a file are told.
const maxFaults = 100

// byteOrderMark is what some editors put in front of UTF-8. It means nothing.
var byteOrderMark = []byte("\xef\xbb\xbf")

// Parse reads a configuration from r, with instances of the sections declared, and
// checks it. The name stands in errors only. Faults of the text are returned together
// as Errors.
func Parse(r io.Reader, name string, sections ...Section) (*Config, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration %s: %w", name, err)
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("the configuration %s is larger than %d MiB: name the right file with -c", name, maxSize>>20)
	}
	text = bytes.TrimPrefix(text, byteOrderMark)
	config := new(Config)
	c := newChecker(name, text, sections)
	c.singles = config.singles()
	if file, ok := c.decode(text); ok {
		c.single(file)
		config.Instances = c.instances(file)
		config.share()
		c.conflicts(config)
		c.announced(config)
	}
	if len(c.errs) > 0 {
		return nil, c.errs.inOrder()
	}
	return config, nil
}

// checker collects the faults of one file.
type checker struct {
	file     string
	doc      *document
	sections []Section // of which there may be many
	singles  []single
	errs     Errors
	failed   map[string]bool // paths with a fault, so that none is reported twice
	above    map[string]bool // what is above them
}

func newChecker(file string, text []byte, sections []Section) *checker {
	return &checker{file: file, doc: &document{text: text}, sections: sections, failed: map[string]bool{}, above: map[string]bool{}}
}

// fail reports a fault of the value at path.
func (c *checker) fail(path, problem, remedy string) {
	c.mark(path)
	c.report(display(path), c.doc.find(path), problem, remedy)
}

// mark notes that the value at path has a fault.
func (c *checker) mark(path string) {
	c.failed[path] = true
	for i := strings.LastIndexByte(path, '.'); i > 0; i = strings.LastIndexByte(path[:i], '.') {
		c.above[path[:i]] = true
	}
}

// report reports a fault at a piece of the text.
func (c *checker) report(key string, at span, problem, remedy string) {
	switch n := len(c.errs); {
	case n > maxFaults:
		return
	case n == maxFaults:
		key, problem, remedy = "", fmt.Sprintf("there are more faults than these %d", maxFaults), "mend these first"
	}
	c.errs = append(c.errs, c.doc.fault(c.file, key, at, problem, remedy))
}

// display turns a path into a key as people write it: without indices, which
// the line number makes superfluous.
func display(path string) string {
	var b strings.Builder
	skip := false
	for _, r := range path {
		switch r {
		case '[':
			skip = true
		case ']':
			skip = false
		default:
			if !skip {
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}

// shapes finds sections written with the wrong kind of brackets: the decoder's
// own words for this would not help.
func (c *checker) shapes() {
	for _, s := range c.sections {
		c.shape(s.Name, true)
	}
	for _, s := range c.singles {
		c.shape(s.name, false)
	}
}

// shape checks the brackets of one section, of which there may be many.
func (c *checker) shape(name string, many bool) {
	switch kind := c.doc.locate().kinds[name]; {
	case many && (kind == unstable.Table || kind == unstable.InlineTable):
		c.fail(name, "there can be several of this section", fmt.Sprintf("write [[%s]]", name))
	case !many && kind == unstable.ArrayTable:
		c.fail(name, "there can be only one of this section", fmt.Sprintf("write [%s]", name))
	case kind == unstable.String, kind == unstable.Integer, kind == unstable.Float, kind == unstable.Bool,
		kind == unstable.Array && !many:
		c.fail(name, "this is a section, not a key", "write "+header(name, many)+" on a line of its own and its keys below")
	}
}

// spelling finds names that differ from known ones by capitals only. The decoder
// takes them for the same, so that one value would silently cover the other.
func (c *checker) spelling() {
	reported := map[string]bool{}
	var capitals []string
	for path := range c.doc.locate().values {
		if path != strings.ToLower(path) {
			capitals = append(capitals, path)
		}
	}
	slices.Sort(capitals)
	for _, path := range capitals {
		section, key, nested := strings.Cut(display(path), ".")
		known, word := c.known(), section
		if nested && slices.Contains(known, section) {
			known, word = c.keysOf(section), key
			section = path // keys are reported each, a section once
		}
		lower := strings.ToLower(word)
		if word == lower || !slices.Contains(known, lower) || strings.HasSuffix(path, "]") || reported[section] {
			continue
		}
		reported[section] = true
		c.fail(path, "keys and sections are written in small letters", "write "+lower)
	}
}

func header(name string, many bool) string {
	if many {
		return "[[" + name + "]]"
	}
	return "[" + name + "]"
}

// decode returns the file as it is written, and reports what is not TOML and sections
// that there are none of. False means that it is not worth checking.
func (c *checker) decode(text []byte) (file map[string]any, ok bool) {
	err := toml.Unmarshal(text, &file)
	if err == nil && c.plain(file) {
		return file, true
	}
	c.shapes()
	c.spelling()
	if len(c.errs) > 0 {
		return nil, false
	}
	if wide := bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")); wide {
		c.at(1, 1, "", "this file is in UTF-16", "save it in UTF-8")
		return nil, false
	}
	var fault *toml.DecodeError
	switch {
	case err == nil:
		c.strangers(text)
		return file, true
	case errors.As(err, &fault):
		line, column := fault.Position()
		problem := strings.TrimPrefix(fault.Error(), "toml: ")
		if strings.HasSuffix(problem, "already defined") {
			c.at(line, column, "", problem, "keep one of the two")
			return nil, false
		}
		if section, _, again := strings.Cut(strings.TrimPrefix(problem, "table "), " already exists"); again {
			section = strings.TrimPrefix(section, "key ")
			c.at(line, column, "", section+" stands here a second time", "write each section once, with all its keys below it")
			return nil, false
		}
		c.at(line, column, "", "this is not TOML: "+problem, `write key = value, one a line, with text in "double quotes"`)
	default:
		c.at(1, 1, "", err.Error(), "write key = value, one a line")
	}
	return nil, false
}

// plain reports whether a file has known sections alone, of the right shape, and nothing in capitals, so that
// its text need not be looked through for these.
func (c *checker) plain(file map[string]any) bool {
	shapes := map[string]bool{} // whether there may be many
	for _, s := range c.sections {
		shapes[s.Name] = true
	}
	for _, s := range c.singles {
		shapes[s.name] = false
	}
	for name, value := range file {
		many, known := shapes[name]
		_, list := value.([]any)
		_, table := value.(map[string]any)
		if !known || many && !list || !many && !table {
			return false
		}
	}
	return small(file)
}

// small reports whether no key in a value has capitals.
func small(value any) bool {
	switch v := value.(type) {
	case []any:
		return !slices.ContainsFunc(v, func(one any) bool { return !small(one) })
	case map[string]any:
		for name, one := range v {
			if name != strings.ToLower(name) || !small(one) {
				return false
			}
		}
	}
	return true
}

// strangers reports sections that there are none of, and keys outside of all.
func (c *checker) strangers(text []byte) {
	known := c.known()
	var parser unstable.Parser
	parser.Reset(text)
	inside := false
	for parser.NextExpression() {
		node := parser.Expression()
		header := node.Kind == unstable.Table || node.Kind == unstable.ArrayTable
		inside = inside || header
		if header || !inside && node.Kind == unstable.KeyValue {
			if parts, at := keyParts(node); !slices.Contains(known, parts[0]) {
				c.unknown(parts, at, known)
			}
		}
	}
}

// at reports a fault at a line and column.
func (c *checker) at(line, column int, key, problem, remedy string) {
	c.from(c.doc.offset(line, column), key, problem, remedy)
}

// from reports a fault at an offset; the text up to the next blank offends.
func (c *checker) from(offset int, key, problem, remedy string) {
	length := bytes.IndexAny(c.doc.text[offset:], " \t\r\n=]")
	if length < 0 {
		length = len(c.doc.text) - offset
	}
	c.report(key, span{offset, length}, problem, remedy)
}

// unknown reports a section or key that means nothing here, with the nearest one that does.
func (c *checker) unknown(key []string, at span, known []string) {
	problem := "there is no such section"
	remedy := "known ones are " + strings.Join(known, ", ")
	if kind := c.doc.locate().kinds[key[0]]; kind != unstable.Table && kind != unstable.ArrayTable {
		problem = "there is no such key outside a section"
		remedy = "put it below the section to which it belongs: " + strings.Join(known, ", ")
	}
	if near := nearest(key[len(key)-1], known); near != "" {
		remedy = fmt.Sprintf("did you mean %s?", near)
	}
	c.from(at.offset, strings.Join(key, "."), problem, remedy)
}

// known are the sections that the file may have.
func (c *checker) known() (names []string) {
	for _, s := range c.sections {
		names = append(names, s.Name)
	}
	for _, s := range c.singles {
		names = append(names, s.name)
	}
	return names
}

// keysOf lists the keys of a section.
func (c *checker) keysOf(section string) []string {
	for _, s := range c.sections {
		if s.Name == section {
			return declaration.Names(s.Keys())
		}
	}
	return declaration.Names(SingleKeys(section))
}

// SingleKeys are the keys of a section of which there is one, none if there is no such
// section.
func SingleKeys(section string) []declaration.Key {
	for _, s := range new(Config).singles() {
		if s.name == section {
			return s.keys
		}
	}
	return nil
}
