// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/pelletier/go-toml/v2/unstable"
)

// document remembers where each key and value of a TOML text stands. Paths look
// like "server[0].prefixes[1]"; the index of a table array counts its headers.
// The text is looked through when one is asked for: of a long file without a fault none is.
type document struct {
	text   []byte
	values map[string]span // what the key is set to; for a table its header
	keys   map[string]span // the key itself
	kinds  map[string]unstable.Kind
	tables map[string]int // headers seen of each table array
	// shown are the keys of a file of secrets whose values errors may show; nil: those of any
	// other file.
	shown []string
}

// span is a piece of the text, in bytes.
type span struct{ offset, length int }

// locate reads the text, once, as far as it is TOML. Faults of syntax are not its
// business: the decoder reports them.
func (d *document) locate() *document {
	if d.values != nil {
		return d
	}
	d.values, d.keys, d.kinds, d.tables = map[string]span{}, map[string]span{}, map[string]unstable.Kind{}, map[string]int{}
	var parser unstable.Parser
	parser.Reset(d.text)
	prefix := ""
	for parser.NextExpression() {
		node := parser.Expression()
		switch node.Kind {
		case unstable.Table, unstable.ArrayTable:
			prefix = d.header(node)
		case unstable.KeyValue:
			d.pair(prefix, node)
		}
	}
	return d
}

// header records a table header and returns its path.
func (d *document) header(node *unstable.Node) string {
	name, at := joinKey(node)
	name = d.inside(name)
	d.kinds[name] = node.Kind
	path := name
	if node.Kind == unstable.ArrayTable {
		path = fmt.Sprintf("%s[%d]", name, d.tables[name])
		d.tables[name]++
	}
	if _, seen := d.values[name]; !seen {
		d.values[name] = at
	}
	d.values[path] = at
	return path
}

// inside puts the index of the last header of a table array into the name of a
// table below it: [[teredo_server.key]] belongs to the last [[teredo_server]].
func (d *document) inside(name string) string {
	for i := range len(name) {
		if name[i] != '.' {
			continue
		}
		if n := d.tables[name[:i]]; n > 0 {
			return fmt.Sprintf("%s[%d]%s", name[:i], n-1, name[i:])
		}
	}
	return name
}

// pair records a key and its value, and goes into arrays and inline tables.
func (d *document) pair(prefix string, node *unstable.Node) {
	name, key := joinKey(node)
	path := name
	if prefix != "" {
		path = prefix + "." + name
	}
	d.keys[path] = key
	d.value(path, node.Value(), d.afterEquals(node, key))
}

func (d *document) value(path string, node *unstable.Node, at span) {
	if node.Raw.Length > 0 {
		at = span{int(node.Raw.Offset), int(node.Raw.Length)}
	}
	d.values[path] = at
	d.kinds[path] = node.Kind
	children := node.Children()
	for i := 0; children.Next(); {
		child := children.Node()
		switch {
		case node.Kind == unstable.Array:
			d.value(fmt.Sprintf("%s[%d]", path, i), child, at)
			i++
		case child.Kind == unstable.KeyValue:
			d.pair(path, child)
		}
	}
}

// afterEquals is the value of a pair as text, for values whose own place the
// parser does not tell (arrays, inline tables).
func (d *document) afterEquals(node *unstable.Node, key span) span {
	end := int(node.Raw.Offset) + int(node.Raw.Length)
	start := key.offset + key.length
	if start > end {
		return key
	}
	value := bytes.TrimLeft(d.text[start:end], " \t=")
	return span{end - len(value), len(bytes.TrimRight(value, " \t\r\n"))}
}

// joinKey returns a dotted key and the text that it covers.
func joinKey(node *unstable.Node) (string, span) {
	parts, at := keyParts(node)
	return strings.Join(parts, "."), at
}

// keyParts returns the parts of a dotted key, and the text that it covers.
func keyParts(node *unstable.Node) (parts []string, at span) {
	for key := node.Key(); key.Next(); {
		part := key.Node()
		parts = append(parts, string(part.Data))
		if len(parts) == 1 {
			at.offset = int(part.Raw.Offset)
		}
		at.length = int(part.Raw.Offset) + int(part.Raw.Length) - at.offset
	}
	return parts, at
}

// find returns where the path is set, or else the nearest table above it.
func (d *document) find(path string) span {
	d.locate()
	for path != "" {
		if at, ok := d.values[path]; ok {
			return at
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return span{}
}

// fault builds an error at a piece of the text.
func (d *document) fault(file, key string, at span, problem, remedy string) *Error {
	start := bytes.LastIndexByte(d.text[:at.offset], '\n') + 1
	end := len(d.text)
	if i := bytes.IndexByte(d.text[at.offset:], '\n'); i >= 0 {
		end = at.offset + i
	}
	return &Error{
		File: file, Key: key, Problem: problem, Remedy: remedy,
		Line:   bytes.Count(d.text[:at.offset], []byte("\n")) + 1,
		Column: at.offset - start + 1,
		Source: d.masked(strings.Map(printable, strings.TrimRight(string(d.text[start:end]), "\r"))),
		Width:  min(at.length, end-at.offset),
	}
}

// printable keeps what a wrong file may hold, such as escape sequences, from the
// terminal.
func printable(r rune) rune {
	if r == '\t' || unicode.IsPrint(r) {
		return r
	}
	return '.'
}

// masked hides secrets in a line: errors end in logs. In a file of secrets, whatever is not
// known to be none may be one, such as the value of a key that is misspelt.
func (d *document) masked(line string) string {
	if d.shown != nil {
		return line[:d.open(line)] + strings.Repeat("*", len(line)-d.open(line))
	}
	// The value ends no later than its line.
	at := regexp.MustCompile(`(?:secret|password)"?\s*=\s*(.*)$`).FindStringSubmatchIndex(line)
	if at == nil {
		return line
	}
	return line[:at[2]] + strings.Repeat("*", len(line)-at[2])
}

// open is how much of a line of a file of secrets may be shown.
func (d *document) open(line string) int {
	values := regexp.MustCompile(`([A-Za-z0-9_-]+)["']?\s*=\s*`).FindAllStringSubmatchIndex(line, -1)
	for _, v := range values {
		if !slices.Contains(d.shown, line[v[2]:v[3]]) {
			return v[1]
		}
	}
	if start := strings.TrimLeft(line, " \t"); len(values) == 0 && !strings.HasPrefix(start, "[") {
		return 0
	}
	return len(line)
}

// offset is the place of a line and column, both counted from 1.
func (d *document) offset(line, column int) int {
	offset := 0
	for range line - 1 {
		i := bytes.IndexByte(d.text[offset:], '\n')
		if i < 0 {
			break
		}
		offset += i + 1
	}
	return min(offset+max(column-1, 0), len(d.text))
}
