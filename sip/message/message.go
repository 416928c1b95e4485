// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import (
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Message is a request or a response. It is for one thread at a time, which remembers in it what it has read.
type Message struct {
	// Method and URI are those of a request; Method is empty in a response.
	Method, URI string
	// Status and Reason are those of a response.
	Status int
	Reason string
	// Headers are the fields in their order. Of lists that routing goes by, such as Via, each
	// value has a field of its own.
	Headers []Header
	Body    []byte

	// What the fields are that every message is known by, and that are asked for again and again.
	via      reading[Via]
	from, to reading[Address]
}

// reading is what a field has been read as: a field with the same text is not read again.
type reading[T any] struct {
	text  string
	value T
	err   error
	done  bool
}

func (r *reading[T]) of(text string, parse func(string) (T, error)) (T, error) {
	if !r.done || r.text != text {
		r.text, r.done = text, true
		r.value, r.err = parse(text)
	}
	return r.value, r.err
}

// Header is a field. Its name is written as RFC 3261 does where it is known, whatever came.
type Header struct{ Name, Value string }

// Version is that of the protocol.
const Version = "SIP/2.0"

// IsRequest reports whether the message is a request.
func (m *Message) IsRequest() bool { return m.Method != "" }

// Get returns the first field of a name; empty: there is none, or it is empty.
func (m *Message) Get(name string) string {
	for i := range m.Headers {
		if strings.EqualFold(m.Headers[i].Name, name) {
			return m.Headers[i].Value
		}
	}
	return ""
}

// Has reports whether there is a field of a name.
func (m *Message) Has(name string) bool { return m.index(name) >= 0 }

// All returns all fields of a name.
func (m *Message) All(name string) (values []string) {
	for i := range m.Headers {
		if strings.EqualFold(m.Headers[i].Name, name) {
			values = append(values, m.Headers[i].Value)
		}
	}
	return values
}

// Tokens returns the elements of a list, such as the option tags of Require, whichever fields
// they stand in.
func (m *Message) Tokens(name string) []string { return slices.Collect(m.tokens(name)) }

func (m *Message) tokens(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range m.Headers {
			if !strings.EqualFold(m.Headers[i].Name, name) {
				continue
			}
			for one := range split(m.Headers[i].Value, ',') {
				if one = strings.TrimSpace(one); one != "" && !yield(one) {
					return
				}
			}
		}
	}
}

// HasToken reports whether a list has an element, in whichever capitals.
func (m *Message) HasToken(name, token string) bool {
	for one := range m.tokens(name) {
		if strings.EqualFold(one, token) {
			return true
		}
	}
	return false
}

// Add appends a field.
func (m *Message) Add(name, value string) { m.Headers = append(m.Headers, Header{name, value}) }

// Prepend puts a field before all others of its name, and before all fields if there is none.
func (m *Message) Prepend(name, value string) {
	m.Headers = slices.Insert(m.Headers, max(m.index(name), 0), Header{name, value})
}

// Set gives the first field of a name another value, or appends it.
func (m *Message) Set(name, value string) {
	if i := m.index(name); i >= 0 {
		m.Headers[i].Value = value
		return
	}
	m.Add(name, value)
}

// Remove removes all fields of a name.
func (m *Message) Remove(name string) {
	m.Headers = slices.DeleteFunc(m.Headers, func(h Header) bool { return strings.EqualFold(h.Name, name) })
}

// RemoveFirst removes the first field of a name.
func (m *Message) RemoveFirst(name string) {
	if i := m.index(name); i >= 0 {
		m.Headers = slices.Delete(m.Headers, i, i+1)
	}
}

func (m *Message) index(name string) int {
	return slices.IndexFunc(m.Headers, func(h Header) bool { return strings.EqualFold(h.Name, name) })
}

// Clone returns a copy that can be changed; the body is shared.
func (m *Message) Clone() *Message {
	c := *m
	c.Headers = slices.Clone(m.Headers)
	return &c
}

// Append writes the message, with the length of its body whatever the fields say.
func (m *Message) Append(b []byte) []byte {
	if m.IsRequest() {
		b = append(append(append(append(b, m.Method...), ' '), m.URI...), " "+Version+"\r\n"...)
	} else {
		b = append(strconv.AppendInt(append(b, Version+" "...), int64(m.Status), 10), ' ')
		b = append(append(b, m.Reason...), "\r\n"...)
	}
	for i := range m.Headers {
		if h := &m.Headers[i]; !strings.EqualFold(h.Name, "Content-Length") {
			b = append(append(append(append(b, h.Name...), ": "...), h.Value...), "\r\n"...)
		}
	}
	b = strconv.AppendInt(append(b, "Content-Length: "...), int64(len(m.Body)), 10)
	return append(append(b, "\r\n\r\n"...), m.Body...)
}

// String returns the message as it is written.
func (m *Message) String() string { return string(m.Append(nil)) }
