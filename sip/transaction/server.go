// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"time"

	"github.com/emiago/sipgo/sip"
)

// Server is a server transaction.
type Server struct {
	// Request is what came, its top Via as section 18.2.1 and RFC 3581 complete it.
	Request *sip.Request
	// Hop is by where responses go.
	Hop Hop

	timer    Timer
	key      serverKey
	state    state
	last     []byte // the response that repeats of the request get
	interval time.Duration
	repeatAt time.Time // timer G; before any response that of 100
	endAt    time.Time // timers H, I, J and L
}

type serverKey struct {
	branch, sentBy string
	method         sip.RequestMethod
}

// Verdict is what a request is to the layer.
type Verdict uint8

// Verdicts.
const (
	// Started: the request starts a transaction.
	Started Verdict = iota
	// Absorbed: it repeats one, or acknowledges a response that is no 2xx.
	Absorbed
	// Ack: it is an ACK of a 2xx, which belongs to a dialog and to no transaction.
	Ack
	// Refused: the table is full.
	Refused
)

// Waiting reports whether the request still waits for its final response.
func (s *Server) Waiting() bool { return s.state <= proceeding }

func (s *Server) invite() bool { return s.Request.Method == sip.INVITE }

// HandleRequest takes a request that came by a hop. It completes its top Via, and makes a
// transaction of it unless there is one.
func (l *Layer) HandleRequest(req *sip.Request, hop Hop, now time.Time, out *Output) (*Server, Verdict) {
	key := keyOf(req)
	if s := l.servers[key]; s != nil {
		return s, l.again(s, req, now, out)
	}
	if req.Method == sip.ACK {
		return nil, Ack
	}
	if len(l.servers) >= l.set.Max {
		l.stats.RefusedServers++
		return nil, Refused
	}
	s := &Server{Request: req, Hop: complete(req, hop), key: key}
	s.timer.Fire = func(now time.Time, out *Output) { l.expireServer(s, now, out) }
	l.servers[key] = s
	if s.invite() {
		s.repeatAt = now.Add(tryingAfter)
		l.planServer(s)
	}
	return s, Started
}

// again takes a request that belongs to a transaction.
func (l *Layer) again(s *Server, req *sip.Request, now time.Time, out *Output) Verdict {
	if req.Method == sip.ACK {
		switch s.state {
		case accepted:
			return Ack // RFC 6026 section 7.1
		case completed:
			s.state, s.repeatAt, s.endAt = confirmed, time.Time{}, now.Add(l.set.T4) // timer I
			l.finish(s)
		}
		return Absorbed
	}
	l.stats.AbsorbedRequests++
	if s.last != nil && s.state != accepted && s.state != confirmed {
		out.Send(s.Hop, s.last)
	}
	return Absorbed
}

// finish keeps a transaction for its last timer, which by reliable transports is none.
func (l *Layer) finish(s *Server) {
	if s.Hop.Transport.Reliable() {
		l.end(s)
		return
	}
	l.planServer(s)
}

// Respond sends a response. Repeats of a 2xx of an INVITE are its owner's, by Repeat.
func (l *Layer) Respond(s *Server, res *sip.Response, now time.Time, out *Output) {
	if !s.Waiting() {
		return
	}
	s.last = []byte(res.String())
	out.Send(s.Hop, s.last)
	s.repeatAt = time.Time{}
	switch {
	case res.StatusCode < 200:
		s.state = proceeding
	case !s.invite():
		s.state, s.endAt = completed, now.Add(l.Lifetime()) // timer J
		l.finish(s)
		return
	case res.StatusCode < 300:
		s.state, s.endAt = accepted, now.Add(l.Lifetime()) // timer L
	default:
		s.state, s.endAt = completed, now.Add(l.Lifetime()) // timer H
		if !s.Hop.Transport.Reliable() {
			s.interval, s.repeatAt = l.set.T1, now.Add(l.set.T1) // timer G
		}
	}
	l.planServer(s)
}

// Repeat sends the last response again.
func (l *Layer) Repeat(s *Server, out *Output) {
	if s.last != nil {
		out.Send(s.Hop, s.last)
	}
}

// Cancelled returns the transaction that a CANCEL is meant for, nil if there is none.
func (l *Layer) Cancelled(cancel *sip.Request) *Server {
	key := keyOf(cancel)
	key.method = sip.INVITE
	return l.servers[key]
}

func (l *Layer) planServer(s *Server) { l.SetTimer(&s.timer, earlier(s.repeatAt, s.endAt)) }

func (l *Layer) end(s *Server) {
	s.state = terminated
	l.StopTimer(&s.timer)
	delete(l.servers, s.key)
}

// expireServer is a server's timer.
func (l *Layer) expireServer(s *Server, now time.Time, out *Output) {
	switch {
	case !s.endAt.IsZero() && !s.endAt.After(now):
		l.end(s)
	case s.state == calling:
		l.Respond(s, Response(s.Request, sip.StatusTrying, "Trying", ""), now, out)
	default:
		out.Send(s.Hop, s.last)
		s.interval = min(2*s.interval, l.set.T2)
		s.repeatAt = now.Add(s.interval)
		l.planServer(s)
	}
}
