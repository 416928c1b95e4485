// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"

	"github.com/isthmus-net/isthmus/internal/config/key"
)

// maxTables bounds a file of sections of one kind, such as that of all subscribers, in bytes.
const maxTables = 16 << 20

// ReadTables reads a private file of its own that holds sections of one kind, and checks
// them together. Only its owner, who is root or the user of this process, and the members
// of its group may read it. Faults of the text are returned together as Errors.
func ReadTables[T any](path string, of SectionOf[T], check func([]*T, *Checker)) ([]*T, error) {
	text, err := ReadPrivate(path, maxTables)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimPrefix(text, byteOrderMark)
	r := newTableReader(path, text, of)
	whole := eachPlain(text, of.Name, r.read)
	if !whole {
		r = newTableReader(path, text, of) // which tells of each fault once
		whole = r.readWhole(text)
	}
	if whole {
		check(r.tables, &Checker{r.c, ""})
	}
	if len(r.c.errs) > 0 {
		return nil, r.c.errs.inOrder()
	}
	return r.tables, nil
}

// tableReader makes values of sections.
type tableReader[T any] struct {
	of      SectionOf[T]
	c       *checker
	decoder *key.Decoder[T]
	at      *key.Place // of all sections
	tables  []*T
}

func newTableReader[T any](path string, text []byte, of SectionOf[T]) *tableReader[T] {
	c := newChecker(path, text, []Section{of.Section()})
	c.doc.shown = key.Shown(of.Keys(new(T)))
	return &tableReader[T]{of: of, c: c, decoder: key.NewDecoder(of.Keys), at: key.At(of.Name, faults{c})}
}

// read reads the section that is the nth of the file.
func (r *tableReader[T]) read(n int, table map[string]any) {
	r.at.Entry(n, func() {
		one := new(T)
		*one = r.decoder.Decode(table, r.at)
		if r.of.Check != nil {
			r.of.Check(one, &Checker{r.c, r.at.String()})
		}
		r.tables = append(r.tables, one)
	})
}

// readWhole reads a text at once, and tells what is wrong with it as a whole.
func (r *tableReader[T]) readWhole(text []byte) bool {
	file, ok := r.c.decode(text)
	if ok {
		r.c.eachSection(r.of.Name, file, r.read)
	}
	return ok
}
