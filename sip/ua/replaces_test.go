// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// bothMoved is a world in which both ends of a call have lost their address at once, and a registrar
// knows the new ones.
func bothMoved(t *testing.T) (w *world, alice, bob *agent) {
	t.Helper()
	w = newWorld(t)
	w.addServer("[2001:db8:e::5]:5060")
	set := func(set *Settings) {
		set.Register = time.Hour
		set.Proxy = message.URI{Scheme: "sip", Host: "2001:db8:e::5"}
		set.MaxCalls = 1 // an INVITE with Replaces takes no place of its own
	}
	alice, bob = w.agent("alice", aliceA, set), w.agent("bob", bobA, set)
	w.pass(time.Second)
	alice.call("sip:bob@example.com")
	w.pass(time.Second)
	alice.add(2, aliceB)
	bob.add(2, bobB)
	alice.lost(1)
	bob.lost(1)
	alice.use(2)
	bob.use(2)
	return w, alice, bob
}

// Both ends lose their address at once: neither re-INVITE arrives. The registrar knows both,
// so an INVITE with Replaces finds the peer.
func TestBothMoveHard(t *testing.T) {
	w, alice, bob := bothMoved(t)
	w.pass(1600*time.Millisecond + 6*delay)
	v, ok := alice.told(Moved)
	if !ok || !v.Repaired || v.Took > 1700*time.Millisecond+4*delay {
		t.Fatalf("alice: %+v", alice.events)
	}
	w.pass(time.Second)
	if v, ok := bob.told(Moved); !ok || !v.Repaired {
		t.Fatalf("bob: %+v", bob.events)
	}
	if !strings.Contains(alice.media[1].peer, "o=bob") || !strings.Contains(alice.media[1].peer, "path=2") || !strings.Contains(bob.media[1].peer, "path=2") {
		t.Errorf("alice has %q, bob %q", alice.media[1].peer, bob.media[1].peer)
	}
	w.pass(time.Minute) // timer B of the first re-INVITE included
	if alice.only().State != Up || bob.only().State != Up {
		t.Error("the call has not lasted")
	}
	if b := w.server.bindings; len(b["alice"]) != 1 || len(b["bob"]) != 1 {
		t.Errorf("bindings: %v", b)
	}
	byeReaches(t, w, bob, alice, aliceB)
}

// An INVITE with Replaces that is redirected has it at the new target as well (RFC 3261 section 8.1.3.4).
func TestRepairIsRedirected(t *testing.T) {
	w, alice, bob := bothMoved(t)
	w.server.redirect = true
	w.pass(3 * time.Second)
	var uris []string
	var replaces string
	for _, f := range w.find("INVITE") {
		if f.to != w.server.at || f.header("Replaces") == "" {
			continue
		}
		m, fault := message.Parse(f.data)
		if fault != nil {
			t.Fatal(fault)
		}
		if replaces != "" && replaces != m.Get("Replaces") || !requires(m, "replaces") {
			t.Errorf("then it is\n%s", f.data)
		}
		replaces, uris = m.Get("Replaces"), append(uris, m.URI)
	}
	expect(t, "called", uris, "sip:bob@example.com", "sip:bob@"+bobB)
	if v, ok := alice.told(Moved); !ok || !v.Repaired {
		t.Errorf("alice: %+v", alice.events)
	}
	byeReaches(t, w, bob, alice, aliceB)
}

// Who moves again during a repair has lost its INVITE with the address, not the call.
func TestMoveDuringARepair(t *testing.T) {
	for _, row := range []struct {
		name  string
		leave func(alice *agent)
	}{
		{"the address is lost, then there is another", func(alice *agent) { alice.lost(2); alice.use(3) }},
		{"there is another, then the address is lost", func(alice *agent) { alice.use(3); alice.lost(2) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, alice, bob := bothMoved(t)
			w.lose = func(f flight) bool { return f.from.String() == aliceB && f.header("Replaces") != "" }
			w.pass(1700 * time.Millisecond)
			if !alice.engine.calls[1].repair.underWay() {
				t.Fatalf("no repair is under way: %v", w.sent())
			}
			alice.add(3, "[2001:db8:f::3]:5060")
			row.leave(alice)
			w.pass(5 * time.Second)
			if v, ok := alice.told(Ended); ok {
				t.Fatalf("the call has ended: %+v", v)
			}
			if !strings.Contains(bob.media[1].peer, "path=3") || alice.only().Path != 3 {
				t.Errorf("bob has %q, alice %+v", bob.media[1].peer, alice.only())
			}
			byeReaches(t, w, bob, alice, "[2001:db8:f::3]:5060")
		})
	}
}

