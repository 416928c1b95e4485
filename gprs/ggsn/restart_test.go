// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// counted makes a context by a request with a restart counter, and returns the Echo Requests for the control
// plane of its sender that come with the answer.
func (w *world) counted(n int, counter uint8) (c context, echoes []packet.Datagram) {
	w.Helper()
	m := w.createRequest(testIMSI(n), "internet", gtp.PDPTypeIPv4)
	m.TEIDData, m.TEIDControl, m.Recovery = 0x1000+uint32(n), gtp.Some(0x2000+uint32(n)), gtp.Some(counter)
	c = w.create(m)
	for _, d := range ofType(w.out.UDP, gtp.TypeEchoRequest) {
		d.Payload = append([]byte(nil), d.Payload...)
		echoes = append(echoes, d)
	}
	w.now = w.now.Add(time.Second)
	return c, echoes
}

// TestRestartOvertaken: a request with an older restart counter, which a newer one has overtaken, ends no context,
// nor does the next answer with the newer one. It has the node asked at once.
func TestRestartOvertaken(t *testing.T) {
	for _, each := range []time.Duration{0, time.Minute} {
		for stored, late := range map[uint8]uint8{6: 5, 2: 250, 200: 73} {
			w := newWorld(t, func(s *Settings) { s.EchoInterval = each })
			w.counted(1, stored)
			c, echoes := w.counted(2, late)
			if !c.Cause.Accepted() || len(echoes) != 1 || Socket(echoes[0].Socket) != SocketControl {
				t.Fatalf("%d behind %d: %v, %d Echo Requests", late, stored, c.Cause, len(echoes))
			}
			w.reply(echoes[0], &gtp.EchoResponse{Recovery: stored})
			w.counted(3, stored)
			w.tick(time.Second)
			if n := w.e.contexts.used(); n != 3 || w.e.stats.Restarts != 0 || w.e.stats.RestartsDoubted != 1 || w.e.peers.at(1).restart != stored {
				t.Errorf("%d behind %d: %d contexts, %d restarts, %d doubts", late, stored, n, w.e.stats.Restarts, w.e.stats.RestartsDoubted)
			}
		}
	}
}

// TestRestartFromZero: a node that begins to count again has lost what it had, by its answer to an Echo Request
// that was sent since, and nothing that it has opened or changed since.
func TestRestartFromZero(t *testing.T) {
	w := newWorld(t, nil)
	first, _ := w.counted(1, 6)
	w.counted(2, 6)
	m := w.updateRequest(0x7000)
	m.Recovery = gtp.Some(uint8(0))
	w.ask(pathControl, gtp.Header{TEID: first.TEIDControl.Value}, m, &gtp.UpdateResponse{})
	echoes := ofType(w.out.UDP, gtp.TypeEchoRequest)
	if len(echoes) != 1 {
		t.Fatalf("%d Echo Requests", len(echoes))
	}
	asked := echoes[0]
	asked.Payload = append([]byte(nil), asked.Payload...)
	if _, again := w.counted(3, 0); len(again) != 0 {
		t.Errorf("asked %d times more while it is asked", len(again))
	}
	w.reply(asked, &gtp.EchoResponse{Recovery: 0})
	w.tick(time.Second)
	if w.e.byTID[gtp.MakeTID(imsi1, 5)] == 0 || w.e.byTID[gtp.MakeTID(testIMSI(3), 5)] == 0 || w.e.contexts.used() != 2 || w.e.stats.Restarts != 1 {
		t.Errorf("%d contexts, %d restarts", w.e.contexts.used(), w.e.stats.Restarts)
	}
	w.counted(4, 0)
	if w.counted(5, 1); w.e.stats.Restarts != 2 {
		t.Errorf("%d restarts", w.e.stats.Restarts)
	}
}

