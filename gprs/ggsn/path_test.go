// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

func TestEchoAnswered(t *testing.T) {
	w := newWorld(t, nil)
	for _, tt := range []struct {
		name string
		path int
		want uint8
	}{{"version 0", pathV0, 7}, {"control plane", pathControl, 7}, {"user plane", pathUser, 0}} {
		var r gtp.EchoResponse
		h := w.ask(tt.path, gtp.Header{}, &gtp.EchoRequest{}, &r)
		if tt.path == pathUser && w.e.byAddress[addressKey(sgsn.As16())] == 0 {
			t.Fatal("unknown")
		}
		if r.Recovery != tt.want || h.Sequence != w.seq || h.TEID != 0 || h.TID != (gtp.TID{}) || h.FlowLabel != 0 {
			t.Errorf("%s: recovery %d, header %+v", tt.name, r.Recovery, h)
		}
	}
}

// echoTimes are the seconds at which Echo Requests went out on a path, while nobody answers.
func (w *world) echoTimes(path int, d time.Duration) (at []int) {
	begin := w.now
	for w.now.Before(begin.Add(d)) {
		for _, one := range ofType(w.tick(time.Second), gtp.TypeEchoRequest) {
			if int(Socket(one.Socket)%ports) == path {
				at = append(at, int(w.now.Sub(begin)/time.Second))
			}
		}
	}
	return at
}

// TestEchoTimers: an Echo Request every interval, N3 of them T3 apart with one sequence
// number; then the path is down, and what needs it is released after the hold.
func TestEchoTimers(t *testing.T) {
	for _, path := range []int{pathControl, pathUser} {
		w := newWorld(t, func(s *Settings) {
			s.EchoInterval, s.T3Response, s.N3Requests, s.PathHold = time.Minute, 5*time.Second, 3, 4*time.Minute
		})
		w.open(1, "internet", gtp.PDPTypeIPv4)
		if got := w.echoTimes(path, 100*time.Second); !slices.Equal(got, []int{60, 65, 70}) {
			t.Errorf("path %d: echoes at %v", path, got)
		}
		if w.e.stats.PathsDown != 2 || w.e.contexts.used() != 1 {
			t.Errorf("%d paths down, %d contexts", w.e.stats.PathsDown, w.e.contexts.used())
		}
		w.tick(213 * time.Second) // 75 s and 4 minutes, less a little
		if w.e.contexts.used() != 1 {
			t.Error("released before the hold ended")
		}
		w.tick(20 * time.Second)
		w.empty()
		if w.e.stats.Ended[EndPath] != 1 {
			t.Errorf("ended %v", w.e.stats.Ended)
		}
	}
}

// TestEchoVersion0: version 0 has one path for both planes.
// TestPathDownIsTold: of each path, by its port, with how many contexts need it.
func TestPathDownIsTold(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.EchoInterval, s.PathHold = time.Minute, -1 })
	w.open(1, "internet", gtp.PDPTypeIPv4)
	w.open(2, "internet", gtp.PDPTypeIPv4)
	var down []uint16
	for range 200 {
		w.out.Reset()
		w.tick(time.Second)
		for _, v := range w.out.Events {
			if down = append(down, v.Port); v.Kind != PathDown || v.Peer != sgsn || v.Contexts != 2 {
				t.Errorf("%+v", v)
			}
		}
	}
	if slices.Sort(down); !slices.Equal(down, []uint16{2123, 2152}) {
		t.Errorf("down are %v", down)
	}
}

func TestEchoVersion0(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.EchoInterval, s.PathHold = time.Minute, time.Minute })
	w.createV0(gtp.MakeTID(imsi1, 5), "internet", gtp.PDPTypeIPv4)
	if got := w.echoTimes(pathV0, 100*time.Second); !slices.Equal(got, []int{60, 65, 70}) || w.e.stats.PathsDown != 1 {
		t.Errorf("echoes at %v, %d paths down", got, w.e.stats.PathsDown)
	}
	w.tick(time.Minute)
	w.empty()
}

func TestEchoOff(t *testing.T) {
	w := newWorld(t, nil)
	w.open(1, "internet", gtp.PDPTypeIPv4)
	if got := w.tick(time.Hour); len(got) != 0 || !w.e.Next().IsZero() {
		t.Errorf("%d datagrams, next %v", len(got), w.e.Next())
	}
}

func TestPathKept(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.EchoInterval, s.PathHold = time.Minute, -1 })
	w.open(1, "internet", gtp.PDPTypeIPv4)
	w.tick(24 * time.Hour)
	if w.e.contexts.used() != 1 || w.e.stats.PathsDown != 2 {
		t.Errorf("%d contexts, %d paths down", w.e.contexts.used(), w.e.stats.PathsDown)
	}
}

