// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"time"

	"github.com/miekg/dns"
)

const (
	// headStart is how long AAAA records are asked for alone. Nearly all answers come within
	// it, and need no question for A records, or no other time for it (RFC 6147 section
	// 5.1.8).
	headStart = 500 * time.Millisecond
	// nativeTime is how long the question for AAAA records waits where A records are known:
	// then it counts as unanswered (RFC 6147 section 5.1.3). It leaves time to ask another
	// upstream after one silence, and stub resolvers wait five seconds.
	nativeTime = 3 * time.Second
)

// Ahead returns what is to be asked beside the question of [Lookup.Next], once that has
// waited so long for an answer.
func (l *Lookup) Ahead(waited time.Duration) (ask Ask, ok bool) {
	if !l.wantsNative || l.ahead != nil || waited < headStart {
		return Ask{}, false
	}
	return l.forA(), true
}

// forA is the question for AAAA records, for A records.
func (l *Lookup) forA() Ask {
	ask := l.ask
	ask.Type = dns.TypeA
	return ask
}

// TakeAhead keeps the answer to what [Lookup.Ahead] said, until it is needed.
func (l *Lookup) TakeAhead(r Result) {
	r = r.about(l.forA())
	l.ahead = &r
	if r.Msg != nil && r.Msg.Rcode == dns.RcodeSuccess {
		_, l.enough = l.policy.synthesize(r.Msg.Answer, noSOA)
	}
}

// Late reports whether the question of [Lookup.Next] has waited long enough to be taken for
// one that no one answers.
func (l *Lookup) Late(waited time.Duration) bool {
	return l.wantsNative && l.enough && waited >= nativeTime
}

// Again returns when Ahead and Late may say something else, by how long the question of
// [Lookup.Next] has waited then; 0 is never.
func (l *Lookup) Again(waited time.Duration) time.Duration {
	switch {
	case !l.wantsNative:
	case waited < headStart:
		return headStart
	case l.enough && waited < nativeTime:
		return nativeTime
	}
	return 0
}