// TestRestartEchoedLate: an answer to an Echo Request may be an old one, too. The next request is the proof.
func TestRestartEchoedLate(t *testing.T) {
	for _, proof := range []uint8{6, 0} {
		w := newWorld(t, func(s *Settings) { s.EchoInterval = time.Minute })
		w.counted(1, 6)
		var again []packet.Datagram
		for _, d := range ofType(w.tick(time.Minute), gtp.TypeEchoRequest) {
			if Socket(d.Socket) == SocketControl {
				w.reply(d, &gtp.EchoResponse{Recovery: 0})
				again = ofType(w.out.UDP, gtp.TypeEchoRequest)
			}
		}
		if len(again) != 1 || w.e.stats.Restarts != 0 {
			t.Fatalf("asked %d times more, %d restarts", len(again), w.e.stats.Restarts)
		}
		w.reply(again[0], &gtp.EchoResponse{Recovery: proof})
		if w.tick(time.Second); w.e.contexts.used() != btoi(proof == 6) {
			t.Errorf("%d proves to be right: %d contexts", proof, w.e.contexts.used())
		}
	}
}

// echoesBy ticks, and returns the Echo Requests by their socket.
func (w *world) echoesBy(after time.Duration) map[Socket]packet.Datagram {
	w.Helper()
	by := make(map[Socket]packet.Datagram)
	for _, d := range ofType(w.tick(after), gtp.TypeEchoRequest) {
		d.Payload = append([]byte(nil), d.Payload...)
		by[Socket(d.Socket)] = d
	}
	return by
}

// TestRestartDoubtUnanswered: who does not answer Echo Requests, and is never asked otherwise, loses nothing, and is
// in doubt until a counter says which it is: what was opened first in doubt is not lost then.
func TestRestartDoubtUnanswered(t *testing.T) {
	for _, proof := range []uint8{6, 5} {
		w := newWorld(t, func(s *Settings) { s.PathHold = time.Minute })
		w.counted(1, 6)
		w.counted(2, 5)
		w.tick(time.Hour)
		if d := w.e.peers.at(1).doubt; w.e.contexts.used() != 2 || w.e.stats.PathsDown != 0 || d.echo != 0 || d.at != time.Second {
			t.Fatalf("%d contexts, %d paths down, doubt %+v", w.e.contexts.used(), w.e.stats.PathsDown, d)
		}
		_, again := w.counted(3, proof)
		if len(again) != btoi(proof == 5) {
			t.Fatalf("%d: asked %d times more", proof, len(again))
		}
		for _, d := range again {
			w.reply(d, &gtp.EchoResponse{Recovery: 5})
		}
		if w.tick(time.Second); w.e.contexts.used() != 2+btoi(proof == 6) || w.e.stats.Restarts != uint64(btoi(proof == 5)) || w.e.peers.at(1).doubt != (doubt{}) {
			t.Errorf("%d: %d contexts, %d restarts, doubt %+v", proof, w.e.contexts.used(), w.e.stats.Restarts, w.e.peers.at(1).doubt)
		}
	}
}

// TestRestartDoubtOtherPath: an Echo Request of before the restart that the user plane never answers says nothing of
// the doubt, nor does a message of before the restart that comes while the node is asked.
func TestRestartDoubtOtherPath(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.EchoInterval, s.N3Requests = time.Minute, 1 })
	w.counted(1, 6)
	before := w.echoesBy(time.Minute)
	if len(before) != 2 {
		t.Fatalf("%d Echo Requests", len(before))
	}
	w.reply(before[SocketControl], &gtp.EchoResponse{Recovery: 6})
	w.now = w.now.Add(w.e.settings.T3Response / 2)
	_, asked := w.counted(2, 0) // of after the restart
	if len(asked) != 1 {
		t.Fatalf("asked %d times", len(asked))
	}
	w.tick(w.e.settings.T3Response/2 - time.Second) // until the user plane has not answered
	if w.e.peers.at(1).paths[pathUser].echo != 0 || w.e.peers.at(1).paths[pathControl].echo == 0 {
		t.Fatal("not the user plane alone is silent")
	}
	w.counted(3, 6)
	w.reply(asked[0], &gtp.EchoResponse{Recovery: 0})
	if w.tick(time.Second); w.e.contexts.used() != 2 || w.e.stats.Restarts != 1 || w.e.byTID[gtp.MakeTID(testIMSI(2), 5)] == 0 {
		t.Errorf("%d contexts, %d restarts", w.e.contexts.used(), w.e.stats.Restarts)
	}
}

