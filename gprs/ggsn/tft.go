// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"cmp"
	"slices"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// filters are those of a context, the lowest precedence first (TS 24.008 section 10.5.6.12).
type filters []gtp.PacketFilter

// maxFilters is how many a context can have: their identifiers have four bits. One template has
// one less at most, since its number of filters has four bits, too (TS 24.008 section 10.5.6.12).
const maxFilters = 16

// filtersOf returns the filters that a context of a session has when a request is done. has
// are those until now; x is 0 of a context that is yet to be. It judges what the codec
// cannot: whether an operation makes sense with what is there (TS 24.008 section 6.1.3.2.3).
func (e *Engine) filtersOf(s *session, x handle, has filters, asked gtp.Optional[[]byte]) (filters, gtp.Cause) {
	if !asked.Present {
		if len(has) == 0 && e.otherWithoutFilters(s, x) {
			return nil, gtp.CauseContextWithoutTFT
		}
		return has, 0
	}
	t, cause, ok := gtp.ParseTFT(asked.Value)
	if !ok {
		return nil, cause
	}
	next, cause := has.after(&t)
	switch {
	case cause != 0:
		return nil, cause
	case len(next) == 0 && e.otherWithoutFilters(s, x):
		return nil, gtp.CauseContextWithoutTFT
	case e.precedenceTaken(s, x, next):
		return nil, gtp.CauseFilterSemantic
	}
	return next, 0
}

// after returns the filters after an operation.
func (f filters) after(t *gtp.TFT) (filters, gtp.Cause) {
	next := slices.Clone(f)
	switch t.Operation {
	case gtp.TFTCreate:
		next = slices.Clone(filters(t.Filters))
	case gtp.TFTDelete:
		return nil, 0
	case gtp.TFTAddFilters, gtp.TFTReplaceFilters:
		if len(f) == 0 {
			return nil, gtp.CauseTFTSemantic
		}
		for _, one := range t.Filters {
			next = append(next.without(one.ID), one)
		}
	case gtp.TFTDeleteFilters:
		for _, one := range t.Filters {
			next = next.without(one.ID)
		}
		if len(next) == 0 {
			return nil, gtp.CauseTFTSemantic
		}
	}
	if len(next) > maxFilters {
		return nil, gtp.CauseTFTSemantic
	}
	slices.SortStableFunc(next, func(a, b gtp.PacketFilter) int { return cmp.Compare(a.Precedence, b.Precedence) })
	return next, 0
}

func (f filters) without(id uint8) filters {
	return slices.DeleteFunc(f, func(one gtp.PacketFilter) bool { return one.ID == id })
}

// otherWithoutFilters reports whether a context of the session other than x has no filters:
// one alone may have none (TS 23.060 section 9.2.2).
func (e *Engine) otherWithoutFilters(s *session, x handle) bool {
	for h := s.first; h != 0; h = e.contexts.at(h).next {
		if h != x && !e.contexts.at(h).filtered {
			return true
		}
	}
	return false
}

// precedenceTaken reports whether two filters of a session would have one precedence.
func (e *Engine) precedenceTaken(s *session, x handle, next filters) bool {
	var taken [256]bool
	for _, one := range next {
		if taken[one.Precedence] {
			return true
		}
		taken[one.Precedence] = true
	}
	for h := s.first; h != 0; h = e.contexts.at(h).next {
		if h == x {
			continue
		}
		for _, one := range e.filters[h] {
			if taken[one.Precedence] {
				return true
			}
		}
	}
	return false
}

// setFilters gives a context its filters.
func (e *Engine) setFilters(x handle, f filters) {
	e.forget(x)
	e.contexts.at(x).filtered = len(f) > 0
	if len(f) > 0 {
		e.filters[x] = f
	} else {
		delete(e.filters, x)
	}
}

// downContext returns the context of a session that a packet for the terminal belongs to:
// that of the filter of lowest precedence that matches, else the one without filters.
func (e *Engine) downContext(s *session, ip []byte) (handle, bool) {
	first := e.contexts.at(s.first)
	if first.next == 0 && !first.filtered {
		return s.first, true
	}
	var p inner
	p.read(ip)
	best, found, least := handle(0), false, 256
	for h := s.first; h != 0; h = e.contexts.at(h).next {
		if !e.contexts.at(h).filtered {
			if least == 256 {
				best, found = h, true
			}
			continue
		}
		for i := range e.filters[h] {
			f := &e.filters[h][i]
			if int(f.Precedence) >= least {
				break
			}
			if p.matches(f) {
				best, found, least = h, true, int(f.Precedence)
				break
			}
		}
	}
	return best, found
}
