// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"encoding/binary"
	"iter"
)

// Elements are the information elements of a message, as they are on the wire. Those
// that [ParseElements] returns can be read to their end.
type Elements struct {
	version Version
	octets  []byte
}

// ParseElements checks the elements behind the header of a message that is no user
// packet: each ends within the message, each of fixed length is known, and their types
// ascend (TS 29.060 sections 7.7 and 11.1). It serves messages that have no type of
// their own here.
func ParseElements(h *Header) (Elements, error) {
	if h.Type == TypeGPDU || !h.Type.Known() {
		return Elements{}, refuse(FaultMessageType, 0)
	}
	var last ElementType
	for b := h.Payload; len(b) > 0; {
		t, _, rest, fault := nextElement(h.Version, b)
		if fault != 0 {
			return Elements{}, refuse(fault, t)
		}
		if t < last {
			return Elements{}, refuse(FaultElementOrder, t)
		}
		last, b = t, rest
	}
	return Elements{h.Version, h.Payload}, nil
}

// All returns types and values in their order.
func (e Elements) All() iter.Seq2[ElementType, []byte] {
	return func(yield func(ElementType, []byte) bool) {
		for b := e.octets; len(b) > 0; {
			t, value, rest, fault := nextElement(e.version, b)
			if fault != 0 || !yield(t, value) {
				return
			}
			b = rest
		}
	}
}

// Find returns the value of the n-th element of a type, counted from 0: of repeated
// elements, the place says what each means (TS 29.060 section 7.7).
func (e Elements) Find(t ElementType, n int) (value []byte, ok bool) {
	for found, value := range e.All() {
		if found != t {
			continue
		}
		if n == 0 {
			return value, true
		}
		n--
	}
	return nil, false
}

// nextElement takes the first element off b, which is not empty.
func nextElement(v Version, b []byte) (t ElementType, value, rest []byte, fault Fault) {
	t = ElementType(b[0])
	head, n := elementHead(t), 0
	if len(b) < head {
		return t, nil, nil, FaultElementTruncated
	}
	switch head {
	case 1:
		if n = int(fixedLen[t][v]); n == 0 {
			return t, nil, nil, FaultElementUnknown
		}
	case 2:
		n = int(b[1])
	case 3:
		n = int(binary.BigEndian.Uint16(b[1:]))
	}
	if len(b) < head+n {
		return t, nil, nil, FaultElementTruncated
	}
	end := head + n
	return t, b[head:end:end], b[end:], 0
}

// elementHead returns how many octets stand before the value: the type, and the length
// of those that have one. That of the extension header type list has one octet (TS
// 29.060 section 7.7.40).
func elementHead(t ElementType) int {
	switch {
	case t < 128:
		return 1
	case t == ElementExtensionList:
		return 2
	}
	return 3
}

// AppendElement appends an element of a value that fits its type, for messages that
// have no type of their own here and for those meant to be wrong.
func AppendElement(b []byte, t ElementType, value []byte) []byte {
	b = append(b, byte(t))
	switch elementHead(t) {
	case 2:
		b = append(b, byte(len(value)))
	case 3:
		b = binary.BigEndian.AppendUint16(b, uint16(len(value)))
	}
	return append(b, value...)
}
