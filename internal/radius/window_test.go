// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package radius

import (
	"slices"
	"testing"
	"time"
)

// queued is how many requests wait for room.
func (w *world) queued() (n int) {
	for _, s := range w.c.servers {
		n += len(s.queue)
	}
	return n
}

// TestWindow sends at once what a server is known to take, the rest as answers come; the window grows by these.
func TestWindow(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Sockets, s.Servers = 2, s.Servers[:1] })
	for ticket := range uint64(2 * identifiers) {
		if err := w.c.Send(ticket, accessRequest(), w.now, &w.out); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.c.Send(999, accessRequest(), w.now, &w.out); err != ErrFull {
		t.Errorf("one more: %v", err)
	}
	var tickets []uint64
	largest := 0
	for batch := w.out.UDP; len(batch) > 0; batch = w.out.UDP {
		largest = max(largest, len(batch))
		batch = slices.Clone(batch)
		w.out = Output{}
		for _, d := range batch {
			w.c.HandleUDP(d.Socket, first, answerTo(d.Payload, secret, AccessAccept, true), w.now, &w.out)
		}
		for _, a := range w.out.Answers {
			tickets = append(tickets, a.Ticket)
		}
	}
	if len(tickets) != 2*identifiers || !slices.IsSorted(tickets) || w.c.Waiting() != 0 || w.queued() != 0 {
		t.Errorf("%d answers, in order %t, %d wait, %d in the queue", len(tickets), slices.IsSorted(tickets), w.c.Waiting(), w.queued())
	}
	if largest != 4*firstWindow { // 64, 128, 256 and the rest
		t.Errorf("%d at once at most", largest)
	}
	if size := w.c.servers[0].window.size; size < 4*firstWindow || size > 8*firstWindow {
		t.Errorf("the window is %v", size)
	}
}

// TestWindowLowered halves the window once for all that was lost together, and again for what was sent after that.
func TestWindowLowered(t *testing.T) {
	w := newWindow()
	for _, step := range []struct {
		sent, now time.Duration
		want      float64
	}{{1, 10, 32}, {1, 11, 32}, {9, 12, 32}, {11, 20, 16}, {21, 30, 8}, {31, 40, 8}} {
		if w.lost(start.Add(step.sent), start.Add(step.now)); w.size != step.want {
			t.Errorf("%+v: %v", step, w.size)
		}
	}
	w.size, w.threshold = 10, 10
	for range 10 {
		w.answered(10)
	}
	if w.size < 10.9 || w.size > 11 {
		t.Errorf("it grows by %v in a round", w.size-10)
	}
	if w.answered(5); w.size > 11 {
		t.Error("it grows without need")
	}
}

// TestWindowDead has what waits for room at a server that dies go to the other.
func TestWindowDead(t *testing.T) {
	w := newWorld(t, nil)
	const many = 2 * firstWindow
	for ticket := range uint64(many) {
		if err := w.c.Send(ticket, accessRequest(), w.now, &w.out); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.out.UDP) != firstWindow {
		t.Fatalf("%d are sent at once", len(w.out.UDP))
	}
	answered := map[uint64]Code{}
	for w.c.Waiting() > 0 {
		w.tick()
		sent := slices.Clone(w.out.UDP)
		for len(sent) > 0 {
			var next Output
			for _, d := range sent {
				if d.To == second {
					w.c.HandleUDP(d.Socket, second, answerTo(d.Payload, secret2, AccessAccept, true), w.now, &next)
				}
			}
			w.out.Answers = append(w.out.Answers, next.Answers...)
			sent = next.UDP
		}
		for _, a := range w.out.Answers {
			answered[a.Ticket] = a.Code
		}
	}
	if len(answered) != many {
		t.Fatalf("%d are answered", len(answered))
	}
	for ticket, code := range answered {
		if code != AccessAccept {
			t.Errorf("%d: %v", ticket, code)
		}
	}
}

// TestWindowSlow has what waits for room too long go to the other server, and be answered as nobody's if that has none.
func TestWindowSlow(t *testing.T) {
	w := newWorld(t, nil)
	for i := range w.c.servers {
		w.c.servers[i].window.size = 1
	}
	for ticket := range uint64(3) {
		if err := w.c.Send(ticket, accessRequest(), w.now, &w.out); err != nil {
			t.Fatal(err)
		}
	}
	w.c.servers[0].heard = start.Add(time.Hour) // it lives
	asked := 0
	var last Answer
	for w.c.Waiting() > 0 {
		w.tick()
		for _, d := range w.out.UDP {
			if d.To == second {
				asked++
			}
		}
		for _, last = range w.out.Answers {
			if last.Code != 0 {
				t.Errorf("%+v", last)
			}
		}
	}
	if asked == 0 || w.c.stats.Unanswered != 3 || last.Ticket != 2 {
		t.Errorf("the other was asked %d times, %d have no answer, the last is %d", asked, w.c.stats.Unanswered, last.Ticket)
	}
}

// TestWindowOfAnother has a request that waits for room at one server hold up none that waits for the other, and a new one
// overtake neither.
func TestWindowOfAnother(t *testing.T) {
	w := newWorld(t, nil)
	ask := func(ticket uint64) {
		t.Helper()
		if err := w.c.Send(ticket, accessRequest(), w.now, &w.out); err != nil {
			t.Fatal(err)
		}
	}
	a, b := w.c.servers[0], w.c.servers[1]
	a.heard, b.window.size = start.Add(time.Hour), 1 // so a lives, and is given up for these two alone
	ask(1)
	ask(2)
	for w.queued() == 0 {
		w.tick()
	}
	if b.waiting() != 1 || a.waiting() != 0 {
		t.Fatalf("%d wait for the first, %d for the second", a.waiting(), b.waiting())
	}
	a.window.size, a.window.threshold = 1, 1
	w.out.Reset()
	ask(3)
	ask(4)
	ask(5)
	if len(w.out.UDP) != 1 || w.queued() != 3 {
		t.Fatalf("%d are sent, %d in the queues", len(w.out.UDP), w.queued())
	}
	var tickets []uint64
	for batch := w.out.UDP; len(batch) > 0; batch = w.out.UDP {
		batch = slices.Clone(batch)
		w.out = Output{}
		for _, d := range batch {
			if d.To != first {
				t.Errorf("%v is asked", d.To)
			}
			w.c.HandleUDP(d.Socket, d.To, answerTo(d.Payload, secret, AccessAccept, true), w.now, &w.out)
		}
		for _, one := range w.out.Answers {
			tickets = append(tickets, one.Ticket)
		}
		if len(tickets) == 1 {
			ask(6)
		}
	}
	if !slices.Equal(tickets, []uint64{3, 4, 5, 6}) || w.queued() != 1 {
		t.Errorf("the first has answered %v, %d in the queues", tickets, w.queued())
	}
}

// TestWindowBack begins anew with a server that is back: what was lost on the way to its grave says nothing of it.
func TestWindowBack(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Servers = s.Servers[:1] })
	socket, _, wire := w.send(1, accessRequest())
	s := w.c.servers[0]
	s.dead, s.window.size, s.window.threshold = true, leastWindow, leastWindow
	w.out.Reset()
	w.c.HandleUDP(socket, first, answerTo(wire, secret, AccessAccept, true), w.now, &w.out)
	want := newWindow()
	want.lowered = w.now
	if s.dead || s.window != want {
		t.Errorf("dead %t, %+v", s.dead, s.window)
	}
}