// TestPathBack: an answer ends what was believed of a path.
func TestPathBack(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.EchoInterval, s.PathHold = time.Minute, 10*time.Minute })
	w.open(1, "internet", gtp.PDPTypeIPv4)
	w.tick(2 * time.Minute)
	down := 0
	for range 20 {
		for _, d := range ofType(w.tick(time.Minute), gtp.TypeEchoRequest) {
			h, _ := gtp.ParseHeader(d.Payload)
			answer := w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: h.Sequence}, &gtp.EchoResponse{Recovery: 3})
			w.raw(int(Socket(d.Socket)%ports), answer)
			for _, v := range w.out.Events {
				if v.Kind == PathUp {
					down++
				}
			}
		}
	}
	if down != 2 || w.e.contexts.used() != 1 {
		t.Errorf("%d paths up again, %d contexts", down, w.e.contexts.used())
	}
}

// TestRestart: a peer that has restarted has lost its contexts, all of them and no other's.
func TestRestart(t *testing.T) {
	answerEcho := func(w *world, counter uint8) {
		for _, d := range ofType(w.tick(61*time.Second), gtp.TypeEchoRequest) {
			if Socket(d.Socket) == SocketControl && d.To.Addr() == w.from {
				h, _ := gtp.ParseHeader(d.Payload)
				w.raw(pathControl, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: h.Sequence}, &gtp.EchoResponse{Recovery: counter}))
			}
		}
	}
	tests := []struct {
		name string
		tell func(w *world, counter uint8)
		more int // contexts that the telling makes
	}{
		{"in an Echo Response", answerEcho, 0},
		{"in a Create Request", func(w *world, counter uint8) {
			m := w.createRequest(testIMSI(9000+int(counter)), "internet", gtp.PDPTypeIPv4)
			m.Recovery = gtp.Some(counter)
			w.create(m)
		}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(s *Settings) { s.EchoInterval = time.Minute; s.PathHold = -1 })
			tt.tell(w, 255)
			for n := range 1500 {
				w.open(n+1, "internet", gtp.PDPTypeIPv4)
			}
			w.from = other
			w.open(5000, "internet", gtp.PDPTypeIPv4)
			w.from = sgsn
			tt.tell(w, 255)
			if got := w.e.contexts.used(); got != 1501+tt.more {
				t.Fatalf("%d contexts after the same counter", got)
			}
			tt.tell(w, 0) // it wraps
			w.tick(0)
			if got := w.e.contexts.used(); got != 1+tt.more || w.e.stats.Restarts != 1 {
				t.Errorf("%d contexts, %d restarts", got, w.e.stats.Restarts)
			}
			if tt.more == 0 && w.e.stats.Ended[EndPeerRestart] != 1500 {
				t.Errorf("ended %v", w.e.stats.Ended)
			}
		})
	}
}

// TestRestartOfUserPlane: the counter of an answer on the user plane means nothing.
func TestRestartOfUserPlane(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.EchoInterval, s.PathHold = time.Minute, -1 })
	w.open(1, "internet", gtp.PDPTypeIPv4)
	for counter := range 3 {
		for _, d := range ofType(w.tick(61*time.Second), gtp.TypeEchoRequest) {
			if h, _ := gtp.ParseHeader(d.Payload); Socket(d.Socket) == SocketUser {
				w.raw(pathUser, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: h.Sequence}, &gtp.EchoResponse{Recovery: uint8(counter)}))
			}
		}
	}
	if w.e.contexts.used() != 1 || w.e.stats.Restarts != 0 {
		t.Errorf("%d contexts, %d restarts", w.e.contexts.used(), w.e.stats.Restarts)
	}
}

// TestRestartInUpdate: the context that a node moves, or changes, while it tells of its
// restart is one that it has.
func TestRestartInUpdate(t *testing.T) {
	for _, moved := range []bool{false, true} {
		w := newWorld(t, nil)
		first := w.createRequest(testIMSI(8), "internet", gtp.PDPTypeIPv4)
		first.Recovery = gtp.Some(uint8(1))
		w.create(first)
		w.from = other
		first.IMSI, first.AddressControl, first.AddressUser = gtp.Some(testIMSI(9)), other, other
		w.create(first)
		w.from = sgsn
		c := w.open(1, "internet", gtp.PDPTypeIPv4)
		if moved {
			w.from = other
		}
		m := w.updateRequest(0x7000)
		m.Recovery = gtp.Some(uint8(2))
		var r gtp.UpdateResponse
		if w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, m, &r); r.Cause != gtp.CauseAccepted {
			t.Fatal(r.Cause)
		}
		if !slices.ContainsFunc(w.out.Events, func(v Event) bool { return v.Kind == PeerRestarted && v.Contexts == 1 }) {
			t.Errorf("moved %v: told of %+v", moved, w.out.Events)
		}
		w.tick(0)
		left := make(map[string]bool)
		for _, info := range w.list() {
			left[info.IMSI.String()] = true
		}
		if !left[testIMSI(1).String()] || left[testIMSI(8).String()] != moved || left[testIMSI(9).String()] == moved {
			t.Errorf("moved %v: left are %v", moved, left)
		}
	}
}