func TestStrangersDoNotReplace(t *testing.T) {
	w, alice, bob := pair(t, nil)
	d := bob.engine.calls[1].dialog
	mallory := w.agent("mallory", "[2001:db8:66::6]:5060", nil)
	for _, row := range []struct {
		name, from, replaces string
		status               string
	}{
		{"unknown tags", "alice", "x;to-tag=y;from-tag=z", "481"},
		{"someone else", "mallory", d.callID + ";to-tag=" + d.dialogKey.local + ";from-tag=" + d.dialogKey.remote, "403"},
		{"early-only", "alice", d.callID + ";early-only;to-tag=" + d.dialogKey.local + ";from-tag=" + d.dialogKey.remote, "486"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w.seen = nil
			text := strings.Join([]string{
				"INVITE " + toBob + " SIP/2.0", "Via: SIP/2.0/UDP [2001:db8:66::6]:5060;branch=z9hG4bK" + row.status, "Max-Forwards: 70",
				"From: <sip:" + row.from + "@example.com>;tag=m", "To: <sip:bob@example.com>", "Call-ID: " + row.status, "CSeq: 1 INVITE",
				"Contact: <sip:m@[2001:db8:66::6]>", "Replaces: " + row.replaces, "Content-Type: application/sdp", "Content-Length: 5", "", "offer",
			}, "\r\n")
			w.send(mallory.paths[1], bob.paths[1], "UDP", []byte(text), nil)
			w.pass(100 * time.Millisecond)
			if len(w.find(row.status)) == 0 {
				t.Errorf("messages: %v", w.sent())
			}
			if alice.only().State != Up || bob.only().State != Up {
				t.Error("the call has changed")
			}
		})
	}
}

// A peer that is gone while we move is looked for as long as a request has, not for ever, whatever
// the proxy says meanwhile.
func TestRepairEnds(t *testing.T) {
	w := newWorld(t)
	w.addProxy("alice", "bob")
	alice, bob := w.behind("alice", aliceA), w.behind("bob", bobA)
	alice.engine.set.SessionExpires, bob.engine.set.SessionExpires = -1, -1
	w.pass(time.Second)
	alice.call("sip:bob@example.com")
	w.pass(time.Second)
	bob.lost(1)
	alice.add(2, aliceB)
	alice.lost(1)
	alice.use(2)
	w.pass(40 * time.Second)
	if v, ok := alice.told(Ended); !ok || v.Status != 408 {
		t.Errorf("%v, want an end by 408", alice.kinds())
	}
	w.pass(time.Minute)
	w.seen = nil
	w.pass(time.Minute)
	if n := len(w.find("INVITE")) + len(w.find("CANCEL")) + len(w.find("BYE")); n > 0 {
		t.Errorf("it goes on: %v", w.sent())
	}
}

// A peer that refuses our INVITE with Replaces for one of its own (491), after it has refused the
// re-INVITE, is asked again if its own does not come.
func TestRepairLeftToThePeer(t *testing.T) {
	s := scripted(t)
	s.answer(200, "b", "answer")
	s.agent.add(2, aliceB)
	s.agent.lost(1)
	s.agent.use(2)
	s.next("INVITE")
	moving := s.at
	s.w.pass(1600 * time.Millisecond)
	if s.next("INVITE").Get("Replaces") == "" {
		t.Fatal("no repair begins")
	}
	repairing := s.at
	s.at = moving
	s.answer(500, "b", "")
	s.at = repairing
	s.answer(491, "b", "")
	s.w.seen = nil
	s.w.pass(3 * time.Second)
	if again := s.next("INVITE"); again.Get("Replaces") != "" {
		t.Error("not asked in the call's own dialog")
	}
	s.answer(200, "b", "answer")
	if got := s.agent.only(); got.Path != 2 || got.Moving {
		t.Errorf("the call is %+v", got)
	}
}
