// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// attachTold opens a context of an NSAPI, whose answer tells a restart counter.
func (w *world) attachTold(nsapi, counter uint8) gtp.TID {
	w.t.Helper()
	a := attachment(gtp.V1, gtp.PDPTypeIPv4)
	a.NSAPI = nsapi
	key, err := w.e.Attach(a, w.now, &w.out)
	w.order(err)
	w.accept(func(m *gtp.CreateResponse) { m.Recovery = gtp.Some(counter) })
	return key
}

// left are the NSAPIs of the contexts that are there.
func (w *world) left() (list []uint8) {
	for _, key := range w.e.Keys() {
		list = append(list, key.NSAPI())
	}
	return list
}

// echoed answers an Echo Request.
func (w *world) echoed(counter uint8) {
	w.t.Helper()
	d, h := w.request(&gtp.EchoRequest{})
	w.echo(d, h, counter)
}

func (w *world) echo(d packet.Datagram, h gtp.Header, counter uint8) {
	w.t.Helper()
	w.say(d.Socket, reply(h, 0), &gtp.EchoResponse{Recovery: counter})
}

// TestCounters: a higher counter is a restart, also beyond 255, and of a lower one the GGSN is asked.
func TestCounters(t *testing.T) {
	for _, row := range []struct {
		name          string
		before, after uint8
		left          []uint8
		asks          bool
	}{
		{"the same", 9, 9, []uint8{5, 6}, false},
		{"higher", 9, 10, []uint8{6}, false},
		{"beyond 255", 250, 3, []uint8{6}, false},
		{"lower", 9, 8, []uint8{5, 6}, true},
		{"lower, beyond 255", 3, 250, []uint8{5, 6}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{})
			w.attachTold(5, row.before)
			w.now = w.now.Add(time.Second)
			w.attachTold(6, row.after)
			if left := w.left(); !slices.Equal(left, row.left) {
				t.Errorf("contexts %v are left", left)
			}
			if row.asks {
				w.request(&gtp.EchoRequest{})
			}
			w.none()
		})
	}
}

// TestCounterOvertaken: a message that came late changes nothing.
func TestCounterOvertaken(t *testing.T) {
	w := newWorld(t, Settings{})
	w.attachTold(5, 9)
	w.attachTold(6, 8)
	d, h := w.request(&gtp.EchoRequest{})
	w.attachTold(7, 8) // while it is asked
	w.attachTold(8, 9)
	w.none()
	w.echo(d, h, 9)
	if left := w.left(); len(left) != 4 || w.e.Stats().Restarts != 0 {
		t.Errorf("contexts %v are left: %+v", left, w.e.Stats())
	}
}

// TestCounterBeginsAgain: a GGSN that counts from the start has it in its answer, too. What it has opened since is
// there.
func TestCounterBeginsAgain(t *testing.T) {
	w := newWorld(t, Settings{})
	w.attachTold(5, 9)
	w.now = w.now.Add(time.Second)
	w.attachTold(6, 1)
	d, h := w.request(&gtp.EchoRequest{})
	w.now = w.now.Add(time.Second)
	w.attachTold(7, 1)
	w.echo(d, h, 1)
	if left := w.left(); !slices.Equal(left, []uint8{6, 7}) || w.e.Stats().Restarts != 1 {
		t.Errorf("contexts %v are left: %+v", left, w.e.Stats())
	}
	w.attachTold(8, 1)
	w.none()
}

// TestCounterUnanswered: without an answer nothing is lost, and a lower counter has the GGSN asked again.
func TestCounterUnanswered(t *testing.T) {
	w := newWorld(t, Settings{})
	w.attachTold(5, 9)
	w.now = w.now.Add(time.Second)
	w.attachTold(6, 8)
	w.wait(time.Minute)
	if w.event(PathDown); len(w.left()) != 2 {
		t.Errorf("contexts %v are left", w.left())
	}
	w.clear()
	w.attachTold(7, 8)
	w.echoed(8)
	if left := w.left(); !slices.Equal(left, []uint8{6, 7}) {
		t.Errorf("contexts %v are left", left)
	}
}

// TestCounterUnreadable: an answer that cannot be read decides nothing, and a lower counter has the GGSN asked again.
func TestCounterUnreadable(t *testing.T) {
	w := newWorld(t, Settings{})
	w.attachTold(5, 9)
	w.now = w.now.Add(time.Second)
	w.attachTold(6, 8)
	d, h := w.request(&gtp.EchoRequest{})
	w.send(d.Socket, theirs, []byte{0x32, byte(gtp.TypeEchoResponse), 0, 4, 0, 0, 0, 0, byte(h.Sequence >> 8), byte(h.Sequence), 0, 0}) // no Recovery
	if left := w.left(); !slices.Equal(left, []uint8{5, 6}) {
		t.Errorf("contexts %v are left", left)
	}
	w.attachTold(7, 8)
	w.echoed(8)
	if left := w.left(); !slices.Equal(left, []uint8{6, 7}) {
		t.Errorf("contexts %v are left", left)
	}
}

// TestEchoBeforeDoubt: the answer to a request of before decides nothing.
func TestEchoBeforeDoubt(t *testing.T) {
	w := newWorld(t, Settings{EchoInterval: time.Minute})
	w.attachTold(5, 9)
	w.clear()
	w.wait(time.Minute)
	var early []packet.Datagram
	for w.seen < len(w.out.UDP) {
		if d, _ := w.next(); d.Socket == Socket(0, PlaneControl) {
			early = append(early, d)
		}
	}
	w.now = w.now.Add(time.Second)
	w.attachTold(6, 8)
	h, err := gtp.ParseHeader(early[0].Payload)
	if err != nil {
		t.Fatal(err)
	}
	if w.echo(early[0], h, 8); len(w.left()) != 2 {
		t.Errorf("contexts %v are left", w.left())
	}
	if w.echoed(8); !slices.Equal(w.left(), []uint8{6}) {
		t.Errorf("contexts %v are left", w.left())
	}
}
