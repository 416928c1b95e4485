// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestStorm has both ends of a call move by chance behind a proxy that is in the path, hard and
// softly, while one in five packets is lost. When it is over, both ends have the call or neither has;
// each knows where the other is; one binding is left of each; and a BYE ends the call for both. Of a
// seventy calls, nearly all last.
func TestStorm(t *testing.T) {
	const rounds = 70
	lasted := 0
	for round := range uint64(rounds) {
		w, alice, bob := afterStorm(t, rand.New(rand.NewPCG(round, 1)))
		w.lose = nil
		w.pass(2 * time.Minute)
		for _, a := range w.agents {
			id, _ := a.engine.Using()
			if got := w.proxy.bound(a.name); got != a.paths[id].String() {
				t.Errorf("round %d: %s is bound at %s, and is at %s", round, a.name, got, a.paths[id])
			}
		}
		if len(alice.engine.calls) != len(bob.engine.calls) {
			t.Errorf("round %d: alice has %d calls, bob %d", round, len(alice.engine.calls), len(bob.engine.calls))
			continue
		}
		if len(alice.engine.calls) == 0 {
			continue
		}
		lasted++
		for i, a := range w.agents {
			id, _ := a.engine.Using()
			if c := w.agents[1-i].only(); c.Target.HostPort() != a.paths[id].String() || c.Moving {
				t.Errorf("round %d: %s is at %s, and its peer calls %s", round, a.name, a.paths[id], c.Target.HostPort())
			}
		}
		bob.do(bob.engine.HangUp(bob.only().ID, w.now, &bob.out))
		w.pass(time.Second)
		if len(alice.engine.calls) > 0 {
			t.Errorf("round %d: the BYE has not arrived", round)
		}
	}
	if lasted < rounds-2 {
		t.Errorf("%d of %d calls have lasted", lasted, rounds)
	}
}

// TestHangUpInAStorm has one end hang up while packets are still lost, whatever is under way: the call
// ends for both.
func TestHangUpInAStorm(t *testing.T) {
	for round := range uint64(70) {
		dice := rand.New(rand.NewPCG(round, 2))
		w, alice, bob := afterStorm(t, dice)
		a := w.agents[dice.IntN(2)]
		for _, id := range a.engine.Calls() {
			a.do(a.engine.HangUp(id, w.now, &a.out))
		}
		w.pass(20 * time.Second)
		w.lose = nil
		w.pass(2 * time.Minute)
		if len(alice.engine.calls)+len(bob.engine.calls) > 0 {
			t.Errorf("round %d: alice has %d calls, bob %d", round, len(alice.engine.calls), len(bob.engine.calls))
		}
	}
}

// afterStorm is a world in which both ends of a call have moved for some time, and one in five packets
// is lost.
func afterStorm(t *testing.T, dice *rand.Rand) (w *world, alice, bob *agent) {
	t.Helper()
	w = newWorld(t)
	w.addProxy("alice", "bob")
	alice, bob = w.behind("alice", aliceA), w.behind("bob", bobA)
	w.pass(time.Second)
	alice.call("sip:bob@example.com")
	w.pass(time.Second)
	w.lose = func(flight) bool { return dice.IntN(5) == 0 }
	for move := range 6 {
		for i, a := range w.agents {
			if dice.IntN(2) == 0 {
				continue
			}
			old, _ := a.engine.Using()
			a.add(move+2, fmt.Sprintf("[2001:db8:%x:%x::1]:5060", i+1, move))
			hard := dice.IntN(3)
			if hard == 0 { // and for a while there is no other
				a.lost(old)
				w.pass(time.Duration(dice.IntN(3000)) * time.Millisecond)
			}
			a.use(move + 2)
			if hard == 1 {
				w.pass(time.Duration(dice.IntN(300)) * time.Millisecond)
				a.lost(old)
			}
		}
		w.pass(time.Duration(dice.IntN(4000)) * time.Millisecond)
	}
	return w, alice, bob
}
