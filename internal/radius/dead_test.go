// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package radius

import (
	"net/netip"
	"slices"
	"testing"
)

// TestNobodyAnswers gives each request one answer, that there is none.
func TestNobodyAnswers(t *testing.T) {
	w := newWorld(t, nil)
	answers := map[uint64]int{}
	for ticket := range uint64(50) {
		w.send(ticket, accessRequest())
	}
	for !w.c.Next().IsZero() {
		w.tick()
		for _, a := range w.out.Answers {
			if answers[a.Ticket]++; a.Code != 0 {
				t.Errorf("answer %+v", a)
			}
		}
	}
	if len(answers) != 50 || w.c.Waiting() != 0 || w.c.stats.Unanswered != 50 {
		t.Errorf("%d answers, %d wait, %+v", len(answers), w.c.Waiting(), w.c.stats)
	}
	if _, to, _ := w.send(99, accessRequest()); to != first {
		t.Errorf("where all are dead, %v was tried", to)
	}
}

// TestSecondIsBack has both servers die, and the second one come back: one of the next two requests finds it, whatever
// was asked meanwhile.
func TestSecondIsBack(t *testing.T) {
	w := newWorld(t, nil)
	for ticket := range uint64(3) {
		for w.send(ticket, accessRequest()); !w.c.Next().IsZero(); {
			w.tick()
		}
	}
	var asked []netip.AddrPort
	for ticket := range uint64(2) {
		_, to, _ := w.send(10+ticket, accessRequest())
		asked = append(asked, to)
	}
	if !slices.Contains(asked, first) || !slices.Contains(asked, second) {
		t.Errorf("asked %v", asked)
	}
}

// TestWindowOfDead sends a dead server no more than one that is back is asked at first, so that it starts without a burst;
// the rest is answered at once as nobody's.
func TestWindowOfDead(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Servers = s.Servers[:1] })
	for w.send(1, accessRequest()); w.c.Waiting() > 0; {
		w.tick()
	}
	w.out.Reset()
	const many = 200
	for ticket := range uint64(many) {
		if err := w.c.Send(ticket, accessRequest(), w.now, &w.out); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.out.UDP) != firstWindow || len(w.out.Answers) != many-firstWindow || w.c.Waiting() != firstWindow {
		t.Fatalf("%d are sent, %d answered, %d wait", len(w.out.UDP), len(w.out.Answers), w.c.Waiting())
	}
	d := w.out.UDP[0]
	w.c.HandleUDP(d.Socket, first, answerTo(d.Payload, secret, AccessAccept, true), w.now, &w.out)
	if _, to, _ := w.send(many, accessRequest()); to != first {
		t.Errorf("when it is back, %v is asked", to)
	}
}
