// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// lookup finds a name, and no other, at addresses, the best first.
func lookup(name string, at ...netip.AddrPort) func(string, uint16, string) []transaction.Target {
	return func(asked string, _ uint16, transport string) (list []transaction.Target) {
		for _, one := range at {
			if asked == name {
				list = append(list, transaction.Target{Transport: cmp.Or(transport, "UDP"), Remote: one})
			}
		}
		return list
	}
}

// target is where the agent's one call reaches its peer.
func target(a *agent) string {
	u := a.only().Target
	return u.String()
}

// byeReaches checks that a BYE of the peer's finds the one who moved, and ends both calls.
func byeReaches(t *testing.T, w *world, from, to *agent, address string) {
	t.Helper()
	w.seen = nil
	id := from.only().ID
	from.do(from.engine.HangUp(id, w.now, &from.out))
	w.pass(100 * time.Millisecond)
	bye := w.find("BYE")
	if len(bye) != 1 || bye[0].to.String() != address {
		t.Errorf("BYE: %v, want one to %s", bye, address)
	}
	if len(to.engine.calls) != 0 {
		t.Error("the call has not ended")
	}
}

func TestMove(t *testing.T) {
	for _, hard := range []bool{false, true} {
		for _, caller := range []bool{true, false} {
			t.Run(fmt.Sprintf("hard=%t caller=%t", hard, caller), func(t *testing.T) {
				w, mover, stays := pair(t, nil)
				old, now, other := aliceA, aliceB, bobA
				if !caller {
					mover, stays, old, now, other = stays, mover, bobA, bobB, aliceA
				}
				mover.add(2, now)
				before := mover.engine.calls[1].dialog.localSeq
				if hard {
					mover.lost(1)
				}
				mover.use(2)
				expect(t, "at once", w.sent(), "INVITE")
				w.pass(2 * delay)
				expect(t, "after a round trip", mover.kinds(), "moving", "moved")
				w.pass(time.Second)
				expect(t, "the peer", stays.kinds(), "peer_moved", "renegotiated")
				if got := mover.only(); got.Path != 2 || got.Moving {
					t.Errorf("%+v", got)
				}
				if got := stays.media[1].peer; !strings.Contains(got, "v=2 offer path=2") {
					t.Errorf("the peer was offered %q", got)
				}
				if got := mover.engine.calls[1].dialog.localSeq; got != before+1 {
					t.Errorf("CSeq went from %d to %d", before, got)
				}
				if got := target(stays); !strings.Contains(got, strings.Split(now, "]")[0]) {
					t.Errorf("the peer's target is %s", got)
				}
				_, _ = old, other
				byeReaches(t, w, stays, mover, now)
			})
		}
	}
}

func TestMoveRequest(t *testing.T) {
	w := newWorld(t)
	alice, bob := w.agent("alice", aliceA, nil), w.agent("bob", bobA, nil)
	alice.call(toBob)
	w.pass(time.Second)
	first := w.find("INVITE")[0]
	w.seen = nil
	alice.add(2, aliceB)
	alice.lost(1)
	alice.use(2)
	again := w.find("INVITE")[0]
	for _, name := range []string{"Call-ID", "From"} {
		if first.header(name) != again.header(name) {
			t.Errorf("%s went from %q to %q", name, first.header(name), again.header(name))
		}
	}
	if again.from.String() != aliceB || !strings.Contains(again.header("Via"), aliceB) || !strings.Contains(again.header("Contact"), aliceB) {
		t.Errorf("from %v:\n%s", again.from, again.data)
	}
	if !strings.Contains(again.header("To"), "tag=") || again.header("CSeq") != "2 INVITE" {
		t.Errorf("To %q, CSeq %q", again.header("To"), again.header("CSeq"))
	}
	_ = bob
}

// A re-INVITE that waits for an answer at a dead address is ended at once, and the next has
// the next number; timer B plays no part.
func TestHardMoveDuringAMove(t *testing.T) {
	w, alice, bob := pair(t, nil)
	alice.add(2, aliceB)
	alice.add(3, "[2001:db8:f::3]:5060")
	alice.lost(1)
	alice.use(2)
	w.pass(delay)
	alice.lost(2)
	alice.use(3)
	w.pass(2 * delay)
	invites := w.find("INVITE")
	if len(invites) != 2 || invites[1].header("CSeq") != "3 INVITE" || invites[1].sent.Sub(invites[0].sent) != delay {
		t.Fatalf("re-INVITEs: %v", invites)
	}
	w.pass(time.Second)
	if alice.only().Path != 3 || !strings.Contains(bob.media[1].peer, "path=3") {
		t.Errorf("%+v, bob has %q", alice.only(), bob.media[1].peer)
	}
	w.seen = nil
	w.pass(40 * time.Second)
	for _, f := range w.seen {
		t.Errorf("sent later: %s", f.first())
	}
	if bob.only().State != Up {
		t.Error("bob has given up for want of an ACK")
	}
	byeReaches(t, w, bob, alice, "[2001:db8:f::3]:5060")
}