// TestRestartDoubtResumed: a node that is in doubt stays so over a restart of this one, and what it has opened since
// is known.
func TestRestartDoubtResumed(t *testing.T) {
	w := newWorld(t, nil)
	w.counted(1, 6)
	w.counted(2, 0)
	if lost := w.succeed(w.e.settings, w.e.AppendState(nil)); lost != 0 {
		t.Fatalf("%d are lost", lost)
	}
	w.now = w.now.Add(time.Second)
	_, asked := w.counted(3, 0)
	if len(asked) != 1 {
		t.Fatalf("asked %d times", len(asked))
	}
	w.reply(asked[0], &gtp.EchoResponse{Recovery: 0})
	if w.tick(time.Second); w.e.contexts.used() != 2 || w.e.stats.Restarts != 1 || w.e.byTID[gtp.MakeTID(testIMSI(2), 5)] == 0 {
		t.Errorf("%d contexts, %d restarts", w.e.contexts.used(), w.e.stats.Restarts)
	}
}

// TestRestartMovedIn: sessions that come to a node while it is in doubt are not lost with those that it had, nor are
// those that it speaks of itself.
func TestRestartMovedIn(t *testing.T) {
	w := newWorld(t, nil)
	from, lost := w.from, 5
	w.from = other
	moving, _ := w.counted(1, 9)
	w.from = from
	own, _ := w.counted(2, 6)
	primary, _ := w.counted(3, 6)
	w.counted(lost, 6)
	_, asked := w.counted(4, 0)
	if len(asked) != 1 {
		t.Fatalf("asked %d times", len(asked))
	}
	for n, c := range []context{moving, own} {
		w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, w.updateRequest(uint32(0x7000+n)), &gtp.UpdateResponse{})
	}
	if r := w.createSecondary(primary.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 10, 5000)))); !r.Cause.Accepted() {
		t.Fatal(r.Cause)
	}
	w.now = w.now.Add(time.Second)
	w.reply(asked[0], &gtp.EchoResponse{Recovery: 0})
	w.tick(time.Second)
	for n := 1; n <= 5; n++ {
		if there := w.e.byTID[gtp.MakeTID(testIMSI(n), 5)] != 0; there != (n != lost) {
			t.Errorf("context %d: %v", n, there)
		}
	}
}

// TestRestartDoubtedWhileAsked: the answer that is on its way is asked for no second time, and ends the doubt, or
// has the node asked by one that is sent since.
func TestRestartDoubtedWhileAsked(t *testing.T) {
	for _, answer := range []uint8{6, 5} {
		w := newWorld(t, func(s *Settings) { s.EchoInterval = time.Minute })
		w.counted(1, 6)
		for _, d := range ofType(w.tick(time.Minute), gtp.TypeEchoRequest) {
			if Socket(d.Socket) != SocketControl {
				continue
			}
			if _, echoes := w.counted(2, 5); len(echoes) != 0 {
				t.Errorf("%d Echo Requests beside the one", len(echoes))
			}
			w.reply(d, &gtp.EchoResponse{Recovery: answer})
		}
		again := ofType(w.out.UDP, gtp.TypeEchoRequest)
		if len(again) != btoi(answer == 5) || (w.e.peers.at(1).doubt != doubt{}) != (answer == 5) {
			t.Fatalf("%d: asked %d times more, in doubt %+v", answer, len(again), w.e.peers.at(1).doubt)
		}
		for _, d := range again {
			w.reply(d, &gtp.EchoResponse{Recovery: 5})
		}
		if w.tick(time.Second); w.e.contexts.used() != 1+btoi(answer == 6) {
			t.Errorf("%d: %d contexts", answer, w.e.contexts.used())
		}
	}
}

// TestRestartEchoedFirst: a first counter of 0 that an answer tells is one, too.
func TestRestartEchoedFirst(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.EchoInterval = time.Minute })
	w.open(1, "internet", gtp.PDPTypeIPv4)
	for counter := range uint8(2) {
		for _, d := range ofType(w.tick(time.Minute), gtp.TypeEchoRequest) {
			w.reply(d, &gtp.EchoResponse{Recovery: counter})
		}
	}
	if w.tick(time.Second); w.e.stats.Restarts != 1 || w.e.contexts.used() != 0 {
		t.Errorf("%d restarts, %d contexts", w.e.stats.Restarts, w.e.contexts.used())
	}
}
