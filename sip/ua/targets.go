// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"cmp"
	"slices"

	"github.com/isthmus-net/isthmus/sip/message"
)

// maxTargets is how many URIs one call tries.
const maxTargets = 8

// targets are the URIs at which someone is called, one after the other (RFC 3261 sections 8.1.3.4
// and 21.3): what was called for, and where redirections lead.
type targets struct {
	uri    message.URI   // the Request-URI
	direct bool          // without the proxy, which has redirected and does not go there itself
	tried  []message.URI // each once, with uri
	next   []message.URI // best first
}

func targetsOf(uri message.URI) targets { return targets{uri: uri, tried: []message.URI{uri}} }

// redirects reports whether a response leads elsewhere by its contacts. A 305 names a proxy, and a 380
// what is for people to choose.
func redirects(res *message.Message) bool {
	return res != nil && res.Status >= 300 && res.Status < 400 && res.Status != 305 && res.Status != 380
}

// add takes the contacts of a 3xx by their q, without those that were tried or come anyway, and
// reports whether there are any. Who was called by sips is not called without (section 8.1.3.4).
func (t *targets) add(res *message.Message) (found bool) {
	list := res.Addresses("Contact")
	slices.SortStableFunc(list, func(a, b message.Address) int {
		p, _ := a.Q() // one that cannot be read is 0, the last
		q, _ := b.Q()
		return cmp.Compare(q, p)
	})
	for _, a := range list {
		u := a.URI
		u.Params, u.Headers = u.Params.Without("method"), "" // sections 8.1.3.4 and 19.1.5
		switch {
		case !u.IsSIP() || u.Host == "" || t.tried[0].Scheme == "sips" && u.Scheme != "sips":
		case has(t.tried, u) || has(t.next, u) || len(t.tried)+len(t.next) >= maxTargets:
		default:
			t.next, found = append(t.next, u), true
		}
	}
	return found
}

// advance goes to the next URI, if there is one.
func (t *targets) advance() bool {
	if len(t.next) == 0 {
		return false
	}
	t.uri, t.next = t.next[0], t.next[1:]
	t.tried = append(t.tried, t.uri)
	return true
}

// bypass leaves the proxy out, if that has redirected to a URI and now does not go there: it leads
// back to where it was asked for, or knows its own users alone, as a redirect server may.
func (t *targets) bypass(status int) bool {
	switch {
	case t.direct || len(t.tried) == 1:
		return false
	case status >= 300 && status < 400 || status == 403 || status == 404 || status == 482:
		t.direct = true
	}
	return t.direct
}
