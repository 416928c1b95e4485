// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pref64

import (
	"net/netip"
	"slices"
)

// maxRouters bounds the neighbours that are remembered.
const maxRouters = 32

// Consistency compares what other routers of a link say with what this one does (RFC 8781
// section 5.2). The zero value says nothing and knows no one.
type Consistency struct {
	own    []netip.Prefix // in use, sorted
	others []router
}

type router struct {
	address netip.Addr
	said    view
	differs bool
}

// view is what an advertisement says: prefixes in use and prefixes withdrawn, sorted.
type view struct{ used, withdrawn []netip.Prefix }

func viewOf(options []Option) view {
	var v view
	for _, o := range options {
		to := &v.used
		if o.Lifetime == 0 {
			to = &v.withdrawn
		}
		if !slices.Contains(*to, o.Prefix) {
			*to = append(*to, o.Prefix)
		}
	}
	slices.SortFunc(v.used, netip.Prefix.Compare)
	slices.SortFunc(v.withdrawn, netip.Prefix.Compare)
	return v
}

func (v view) equal(o view) bool {
	return slices.Equal(v.used, o.used) && slices.Equal(v.withdrawn, o.withdrawn)
}

// contradicts reports whether v has other prefixes in use than own, or withdraws one of own.
// The withdrawal of any other prefix takes back what is not said here.
func (v view) contradicts(own []netip.Prefix) bool {
	return len(v.used) > 0 && !slices.Equal(v.used, own) ||
		slices.ContainsFunc(v.withdrawn, func(p netip.Prefix) bool { return slices.Contains(own, p) })
}

// Own sets what this router says.
func (c *Consistency) Own(options []Option) { c.own = viewOf(options).used }

// Heard takes the options of another router, and reports whether they differ from this
// router's, and whether that or they are new. Advertisements without options say
// nothing: they may be of a router that leaves the matter to us.
func (c *Consistency) Heard(from netip.Addr, options []Option) (differs, news bool) {
	if len(options) == 0 {
		return false, false
	}
	said := viewOf(options)
	differs = said.contradicts(c.own)
	at := slices.IndexFunc(c.others, func(r router) bool { return r.address == from })
	if at < 0 {
		if len(c.others) == maxRouters {
			c.others = slices.Delete(c.others, 0, 1)
		}
		c.others = append(c.others, router{from, said, differs})
		return differs, differs
	}
	news = c.others[at].differs != differs || differs && !c.others[at].said.equal(said)
	c.others[at] = router{from, said, differs}
	return differs, news
}
