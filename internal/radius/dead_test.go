// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package radius

import (
	"net/netip"
	"slices"
	"testing"
	"time"
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

// TestFoundSoon fills what may wait for a dead server, which comes back behind the last repetition of that: a request finds
// it long before these are given up, and behind it all are answered.
func TestFoundSoon(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Servers, s.Timeout = s.Servers[:1], 8*time.Second })
	for w.send(1, accessRequest()); w.c.Waiting() > 0; {
		w.tick()
	}
	w.out.Reset()
	for ticket := range uint64(firstWindow) {
		if err := w.c.Send(ticket, accessRequest(), w.now, &w.out); err != nil {
			t.Fatal(err)
		}
	}
	began := w.now
	var found []time.Duration
	for ticket := uint64(100); w.now.Before(began.Add(20 * time.Second)); ticket++ {
		w.now = w.now.Add(100 * time.Millisecond)
		w.out.Reset()
		w.c.Tick(w.now, &w.out)
		if err := w.c.Send(ticket, accessRequest(), w.now, &w.out); err != nil {
			t.Fatal(err)
		}
		since := w.now.Sub(began)
		if since < 10*time.Second {
			continue
		}
		for sent := w.out.UDP; len(sent) > 0; sent = w.out.UDP {
			sent = slices.Clone(sent)
			w.out.UDP = nil
			for _, d := range sent {
				w.c.HandleUDP(d.Socket, first, answerTo(d.Payload, secret, AccessAccept, true), w.now, &w.out)
			}
		}
		if slices.ContainsFunc(w.out.Answers, func(a Answer) bool { return a.Ticket == ticket && a.Code == AccessAccept }) {
			found = append(found, since)
		}
	}
	if len(found) == 0 || found[0] > 11*time.Second+100*time.Millisecond {
		t.Fatalf("it is found after %v", found)
	}
	if want := int((20*time.Second-found[0])/(100*time.Millisecond)) + 1; len(found) != want {
		t.Errorf("%d of %d requests were answered at once behind that", len(found), want)
	}
	for w.c.Waiting() > 0 {
		w.tick()
	}
	if s := w.c.servers[0]; s.lost != 0 || s.dead {
		t.Errorf("%d of before count for ever, dead %t", s.lost, s.dead)
	}
}
