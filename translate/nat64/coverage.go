// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

// coverage is which octets of a packet have come, in units of 8.
type coverage struct {
	spans [maxSpans]span
	n     int
	end   int // octets of the whole, once the last fragment came; 0 before
}

// span is a part without a hole.
type span struct{ from, to uint16 }

// maxSpans bounds the parts with holes between them. A sender whose fragments come in
// order, or in the reverse, makes one.
const maxSpans = 32

// add notes a fragment. What a packet's fragments say of one place must not be said
// twice (RFC 5722); what is there whole already is a duplicate.
func (c *coverage) add(offset, size int, more bool) Reason {
	end := offset + size
	from, to := uint16(offset/8), uint16((end+7)/8)
	if c.end != 0 && (end > c.end || !more && end != c.end) || !more && c.n > 0 && c.spans[c.n-1].to > to {
		return FragmentOverlap
	}
	at := 0
	for at < c.n && c.spans[at].to < from {
		at++
	}
	for i := at; i < c.n && c.spans[i].from < to; i++ {
		if s := c.spans[i]; s.from <= from && to <= s.to {
			return FragmentDuplicate
		} else if s.to > from {
			return FragmentOverlap
		}
	}
	r := c.insert(at, span{from, to})
	if r == none && !more {
		c.end = end
	}
	return r
}

// insert puts a span into its place at, or joins it with its neighbours.
func (c *coverage) insert(at int, s span) Reason {
	before := at < c.n && c.spans[at].to == s.from
	behind := at
	if before {
		behind++
	}
	after := behind < c.n && c.spans[behind].from == s.to
	switch {
	case before && after:
		c.spans[at].to = c.spans[behind].to
		copy(c.spans[behind:], c.spans[behind+1:c.n])
		c.n--
	case before:
		c.spans[at].to = s.to
	case after:
		c.spans[behind].from = s.from
	case c.n == maxSpans:
		return FragmentTooMany
	default:
		copy(c.spans[at+1:c.n+1], c.spans[at:c.n])
		c.spans[at] = s
		c.n++
	}
	return none
}

// complete reports whether nothing is missing.
func (c *coverage) complete() bool {
	return c.end != 0 && c.n == 1 && c.spans[0].from == 0 && int(c.spans[0].to) == (c.end+7)/8
}
