// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// tryingAfter is when an INVITE without a response gets 100 (RFC 3261 section 17.2.1).
const tryingAfter = 200 * time.Millisecond

// sparedRepeats is how often a refusal is repeated to a sender who is spared: after 0.5, 1.5 and 3.5 s.
const sparedRepeats = 3

// Server is the transaction of a request that has come.
type Server struct {
	Request *message.Message
	From    Target
	// User is whatever the user of the layer wants to find there.
	User any

	layer   *Layer
	key     string
	source  netip.Prefix
	state   state
	times   times
	last    *message.Message // the last response
	spared  bool
	repeats int // of a refusal, by Timer G
}

// Spare bounds what goes to a sender who has proved nothing, for whoever forged the source of an INVITE would have
// its refusal sent eleven times to somebody else, who never acknowledges it (RFC 3261 section 17.2.1).
func (s *Server) Spare() {
	if !s.spared && s.state != terminated {
		s.spared = true
		s.layer.spared++
	}
}

// Spared reports whether the sender is spared.
func (s *Server) Spared() bool { return s.spared }

// request finds the transaction of a request, or begins one (section 17.2.3).
func (l *Layer) request(m *message.Message, from Target, now time.Time, out *Output) {
	method := m.Method
	if method == "ACK" {
		method = "INVITE"
	}
	key := serverKey(m, method)
	s := l.servers[key]
	switch {
	case s != nil && m.Method == "ACK":
		s.acknowledged(m, from, now, out)
	case s != nil:
		l.stats.Absorbed++
		if s.state == proceeding || s.state == completed {
			s.Repeat(out)
		}
	case m.Method == "ACK":
		out.event(Event{Kind: ACK, Message: m, From: from})
	default:
		l.begin(m, key, from, now, out)
	}
}

// begin makes a transaction, if there is room.
func (l *Layer) begin(m *message.Message, key string, from Target, now time.Time, out *Output) {
	source := area(from.Remote.Addr())
	switch {
	case len(l.servers) >= l.settings.Servers, len(l.servers) >= AllButQuarter(l.settings.Servers) && l.Reserved != nil && !l.Reserved(m):
		l.stats.Overloads++
	case l.sources[source] >= l.settings.PerSource:
		l.stats.SourceOverloads++
	default:
		s := &Server{Request: m, From: from, layer: l, key: key, source: source, state: proceeding}
		s.times.timer.Fire = s.due
		if m.Method == "INVITE" {
			s.times.repeat = now.Add(tryingAfter)
		} else {
			s.times.limit = now.Add(64 * l.settings.T1) // then the client has given up
		}
		l.servers[key] = s
		l.sources[source]++
		l.schedule(&s.times)
		out.event(Event{Kind: Request, Message: m, From: from, Server: s})
		return
	}
	out.event(Event{Kind: Overload, Message: m, From: from})
}

// AllButQuarter is what of a bound is not reserved.
func AllButQuarter(n int) int { return n - n/4 }

// Cancelled is the transaction that a CANCEL is about (section 9.2); nil: there is none.
func (l *Layer) Cancelled(cancel *message.Message) *Server {
	return l.servers[serverKey(cancel, "INVITE")]
}

// Answered reports whether a final response was sent.
func (s *Server) Answered() bool { return s.state != proceeding }

// Respond sends a response. Behind a final one, nothing more is sent but further 2xx to INVITE
// (RFC 6026 section 7.1).
func (s *Server) Respond(m *message.Message, now time.Time, out *Output) {
	invite := s.Request.Method == "INVITE"
	if again := s.state == accepted && m.Status/100 == 2; s.state != proceeding && !again {
		return
	}
	out.send(s.From, m)
	s.last = m
	t, of := &s.times, &s.layer.settings
	switch {
	case m.Status < 200:
		t.repeat = time.Time{}
	case invite && m.Status < 300:
		if s.state == proceeding {
			s.state = accepted
			t.repeat, t.limit = time.Time{}, now.Add(64*of.T1) // Timer L
		}
	case invite:
		s.state = completed
		t.repeat, t.interval, t.limit = time.Time{}, of.T1, now.Add(64*of.T1) // Timer H
		if !s.From.Reliable() {
			t.repeat = now.Add(of.T1) // Timer G
		}
	case s.From.Reliable():
		s.end()
		return
	default:
		s.state = completed
		t.repeat, t.limit = time.Time{}, now.Add(64*of.T1) // Timer J
	}
	s.layer.schedule(t)
}

// acknowledged takes the ACK of a refusal. One for a 2xx that has the branch of the INVITE, as in
// RFC 2543, is the user's.
func (s *Server) acknowledged(m *message.Message, from Target, now time.Time, out *Output) {
	switch s.state {
	case accepted:
		out.event(Event{Kind: ACK, Message: m, From: from, Server: s})
	case completed:
		if s.From.Reliable() {
			s.end()
			return
		}
		s.state = confirmed
		s.times.repeat, s.times.limit = time.Time{}, now.Add(s.layer.settings.T4) // Timer I
		s.layer.schedule(&s.times)
	default:
		s.layer.stats.Absorbed++
	}
}

// due is what the timer of a server does.
func (s *Server) due(now time.Time, out *Output) {
	t := &s.times
	switch {
	case t.over(now):
		lost := s.state == proceeding || s.state == completed && s.Request.Method == "INVITE"
		s.end()
		if lost {
			s.layer.stats.Timeouts++
			out.event(Event{Kind: Timeout, Server: s, Message: s.Request})
		}
	case s.state == proceeding: // no response to INVITE yet
		s.Respond(message.Reply(s.Request, 100, "Trying", ""), now, out)
	default:
		s.layer.stats.Repeated++
		s.Repeat(out)
		t.again(now, s.layer.settings.T2)
		if s.repeats++; s.spared && s.repeats >= sparedRepeats {
			t.repeat = time.Time{}
		}
		s.layer.schedule(t)
	}
}

// Repeat sends the last response again: a 2xx to INVITE until its ACK comes (RFC 3261 section
// 13.3.1.4), or a reliable provisional one until its PRACK does (RFC 3262 section 3).
func (s *Server) Repeat(out *Output) {
	if s.last != nil {
		out.send(s.From, s.last)
	}
}

// MoveServers has responses leave by another address of this host if theirs is gone: where they come
// from is not looked at, and where they go the request has said.
func (l *Layer) MoveServers(gone func(local netip.AddrPort) bool, to netip.AddrPort) {
	for _, s := range l.servers {
		if gone(s.From.Local) {
			s.From.Local = to
		}
	}
}

// End ends the transaction of a request that will not be answered, such as one that was passed on
// without state.
func (s *Server) End() { s.end() }

func (s *Server) end() {
	if s.state == terminated {
		return
	}
	s.state = terminated
	s.layer.StopTimer(&s.times.timer)
	delete(s.layer.servers, s.key)
	if s.spared {
		s.layer.spared--
	}
	if s.layer.sources[s.source]--; s.layer.sources[s.source] == 0 {
		delete(s.layer.sources, s.source)
	}
}