// TestRestartNews: a node whose counter changes with each request fills no log.
func TestRestartNews(t *testing.T) {
	w := newWorld(t, nil)
	told := 0
	for i := range 100 {
		m := w.createRequest(testIMSI(1), "internet", gtp.PDPTypeIPv4)
		m.Recovery = gtp.Some(uint8(i))
		w.create(m)
		for _, e := range w.out.Events {
			if e.Kind == PeerRestarted {
				told++
			}
		}
	}
	if told == 0 || told > 10 || w.e.stats.Restarts != 99 {
		t.Errorf("%d events of %d restarts", told, w.e.stats.Restarts)
	}
}

// TestRestartOfAnother: the counter of a request is its sender's. A node that it names has not
// restarted, and is not taken to have that counter.
func TestRestartOfAnother(t *testing.T) {
	w := newWorld(t, nil)
	w.from = other
	m := w.createRequest(testIMSI(1), "internet", gtp.PDPTypeIPv4)
	m.Recovery = gtp.Some(uint8(9))
	w.create(m)
	w.from = sgsn
	foreign := w.createRequest(testIMSI(2), "internet", gtp.PDPTypeIPv4)
	foreign.Recovery, foreign.AddressControl = gtp.Some(uint8(10)), other
	c := w.create(foreign)
	u := w.updateRequest(0x7000)
	u.Recovery, u.AddressControl = gtp.Some(uint8(11)), gtp.Some(other)
	w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, u, &gtp.UpdateResponse{})
	w.from = other
	m.IMSI = gtp.Some(testIMSI(3))
	w.create(m)
	w.tick(time.Second)
	if w.e.stats.Restarts != 0 || w.e.contexts.used() != 3 {
		t.Errorf("%d restarts, %d contexts", w.e.stats.Restarts, w.e.contexts.used())
	}
}

// TestPathOfVersion1Down: the user plane of version 1 that answers no more ends no context of
// version 0, which has another port.
func TestPathOfVersion1Down(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.EchoInterval, s.PathHold = time.Minute, time.Minute })
	w.open(1, "internet", gtp.PDPTypeIPv4)
	w.createV0(gtp.MakeTID(testIMSI(3), 5), "internet", gtp.PDPTypeIPv4)
	for w.now.Before(start.Add(10 * time.Minute)) {
		for _, d := range w.tick(time.Second) {
			if d.Payload[1] == byte(gtp.TypeEchoRequest) && Socket(d.Socket) != SocketUser {
				w.reply(d, &gtp.EchoResponse{Recovery: 1})
			}
		}
	}
	if got := w.list(); len(got) != 1 || got[0].IMSI != testIMSI(3) || w.e.stats.Ended[EndPath] != 1 {
		t.Errorf("left are %+v, ended %v", got, w.e.stats.Ended)
	}
}

// TestPathReleased: without a time of holding, contexts go when the path does.
func TestPathReleased(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.EchoInterval, s.PathHold = time.Minute, 0 })
	w.open(1, "internet", gtp.PDPTypeIPv4)
	w.tick(74 * time.Second)
	if w.e.contexts.used() != 1 {
		t.Error("released early")
	}
	w.tick(time.Second)
	if w.e.stats.Ended[EndPath] != 1 {
		t.Errorf("ended %v", w.e.stats.Ended)
	}
}

// TestPathReleasedOfOrdered: a session that an operator has ordered to go, and that waits for
// its turn, goes even if its path goes and comes back before.
func TestPathReleasedOfOrdered(t *testing.T) {
	w := newWorld(t, nil)
	control := w.open(1, "internet", gtp.PDPTypeIPv4).TEIDControl.Value
	session := w.e.byControl[control]
	for w.e.deletes.Allow(deleteLimit, w.now) {
	}
	w.e.Delete(Selection{}, w.now, &w.out)
	user := w.e.contexts.at(w.e.sessions.at(session).first).user
	w.e.releasePath(user, w.e.peers.at(user), pathUser, w.e.begin(w.now, &w.out))
	w.ask(pathControl, gtp.Header{TEID: control}, w.updateRequest(0x7000), &gtp.UpdateResponse{})
	w.tick(2 * deleteAgain)
	if !w.e.sessions.at(session).marked(markDeleting) {
		t.Error("the order is forgotten")
	}
}

// TestPathReleasedAgain: what comes on a path that was released, and stays silent, is held as long as what was
// there before.
func TestPathReleasedAgain(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.EchoInterval, s.PathHold = time.Minute, 4*time.Minute })
	w.open(1, "internet", gtp.PDPTypeIPv4)
	w.echoTimes(pathControl, 315*time.Second) // down at 75 s
	since := w.e.peers.at(1).paths[pathControl].changed
	if w.e.stats.Ended[EndPath] != 1 {
		t.Fatalf("ended %v", w.e.stats.Ended)
	}
	w.open(2, "internet", gtp.PDPTypeIPv4)
	w.echoTimes(pathControl, 4*time.Minute)
	if w.e.contexts.used() != 1 {
		t.Error("released before the hold ended")
	}
	w.echoTimes(pathControl, 2*time.Minute)
	if w.empty(); w.e.stats.Ended[EndPath] != 2 || w.e.peers.at(1).paths[pathControl].changed != since {
		t.Errorf("ended %v", w.e.stats.Ended)
	}
}
