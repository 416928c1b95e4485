// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

var (
	start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	udp   = Target{Transport: "UDP", Local: netip.MustParseAddrPort("[2001:db8::1]:5060"), Remote: netip.MustParseAddrPort("[2001:db8::2]:5060")}
	tcp   = Target{Transport: "TCP", Local: udp.Local, Remote: udp.Remote}
)

// request makes one with a branch, which may be empty.
func request(t testing.TB, method, branch string) *message.Message {
	t.Helper()
	via := "SIP/2.0/UDP client.example.com:5070"
	if branch != "" {
		via += ";branch=" + branch
	}
	text := fmt.Sprintf("%s sip:bob@example.com SIP/2.0\r\nVia: %s\r\nVia: SIP/2.0/UDP below\r\nRoute: <sip:p;lr>, <sip:q;lr>\r\nFrom: <sip:alice@example.com>;tag=1\r\nTo: <sip:bob@example.com>\r\n"+
		"Call-ID: call\r\nCSeq: 7 %s\r\nMax-Forwards: 9\r\n\r\n", method, via, method)
	m, f := message.Parse([]byte(text))
	if f != nil {
		t.Fatal(f)
	}
	return m
}

// world is a layer with a clock, that notes what it does: seconds and what was sent or told.
type world struct {
	t     testing.TB
	layer *Layer
	now   time.Time
	out   Output
	notes []string
}

func newWorld(t testing.TB, s Settings) *world { return &world{t: t, layer: New(s), now: start} }

// note empties the output.
func (w *world) note() {
	at := w.now.Sub(start).Seconds()
	for _, s := range w.out.Sends {
		what := s.Message.Method
		if what == "" {
			what = fmt.Sprint(s.Message.Status)
		}
		w.notes = append(w.notes, fmt.Sprintf("%g %s", at, what))
	}
	for _, e := range w.out.Events {
		what := [...]string{"request", "ack", "response", "stray", "timeout", "unreachable", "overload"}[e.Kind]
		if e.Kind == Response || e.Kind == Stray {
			what += fmt.Sprint(e.Message.Status)
		}
		w.notes = append(w.notes, fmt.Sprintf("%g %s!", at, what))
	}
	w.out.Reset()
}

// until lets time pass.
func (w *world) until(seconds float64) {
	end := start.Add(time.Duration(seconds * float64(time.Second)))
	for next := w.layer.Next(); !next.IsZero() && !next.After(end); next = w.layer.Next() {
		if next.Before(w.now) {
			w.t.Fatalf("something was due at %v, before %v", next, w.now)
		}
		w.now = next
		w.layer.Tick(w.now, &w.out)
		w.note()
	}
	w.now = end
}

// told returns the notes since the last time.
func (w *world) told() string {
	w.note()
	text := strings.Join(w.notes, ", ")
	w.notes = nil
	return text
}

func (w *world) expect(name, want string) {
	w.t.Helper()
	if got := w.told(); got != want {
		w.t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
	}
}

func (w *world) start(m *message.Message, to Target) *Client {
	w.t.Helper()
	c, err := w.layer.Start(m, to, 0, w.now, &w.out)
	if err != nil {
		w.t.Fatal(err)
	}
	w.note()
	return c
}

func (w *world) handle(m *message.Message, from Target) {
	w.layer.Handle(m, from, w.now, &w.out)
	w.note()
}

// comes takes a request, for which a transaction begins.
func (w *world) comes(m *message.Message, from Target) *Server {
	w.t.Helper()
	w.layer.Handle(m, from, w.now, &w.out)
	if len(w.out.Events) != 1 || w.out.Events[0].Kind != Request {
		w.t.Fatalf("%s began %+v", m.Method, w.out.Events)
	}
	s := w.out.Events[0].Server
	w.note()
	return s
}

func (w *world) respond(s *Server, status int) {
	s.Respond(message.Reply(s.Request, status, "Reason", "tag"), w.now, &w.out)
	w.note()
}

// empty wants no transaction and no timer left.
func (w *world) empty() {
	w.t.Helper()
	if servers, clients := w.layer.Len(); servers != 0 || clients != 0 || !w.layer.Next().IsZero() || len(w.layer.sources) != 0 {
		w.t.Errorf("%d servers, %d clients, %d sources are left, next %v", servers, clients, len(w.layer.sources), w.layer.Next())
	}
}

const branch = message.Cookie + "1"
