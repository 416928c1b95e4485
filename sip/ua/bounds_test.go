// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A 2xx of each of many branches is acknowledged and its dialog ended, but an answer that comes from
// more places than a call may ring at makes us send no more, nor does one that is repeated say BYE twice.
func TestForksAreBounded(t *testing.T) {
	s := scripted(t)
	invite := s.at
	s.answer(200, "b", "answer")
	byes, acks := map[string]bool{}, 0
	for i := range 2 * maxEarly {
		for range 2 {
			s.at = invite
			s.answer(200, fmt.Sprint("fork", i), "answer", "Contact", "<sip:[2001:db8:66::6]:5060>")
			acks += len(s.w.find("ACK"))
			for _, f := range s.w.find("BYE") {
				byes[f.branch()] = true
			}
		}
	}
	if len(byes) != maxEarly || acks != 2*maxEarly {
		t.Errorf("%d BYEs and %d ACKs to %d branches", len(byes), acks, 2*maxEarly)
	}
	if s.agent.only().State != Up {
		t.Error("the call is over")
	}
}

// A peer or proxy that asks for a little longer interval each time is not asked again for ever.
func TestIntervalIsRaisedSeldom(t *testing.T) {
	t.Run("INVITE", func(t *testing.T) {
		s := scripted(t)
		for i := range 100 {
			s.answer(422, "b", "", "Min-SE", fmt.Sprint(1801+i))
			if len(s.w.find("INVITE")) == 0 {
				break
			}
			s.next("INVITE")
		}
		if v, ok := s.agent.told(Ended); !ok || v.Status != 422 {
			t.Errorf("%v, want an end by 422", s.agent.kinds())
		}
	})
	t.Run("re-INVITE", func(t *testing.T) {
		s := scripted(t)
		s.answer(200, "b", "answer", "Session-Expires", "600;refresher=uac")
		s.agent.do(s.agent.engine.Hold(1, true, s.w.now, &s.agent.out))
		for i := range 100 {
			s.next("INVITE")
			s.answer(422, "b", "", "Min-SE", fmt.Sprint(1801+i))
			if len(s.w.find("INVITE")) == 0 {
				break
			}
		}
		if _, ok := s.agent.told(HoldFailed); !ok {
			t.Errorf("%v, want a failure", s.agent.kinds())
		}
	})
	t.Run("REGISTER", func(t *testing.T) {
		w := newWorld(t)
		s := &script{w: w, agent: w.agent("alice", aliceA, func(set *Settings) { proxyIsBob(set); set.Register = time.Minute })}
		for i := range 100 {
			s.next("REGISTER")
			s.answer(423, "r", "", "Min-Expires", fmt.Sprint(61+i))
			if len(s.w.find("REGISTER")) == 0 {
				break
			}
		}
		if v, ok := s.agent.told(RegistrationFailed); !ok || v.Status != 423 {
			t.Errorf("%v, want a failure", s.agent.kinds())
		}
	})
}

// A peer that wants a re-INVITE again at once, each time, is asked a few times.
func TestRetryAfterIsBounded(t *testing.T) {
	for _, status := range []int{500, 503} {
		s := scripted(t)
		s.answer(200, "b", "answer")
		s.agent.do(s.agent.engine.Hold(1, true, s.w.now, &s.agent.out))
		asked := 0
		for range 100 {
			if len(s.w.find("INVITE")) == 0 {
				break
			}
			s.next("INVITE")
			asked++
			s.answer(status, "b", "", "Retry-After", "0")
			s.w.seen = nil
			s.w.pass(minimumWait)
		}
		if v, ok := s.agent.told(HoldFailed); !ok || v.Status != status || asked > 10 {
			t.Errorf("asked %d times: %v", asked, s.agent.kinds())
		}
		s.agent.do(s.agent.engine.Hold(1, true, s.w.now, &s.agent.out))
		s.next("INVITE")
		s.answer(status, "b", "", "Retry-After", "1")
		s.w.pass(time.Second)
		s.next("INVITE")
		s.answer(200, "b", "answer")
		if !s.agent.only().Held {
			t.Error("another order does not hold")
		}
	}
}

// A session interval below the least there may be, of who does not know session timers, has us send
// nothing (RFC 4028 section 5).
func TestTinyInterval(t *testing.T) {
	w := newWorld(t)
	bob := w.agent("bob", bobA, nil)
	lines := plain()
	lines[2] += "\r\nSession-Expires: 1"
	w.send(bob.paths[1], bob.paths[1], "UDP", []byte(strings.Join(lines, "\r\n")), nil)
	w.pass(delay)
	answer := w.find("200")
	if len(answer) != 1 || answer[0].header("Session-Expires") != "" {
		t.Errorf("%s", answer[0].data)
	}
	w.send(bob.paths[1], bob.paths[1], "UDP", []byte(strings.NewReplacer("INVITE", "ACK", "CSeq: 1 INVITE", "CSeq: 1 ACK", "To: <sip:bob@example.com>", "To: "+answer[0].header("To")).Replace(strings.Join(lines, "\r\n"))), nil)
	w.pass(delay)
	w.seen = nil
	w.pass(20 * time.Second)
	expect(t, "messages", w.sent())
	if bob.only().State != Up {
		t.Error("the call has ended")
	}
}

// No one makes us answer more challenges than there are realms.
func TestChallengesAreBounded(t *testing.T) {
	s := dial(t, proxyIsBob)
	var many []string
	for i := range 100 {
		many = append(many, digestOf+fmt.Sprintf(`"%d"`, i))
	}
	s.answer(407, "p", "", "Proxy-Authenticate", strings.Join(many, "\r\nProxy-Authenticate: "))
	if n := strings.Count(string(s.w.find("INVITE")[0].data), "Proxy-Authorization"); n != maxRealms {
		t.Errorf("%d are answered", n)
	}
}

// An UPDATE that waits for a name is not sent any more when the call has ended.
func TestUpdateOfACallThatIsOver(t *testing.T) {
	w, alice, known, invite := named(t)
	*known = true
	w.answers(invite, 200, "Contact", "<sip:bob@peer.example.net>", "Allow", "INVITE, ACK, BYE, UPDATE", "Session-Expires", "600;refresher=uac")
	*known, w.seen = false, nil
	w.pass(5 * time.Minute)
	alice.do(alice.engine.HangUp(1, w.now, &alice.out))
	*known = true
	alice.resolve()
	expect(t, "messages", w.sent(), "BYE")
}
