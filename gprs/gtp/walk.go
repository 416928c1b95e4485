// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import "encoding/binary"

// Optional is a field that a message may lack.
type Optional[T any] struct {
	Value   T
	Present bool
}

// Some returns a field that is present.
func Some[T any](v T) Optional[T] { return Optional[T]{Value: v, Present: true} }

// Notes say which elements of a message were passed over. None is a reason to refuse it
// (TS 29.060 sections 11.1.9 to 11.1.13).
type Notes struct {
	Unknown    uint16 // of a type that no standard names
	Unexpected uint16 // known, but not in this message, or once too often
	Incorrect  uint16 // optional and unreadable: taken as absent
	// FirstIncorrect is the type of the first one, for a cause of 203.
	FirstIncorrect ElementType
}

// presence says what becomes of a message without an element.
type presence uint8

const (
	optional    presence = iota // may be absent; absent if it cannot be read
	conditional                 // may be absent; the message is refused if it cannot be read
	mandatory                   // the message is refused if it is absent or cannot be read
)

// when returns mandatory if the condition of a conditional element holds.
func when(condition bool) presence {
	if condition {
		return mandatory
	}
	return conditional
}

// format reads and writes the value of one kind of element.
type format[T any] struct {
	parse  func(v []byte) (T, bool)
	append func(b []byte, v T) []byte
}

// walk goes over the fields of a message in the order of their types, which is that of
// the wire, and reads or writes each.
type walk struct {
	version Version
	writing bool
	b       []byte      // what is read still, or has been written
	start   int         // where the header begins, if writing
	gap     ElementType // of which an occurrence is absent, so that no later one may be there
	notes   Notes
	err     error
}

// finish passes over what no field has asked for.
func (w *walk) finish() {
	for w.err == nil && len(w.b) > 0 {
		w.pass()
	}
}

// pass passes over the next element and notes it.
func (w *walk) pass() {
	t, _, rest, _ := nextElement(w.version, w.b)
	w.b = rest
	switch {
	case !t.Known():
		w.notes.Unknown++
	case t != ElementPrivateExtension: // a message may have more than it is read for
		w.notes.Unexpected++
	}
}

// find returns the value of the next element if it is of the type, and passes over
// those of lower types.
func (w *walk) find(t ElementType) (value []byte, ok bool) {
	for len(w.b) > 0 && ElementType(w.b[0]) <= t {
		if found, value, rest, _ := nextElement(w.version, w.b); found == t {
			w.b = rest
			return value, true
		}
		w.pass()
	}
	return nil, false
}

// written sets the length and returns the message, or what was there before.
func (w *walk) written() ([]byte, error) {
	n := len(w.b) - w.start
	if w.err == nil && n > maxDatagram {
		w.err = refuse(FaultTooLong, 0)
	}
	if w.err != nil {
		return w.b[:w.start], w.err
	}
	counted := n - headerLenV1
	if w.version == V0 {
		counted = n - headerLenV0
	}
	binary.BigEndian.PutUint16(w.b[w.start+offsetLength:], uint16(counted))
	return w.b, nil
}

// onlyV1 refuses a message of version 0, which has none of the type, and reports
// whether it did.
func (w *walk) onlyV1() bool {
	if w.version == V0 && w.err == nil {
		w.err = refuse(FaultMessageType, 0)
	}
	return w.version == V0
}

// require refuses a message without an element that a condition, known only at the end,
// makes mandatory.
func (w *walk) require(condition, present bool, t ElementType) {
	if w.err == nil && condition && !present {
		w.err = refuse(FaultElementMissing, t)
	}
}

// element reads or writes one element.
func element[T any](w *walk, t ElementType, p presence, o *Optional[T], f format[T]) {
	switch {
	case w.err != nil:
	case w.writing:
		writeElement(w, t, p, o, f)
	default:
		readElement(w, t, p, o, f)
	}
}

// value reads or writes one element that no message of the kind lacks.
func value[T any](w *walk, t ElementType, v *T, f format[T]) {
	o := Some(*v)
	element(w, t, mandatory, &o, f)
	if !w.writing {
		*v = o.Value
	}
}

func readElement[T any](w *walk, t ElementType, p presence, o *Optional[T], f format[T]) {
	*o = Optional[T]{}
	octets, ok := w.find(t)
	if !ok {
		if p == mandatory {
			w.err = refuse(FaultElementMissing, t)
		}
		return
	}
	v, ok := f.parse(octets)
	switch {
	case ok && w.gap != t:
		*o = Some(v)
	case p == optional:
		// The place of an element among those of its type says what it means: without
		// one, there are none behind it.
		w.gap = t
		if w.notes.Incorrect == 0 {
			w.notes.FirstIncorrect = t
		}
		w.notes.Incorrect++
	default:
		w.err = refuse(FaultElementIncorrect, t)
	}
}

// writeElement writes the element and reads it back: nothing goes out that we would
// refuse.
func writeElement[T any](w *walk, t ElementType, p presence, o *Optional[T], f format[T]) {
	if !o.Present || w.gap == t {
		if p == mandatory || o.Present {
			w.err = refuse(FaultElementMissing, t)
		}
		w.gap = t
		return
	}
	at := len(w.b)
	w.b = AppendElement(w.b, t, nil)
	from := len(w.b)
	w.b = f.append(w.b, o.Value)
	n := len(w.b) - from
	if _, ok := f.parse(w.b[from:]); !ok {
		w.err = refuse(FaultElementIncorrect, t)
		return
	}
	switch from - at {
	case 2:
		w.b[at+1] = byte(n)
	case 3:
		binary.BigEndian.PutUint16(w.b[at+1:], uint16(n))
	}
	if _, _, rest, fault := nextElement(w.version, w.b[at:]); fault != 0 || len(rest) != 0 {
		w.err = refuse(FaultTooLong, t)
	}
}

// octets is the format of elements that are kept as they are.
var octets = format[[]byte]{
	parse:  func(v []byte) ([]byte, bool) { return v, true },
	append: func(b, v []byte) []byte { return append(b, v...) },
}

// octetOf is the format of a value of one octet. What follows it is of a later release
// and ignored (TS 29.060 section 11.1.6).
func octetOf[T ~uint8]() format[T] {
	return format[T]{
		parse: func(v []byte) (t T, ok bool) {
			if len(v) < 1 {
				return t, false
			}
			return T(v[0]), true
		},
		append: func(b []byte, v T) []byte { return append(b, byte(v)) },
	}
}

var octet = octetOf[uint8]()

// uint16s and uint32s are the formats of numbers.
var (
	uint16s = format[uint16]{
		parse: func(v []byte) (uint16, bool) {
			if len(v) < 2 {
				return 0, false
			}
			return binary.BigEndian.Uint16(v), true
		},
		append: binary.BigEndian.AppendUint16,
	}
	uint32s = format[uint32]{
		parse: func(v []byte) (uint32, bool) {
			if len(v) < 4 {
				return 0, false
			}
			return binary.BigEndian.Uint32(v), true
		},
		append: binary.BigEndian.AppendUint32,
	}
)
