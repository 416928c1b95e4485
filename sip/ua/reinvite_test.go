// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"testing"
	"time"
)

// A re-INVITE to which no final answer comes is given up: 64*T1 behind a 100, which a proxy that dies
// may have sent, and over three minutes behind what the peer says of itself, who may be asking somebody. If
// that is in vain, too, no one is there.
func TestReinviteWithoutEnd(t *testing.T) {
	const bound = 32 * time.Second
	hold := func(s *script) {
		s.agent.do(s.agent.engine.Hold(1, true, s.w.now, &s.agent.out))
	}
	refresh := func(s *script) { s.w.pass(5 * time.Minute) }
	for _, row := range []struct {
		name   string
		order  func(*script)
		status []int
		within time.Duration
	}{
		{"hold, 100", hold, []int{100}, bound},
		{"refresh, 100", refresh, []int{100}, bound},
		{"hold, 183", hold, []int{183}, finalWithin},
		{"hold, 183 and 100", hold, []int{100, 183, 100}, finalWithin},
	} {
		begin := func(t *testing.T) (s *script, invite flight) {
			s = scripted(t)
			s.answer(200, "b", "answer", "Allow", "INVITE, ACK, BYE", "Session-Expires", "600;refresher=uac")
			s.w.seen = nil
			row.order(s)
			s.next("INVITE")
			invite = s.at
			for _, status := range row.status {
				s.answer(status, "b", "", "Allow", "INVITE, ACK, BYE")
			}
			s.w.pass(row.within - 4*delay)
			expect(t, "before the bound", s.w.sent())
			s.w.pass(4 * delay)
			cancel := s.next("CANCEL")
			if v, _ := cancel.Via(); v.Branch() != invite.branch() {
				t.Errorf("it cancels %s", v.Branch())
			}
			return s, invite
		}
		t.Run(row.name+", cancelled", func(t *testing.T) {
			s, invite := begin(t)
			s.answer(200, "b", "")
			s.at = invite
			s.answer(487, "b", "")
			s.w.pass(time.Second)
			if got := s.agent.only(); got.State != Up || got.Held || s.agent.engine.calls[1].busy() {
				t.Errorf("the call is %+v", got)
			}
			s.w.seen = nil
			hold(s)
			s.next("INVITE")
			s.answer(200, "b", "answer")
			if !s.agent.only().Held {
				t.Error("what follows is not done")
			}
		})
		t.Run(row.name+", and accepted beside that", func(t *testing.T) {
			s, invite := begin(t)
			s.at = invite
			s.answer(200, "b", "answer")
			s.next("ACK")
			if s.agent.only().State != Up || s.agent.engine.calls[1].busy() {
				t.Error("it is not accepted")
			}
		})
		t.Run(row.name+", no one there", func(t *testing.T) {
			s, _ := begin(t)
			s.w.pass(bound)
			if v, ok := s.agent.told(Ended); !ok || v.Status != 408 {
				t.Errorf("%+v, want an end by 408", s.agent.events)
			}
		})
	}
}

// An INVITE that begins a call does not ring for ever at a peer that is no more.
func TestRingingWithoutEnd(t *testing.T) {
	s := scripted(t)
	invite := s.at
	s.answer(100, "b", "")
	s.w.pass(time.Minute)
	s.answer(180, "b", "")
	s.w.pass(finalWithin - 3*delay)
	expect(t, "before the bound", s.w.sent())
	s.w.pass(3 * delay)
	s.next("CANCEL")
	s.answer(200, "b", "")
	s.at = invite
	s.answer(487, "b", "")
	if v, ok := s.agent.told(Ended); !ok || v.Status != 487 {
		t.Errorf("%+v, want an end by 487", s.agent.events)
	}

	s = scripted(t)
	s.answer(100, "b", "")
	s.w.pass(finalWithin + 33*time.Second)
	if v, ok := s.agent.told(Ended); !ok || v.Status != 408 {
		t.Errorf("%+v, want an end by 408", s.agent.events)
	}
}