// Both ends move at once, softly: both re-INVITEs arrive, both are refused by 491, and an
// UPDATE of each has the peer know the new target before the wait is over.
func TestBothMoveSoftly(t *testing.T) {
	w, alice, bob := pair(t, nil)
	alice.add(2, aliceB)
	bob.add(2, bobB)
	alice.use(2)
	bob.use(2)
	w.pass(6 * delay)
	if !strings.Contains(target(alice), "2001:db8:d::2") || !strings.Contains(target(bob), "2001:db8:b::1") {
		t.Errorf("targets after the UPDATEs: %v and %v", alice.only().Target, bob.only().Target)
	}
	w.pass(5 * time.Second)
	if alice.only().Path != 2 || bob.only().Path != 2 || !strings.Contains(alice.media[1].peer, "path=2") || !strings.Contains(bob.media[1].peer, "path=2") {
		t.Errorf("%+v %q, %+v %q", alice.only(), alice.media[1].peer, bob.only(), bob.media[1].peer)
	}
	byeReaches(t, w, bob, alice, aliceB)
}

// A peer's request to the new address shows that it knows it, before any answer
// (RFC 6141 section 4.4).
func TestARequestToTheNewTargetIsAnAnswer(t *testing.T) {
	w, alice, bob := pair(t, nil)
	w.lose = func(f flight) bool { return f.first() == "200" && f.header("CSeq") == "2 INVITE" }
	alice.add(2, aliceB)
	alice.lost(1)
	alice.use(2)
	w.pass(delay)
	c := bob.engine.calls[1]
	leave := bob.engine.enter(w.now, &bob.out)
	c.sendUpdate(c.dialog, nil, func(*message.Message, error) {})
	leave()
	bob.flush()
	w.pass(delay)
	if _, ok := alice.told(Moved); !ok {
		t.Errorf("%+v", alice.events)
	}
}

// What ends a call is not lost with the address that it was sent from.
func TestTheEndOutlivesTheAddress(t *testing.T) {
	t.Run("BYE", func(t *testing.T) {
		w, alice, bob := pair(t, nil)
		w.lose = func(f flight) bool { return f.from.String() == aliceA }
		alice.do(alice.engine.HangUp(1, w.now, &alice.out))
		alice.lost(1)
		w.pass(time.Second)
		alice.add(2, aliceB)
		alice.use(2)
		w.pass(time.Second)
		if len(bob.engine.calls) != 0 {
			t.Errorf("bob is left in a call: %v", w.sent())
		}
	})
	t.Run("CANCEL", func(t *testing.T) {
		w, alice, bob := ringing(t, nil)
		w.lose = func(f flight) bool { return f.from.String() == aliceA }
		alice.do(alice.engine.HangUp(1, w.now, &alice.out))
		alice.lost(1)
		w.pass(time.Second)
		alice.add(2, aliceB)
		alice.use(2)
		w.pass(time.Second)
		if len(bob.engine.calls) != 0 || len(alice.engine.calls) != 0 {
			t.Errorf("it rings on: %v", w.sent())
		}
	})
}

// TestManyCallsMoveAtOnce has media of all calls follow in the first turn, and the first calls ask their
// peers; the others do in turns that are due at once, and one that has ended meanwhile does not.
func TestManyCallsMoveAtOnce(t *testing.T) {
	const calls = 1000
	w := newWorld(t)
	alice := w.agent("alice", aliceA, nil)
	w.agent("bob", bobA, nil)
	for range calls {
		alice.call(toBob)
	}
	w.pass(time.Second)
	w.seen, alice.events = nil, nil
	alice.add(2, aliceB)
	alice.lost(1)
	alice.use(2)
	if asked, moving := len(w.find("INVITE")), len(alice.kinds()); asked != atOnce || moving != calls {
		t.Errorf("in the first turn there are %d re-INVITEs, and %d calls move", asked, moving)
	}
	alice.do(alice.engine.HangUp(calls, w.now, &alice.out))
	w.pass(time.Microsecond)
	if got := len(w.find("INVITE")); got != calls-1 {
		t.Fatalf("%d re-INVITEs at once, want %d", got, calls-1)
	}
	w.pass(2 * delay)
	if got := alice.engine.Stats().Moves; got != calls-1 {
		t.Errorf("%d calls moved in a round trip, want %d", got, calls-1)
	}
}

// TestManyCallsMoveTwice has the new address go as well, before all calls have asked by it: they all ask
// by the next.
func TestManyCallsMoveTwice(t *testing.T) {
	w := newWorld(t)
	alice, bob := w.agent("alice", aliceA, nil), w.agent("bob", bobA, nil)
	for range 2 * atOnce {
		alice.call(toBob)
	}
	w.pass(time.Second)
	alice.add(2, aliceB)
	alice.lost(1)
	alice.use(2)
	alice.lost(2)
	w.pass(time.Millisecond)
	alice.add(3, aliceA)
	alice.use(3)
	w.pass(time.Second)
	for _, a := range w.agents {
		if got := len(a.engine.Calls()); got != 2*atOnce {
			t.Errorf("%s has %d calls", a.name, got)
		}
	}
	for _, id := range bob.engine.Calls() {
		if c, _ := bob.engine.Call(id); c.Target.HostPort() != aliceA {
			t.Errorf("call %d goes to %s", id, c.Target.HostPort())
		}
	}
}
