// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/transaction"
)

// callers have an agent take INVITEs, each a call of its own, and return what they are answered with.
func callers(w *world, a *agent, change func(lines []string)) (from func(sources ...string) []string) {
	calls := 0
	return func(sources ...string) []string {
		w.seen = nil
		for _, one := range sources {
			lines := plain()
			lines[1], lines[5] = fmt.Sprint(lines[1], "caller", calls), fmt.Sprint("Call-ID: caller", calls)
			if calls++; change != nil {
				change(lines)
			}
			a.engine.Handle([]byte(strings.Join(lines, "\r\n")), transaction.Target{Transport: "UDP", Local: a.paths[1], Remote: netip.MustParseAddrPort(one)}, w.now, &a.out)
			a.flush()
		}
		return w.sent()
	}
}

const (
	neighbour = "[2001:db8:66::2]:5060" // of the same /64
	other     = "192.0.2.66:5060"
	third     = "192.0.2.67:5060"
)

// What only rings takes half of all calls, and of one source half of these.
func TestUnansweredCallsAreBounded(t *testing.T) {
	w := newWorld(t)
	bob := w.agent("bob", bobA, func(s *Settings) { s.MaxCalls = 8 })
	bob.answer = false
	from := callers(w, bob, nil)
	expect(t, "one source", from(stranger, neighbour, stranger, neighbour), "180", "180", "486", "486")
	expect(t, "others", from(other, other, other, third), "180", "180", "486", "486")
	if n := bob.engine.Stats().RefusedCalls; n != 4 {
		t.Errorf("%d refusals are counted", n)
	}
	bob.do(bob.engine.Reject(1, 486, w.now, &bob.out))
	expect(t, "a place that is free again", from(third, third), "180", "486")
	bob.pickUp(2)
	expect(t, "and one of a call that is answered", from(stranger), "180")
	for range 3 { // our own calls have the rest
		bob.call("sip:carol@" + aliceA)
	}
	if _, err := bob.engine.Invite(bob.engine.set.AOR, &fakeMedia{}, w.now, &bob.out); err != ErrFull {
		t.Errorf("nine calls: %v", err)
	}
	bob.flush()
	w.pass(4 * time.Minute) // nothing rings for ever
	if r := bob.engine.ringing; r.all != 0 || len(r.of) != 0 {
		t.Errorf("%+v are left", r)
	}
	expect(t, "when they have ended", from(stranger, stranger, stranger), "180", "180", "486")
}

// An INVITE that is over at once takes no place (section 13.3.1).
func TestUnansweredCallExpires(t *testing.T) {
	w := newWorld(t)
	bob := w.agent("bob", bobA, func(s *Settings) { s.MaxCalls = 2 })
	bob.answer = false
	from := callers(w, bob, func(lines []string) { lines[2] += "\r\nExpires: 1" })
	expect(t, "the first", from(stranger), "180")
	w.pass(2 * time.Second)
	expect(t, "the next", from(other), "180")
}
