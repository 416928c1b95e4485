// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package key

import (
	"slices"
	"strconv"
)

// Reporter takes what is wrong with the keys of a file, by their paths in it, such as
// "server[0].prefixes".
type Reporter interface {
	// Wrong reports a fault of a value.
	Wrong(path string, f *Fault)
	// Unknown reports a key that is none of those known.
	Unknown(path string, known []string)
}

// Place is where a value stands in a file, and who is told what is wrong with it. Of most nothing is: the path is
// text only then.
type Place struct {
	path []byte
	to   Reporter
}

// At is the place of a path.
func At(path string, to Reporter) *Place { return &Place{[]byte(path), to} }

// String returns the path.
func (p *Place) String() string { return string(p.path) }

func (p *Place) wrong(f *Fault) { p.to.Wrong(p.String(), f) }

// below decodes the value of a key that stands below the place.
func (p *Place) below(k *Key, raw any) {
	here := len(p.path)
	p.path = append(append(p.path, '.'), k.Name...)
	k.decode(raw, p)
	p.path = p.path[:here]
}

// Entry calls a function while the place is that of an entry of the list that stands there.
func (p *Place) Entry(i int, f func()) {
	here := len(p.path)
	p.path = append(strconv.AppendInt(append(p.path, '['), int64(i), 10), ']')
	f()
	p.path = p.path[:here]
}

// unknown reports the keys of a table that are none of those known.
func (p *Place) unknown(table map[string]any, known []string) {
	for name := range table {
		if !slices.Contains(known, name) {
			p.to.Unknown(p.String()+"."+name, known)
		}
	}
}
