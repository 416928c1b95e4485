// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package radius

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// reconfigure gives the client other servers.
func (w *world) reconfigure(servers ...Server) {
	w.Helper()
	s := w.c.settings
	s.Servers = servers
	if err := w.c.Reconfigure(s, w.now, &w.out); err != nil {
		w.Fatal(err)
	}
}

// answered hands an answer over, and reports whether it is that to a request.
func (w *world) answered(ticket uint64, socket int, from netip.AddrPort, b []byte) bool {
	w.Helper()
	w.out.Reset()
	w.c.HandleUDP(socket, from, b, w.now, &w.out)
	return len(w.out.Answers) == 1 && w.out.Answers[0].Ticket == ticket && w.out.Answers[0].Code == AccessAccept
}

// TestServerGoes takes the answer of a server that has gone while a request waits for it, asks it no more,
// and has those that it does not answer go to a server that has come. Nothing is told of its silence.
func TestServerGoes(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Servers = s.Servers[:1] })
	socket, _, wire := w.send(1, accessRequest())
	w.send(2, accessRequest())
	w.reconfigure(Server{Address: second, Secret: secret2})
	if _, to, _ := w.send(3, accessRequest()); to != second {
		t.Errorf("a new request went to %v", to)
	}
	if !w.answered(1, socket, first, answerTo(wire, secret, AccessAccept, true)) {
		t.Errorf("its answer: %+v, dropped %v", w.out.Answers, w.c.stats.Dropped)
	}
	for len(w.c.leaving) > 0 {
		w.tick()
		for _, d := range w.out.UDP {
			if d.To != second {
				t.Errorf("it was asked again: %v", d.To)
			}
		}
		if len(w.out.Events)+len(w.out.Answers) != 0 {
			t.Errorf("%+v, %+v", w.out.Events, w.out.Answers)
		}
	}
	if w.answered(2, socket, first, answerTo(wire, secret, AccessAccept, true)) || w.c.stats.Dropped[Stranger] != 1 {
		t.Errorf("nothing waits for it any more: %+v, dropped %v", w.out.Answers, w.c.stats.Dropped)
	}
	if list := w.c.Servers(); len(list) != 1 || list[0].Address != second || list[0].Waiting != 2 {
		t.Errorf("servers %+v", list)
	}
}

// TestServerReturns gives one that comes back while a request waits for it no identifier twice.
func TestServerReturns(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Servers, s.Sockets = s.Servers[:1], 1 })
	_, _, wire := w.send(0, accessRequest())
	w.reconfigure(Server{Address: second, Secret: secret2})
	w.reconfigure(Server{Address: first, Secret: secret})
	w.c.servers[0].window.size = identifiers
	for ticket := uint64(1); ticket < identifiers; ticket++ {
		if _, to, b := w.send(ticket, accessRequest()); to != first || b[1] == wire[1] {
			t.Fatalf("to %v went identifier %d again", to, b[1])
		}
	}
	w.tick()
	if len(w.out.UDP) != 1 || w.out.UDP[0].To != first || len(w.c.leaving) != 0 {
		t.Errorf("it is not asked again: %+v", w.out.UDP)
	}
}

// TestSecretChanges takes an answer under the secret that a request was sent with, and sends what is not
// answered again under the new one, which need not wait for the end of a dead time.
func TestSecretChanges(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Servers = s.Servers[:1] })
	w.send(0, accessRequest())
	for len(w.out.Answers) == 0 { // it is dead
		w.tick()
	}
	socket, _, wire := w.send(1, accessRequest())
	w.send(2, accessRequest())
	w.reconfigure(Server{Address: first, Secret: secret2})
	if !w.c.servers[0].mayTry(w.now, time.Hour) {
		t.Error("it is left alone")
	}
	if !w.answered(1, socket, first, answerTo(wire, secret, AccessAccept, true)) {
		t.Errorf("under the old secret: %+v, dropped %v", w.out.Answers, w.c.stats.Dropped)
	}
	w.tick()
	if len(w.out.UDP) != 1 || len(w.out.Answers)+len(w.out.Events) != 0 {
		t.Fatalf("not sent again: %+v, %+v, %+v", w.out.UDP, w.out.Answers, w.out.Events)
	}
	again := w.out.UDP[0]
	wire = slices.Clone(again.Payload)
	if at, err := findSignature(wire); err != nil || !signedBy(wire, at, wire[4:headerLen], secret2) {
		t.Errorf("it is not under the new secret: %v", err)
	}
	if w.answered(2, again.Socket, first, answerTo(wire, secret, AccessAccept, true)) || w.c.stats.Dropped[Authenticator] != 1 {
		t.Errorf("under the old secret again: dropped %v", w.c.stats.Dropped)
	}
	if !w.answered(2, again.Socket, first, answerTo(wire, secret2, AccessAccept, true)) {
		t.Errorf("under the new secret: %+v, dropped %v", w.out.Answers, w.c.stats.Dropped)
	}
}

// TestNoServer answers what waits when the last server has gone, refuses what is to be sent, and goes on
// with a server that comes.
func TestNoServer(t *testing.T) {
	w := newWorld(t, nil)
	w.send(1, accessRequest())
	w.reconfigure()
	if err := w.c.Send(2, accessRequest(), w.now, &w.out); err != ErrNoServer || w.c.stats.Requests != 1 {
		t.Errorf("%v, %+v", err, w.c.stats)
	}
	w.tick()
	if len(w.out.UDP) != 0 || len(w.out.Answers) != 1 || w.out.Answers[0].Code != 0 || !w.c.Next().IsZero() || len(w.c.leaving) != 0 {
		t.Errorf("%+v, %+v", w.out.UDP, w.out.Answers)
	}
	w.reconfigure(Server{Address: second, Secret: secret2})
	if _, to, _ := w.send(3, accessRequest()); to != second {
		t.Errorf("asked %v", to)
	}
}

// TestTimesChange has requests repeated by the settings of now, and keeps them after settings that cannot be.
func TestTimesChange(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Servers = s.Servers[:1] })
	w.send(1, accessRequest())
	wrong := w.c.settings
	wrong.Sockets++
	if err := w.c.Reconfigure(wrong, w.now, &w.out); err != errSockets {
		t.Errorf("other ports: %v", err)
	}
	wrong = w.c.settings
	wrong.Servers = []Server{{Address: first}}
	if err := w.c.Reconfigure(wrong, w.now, &w.out); err == nil {
		t.Error("a server without a secret is taken")
	}
	s := w.c.settings
	s.Tries, s.DeadTime = 3, 2*time.Second
	if err := w.c.Reconfigure(s, w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for ; len(w.out.Answers) == 0; w.tick() {
		sent += len(w.out.UDP)
	}
	if sent != 3 {
		t.Errorf("sent %d times, want 3", sent)
	}
	s.DeadTime = time.Second
	if err := w.c.Reconfigure(s, w.now, &w.out); err != nil || w.c.servers[0].mayTry(w.now, s.DeadTime) || !w.c.servers[0].mayTry(w.now.Add(time.Second), s.DeadTime) {
		t.Errorf("it is left alone until %v, %v", w.c.servers[0].deadAt, err)
	}
}

// TestDynamicClientsChange takes requests of clients of now alone, under the secrets of now, and answers one
// that comes again as before.
func TestDynamicClientsChange(t *testing.T) {
	w := newDynamicWorld(t)
	ask := dynamicRequest(CoARequest, 1, secret, start)
	reply := w.handle(asker, ask)
	other := netip.MustParseAddrPort("192.0.2.77:4000")
	if err := w.d.SetClients([]DynamicClient{{Address: other.Addr(), Secret: secret2}}); err != nil {
		t.Fatal(err)
	}
	w.dropped("of one that has gone", asker, ask, Stranger)
	if w.handle(other, dynamicRequest(CoARequest, 2, secret2, start)) == nil {
		t.Error("one that has come has no answer")
	}
	if w.d.SetClients([]DynamicClient{{Address: other.Addr()}}) == nil {
		t.Error("a client without a secret is taken")
	}
	if err := w.d.SetClients([]DynamicClient{{Address: asker.Addr(), Secret: secret}, {Address: other.Addr(), Secret: secret}}); err != nil {
		t.Fatal(err)
	}
	applied := len(w.applied)
	if again := w.handle(asker, ask); !slices.Equal(again, reply) || len(w.applied) != applied {
		t.Errorf("again: %x, want %x; applied %d times", again, reply, len(w.applied))
	}
	w.dropped("under the secret of before", other, dynamicRequest(CoARequest, 3, secret2, start), Authenticator)
}

// TestServerComesForMany has requests that wait for room at one server go at once to another that comes first, as far as
// that is known to take them; without any server they are answered.
func TestServerComesForMany(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Servers = s.Servers[:1] })
	for ticket := range uint64(3 * firstWindow) {
		if err := w.c.Send(ticket, accessRequest(), w.now, &w.out); err != nil {
			t.Fatal(err)
		}
	}
	w.out.Reset()
	w.reconfigure(Server{Address: second, Secret: secret2}, Server{Address: first, Secret: secret})
	if n := len(w.out.UDP); n != firstWindow || w.out.UDP[0].To != second || w.queued() != firstWindow {
		t.Errorf("%d datagrams, %d requests wait for room", n, w.queued())
	}
	w.out.Reset()
	w.reconfigure()
	if n := len(w.out.Answers); n != firstWindow || len(w.out.UDP) != 0 || w.queued() != 0 {
		t.Errorf("%d answers, %d datagrams, %d requests wait for room", n, len(w.out.UDP), w.queued())
	}
}
