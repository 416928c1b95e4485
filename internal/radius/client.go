// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package radius

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"layeh.com/radius"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/timerqueue"
)

// Client asks servers. Make one with [NewClient]. It is used by one caller at a time.
type Client struct {
	settings Settings
	servers  []*server
	leaving  []*server // no longer of the settings; requests wait for their answers
	random   *rand.ChaCha8
	times    timerqueue.Queue[*pending]
	turn     uint64 // of the request that was sent last
	stats    Stats
}

// Stats are counters of a client; they only grow.
type Stats struct {
	// Requests are those that were to be sent, Refused those that found no identifier free, and
	// Unanswered those that no server answered.
	Requests, Refused, Unanswered uint64
	Dropped                       [NumReasons]uint64
}

// Output is what calls of a client produce.
type Output struct {
	packet.Batch
	Answers []Answer
	Events  []Event
}

// Reset empties it and keeps its memory.
func (o *Output) Reset() {
	o.Batch.Reset()
	clear(o.Answers)
	o.Answers, o.Events = o.Answers[:0], o.Events[:0]
}

// Answer is what became of a request.
type Answer struct {
	Ticket     uint64 // of its sender
	Code       Code   // 0: nobody answered
	Attributes Attributes
}

// Event is that a server does not answer any more, or does again.
type Event struct {
	Server netip.AddrPort
	Dead   bool
}

// pending is a request that waits for its answer.
type pending struct {
	ticket          uint64
	request         *Request
	server          *server
	secret          []byte // of the server, when it was asked
	slot            int
	turn            uint64
	wire            []byte
	tried           []*server
	sent            int  // times, to this server
	held            bool // it is in the server's queue, and not sent yet
	since           time.Time
	wait            time.Duration
	timerqueue.Node // when it is looked at again
}

// NewClient makes a client. random must be a cryptographic source: authenticators come from it.
func NewClient(s Settings, random io.Reader) (*Client, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	var seed [32]byte
	if _, err := io.ReadFull(random, seed[:]); err != nil {
		return nil, fmt.Errorf("no random seed for RADIUS: %w", err)
	}
	c := &Client{settings: s, random: rand.NewChaCha8(seed)}
	c.setServers(s.Servers, time.Time{})
	return c, nil
}

// Errors of [Client.Send].
var (
	// ErrFull is that as many requests wait as there are identifiers.
	ErrFull = errors.New("too many requests wait for an answer of RADIUS servers")
	// ErrNoServer is that there is none.
	ErrNoServer = errors.New("there is no RADIUS server")
)

// Send sends a request. An [Answer] with its ticket follows, whatever happens, unless there is an
// error.
func (c *Client) Send(ticket uint64, r *Request, now time.Time, out *Output) error {
	if len(c.servers) == 0 {
		return ErrNoServer
	}
	c.stats.Requests++
	p := &pending{ticket: ticket, request: r}
	switch {
	case c.next(p, now, out) || c.anyway(p, now, out):
	case slices.ContainsFunc(c.servers, func(s *server) bool { return !s.dead }):
		c.stats.Refused++
		return ErrFull
	default: // as many as may be try the dead ones
		c.unanswered(p, out)
	}
	return nil
}

// next sends a request to the first server that lives and has not been asked, or has it wait for room there; false: there
// is none.
func (c *Client) next(p *pending, now time.Time, out *Output) bool {
	for _, s := range c.servers {
		if slices.Contains(p.tried, s) || s.count == 0 || !s.mayTry(now, c.settings.DeadTime) {
			continue
		}
		if !s.dead && s.full() {
			if c.hold(p, s, now) {
				return true
			}
		} else if c.begin(p, s, now, out) {
			return true
		}
	}
	return false
}

// ask sends a request on, or answers that nobody has.
func (c *Client) ask(p *pending, now time.Time, out *Output) {
	if !c.next(p, now, out) {
		c.unanswered(p, out)
	}
}

func (c *Client) unanswered(p *pending, out *Output) {
	c.stats.Unanswered++
	out.Answers = append(out.Answers, Answer{Ticket: p.ticket})
}

// anyway sends a request to the dead server that was asked least recently: where none lives, any may be back. As many try
// one as a server is asked at first when it is: the rest would be a burst for one that has just started. Where these have
// been sent, and wait in vain, one more may from time to time: it shall not take until they are given up to find it.
func (c *Client) anyway(p *pending, now time.Time, out *Output) bool {
	var found *server
	for _, s := range c.servers {
		if s.dead && s.count > 0 && (s.waiting() < firstWindow || c.quiet(s, now)) && (found == nil || s.turn < found.turn) {
			found = s
		}
	}
	return found != nil && c.begin(p, found, now, out)
}

// quiet reports whether a server has been sent no request for a while but again.
func (c *Client) quiet(s *server, now time.Time) bool {
	return now.Sub(s.asked) >= c.settings.Timeout/8
}

// begin sends a request to a server for the first time.
func (c *Client) begin(p *pending, s *server, now time.Time, out *Output) bool {
	slot, ok := s.take()
	if !ok {
		return false
	}
	var authenticator [16]byte
	_, _ = c.random.Read(authenticator[:])
	wire, err := p.request.encode(byte(slot%identifiers), authenticator, s.Secret, now)
	if err != nil {
		s.give(slot, false)
		return false
	}
	p.server, p.secret, p.slot, p.wire, p.sent, p.since, p.wait = s, s.Secret, slot, wire, 0, now, c.settings.Timeout
	p.tried = append(p.tried, s)
	s.slots[slot].waiting = p
	c.turn++
	p.turn, s.turn, s.asked = c.turn, c.turn, now
	s.stats.Sent++
	c.transmit(p, now, out)
	return true
}

// socketOf is the number of the socket of a slot: those of IPv6 come behind those of IPv4.
func (c *Client) socketOf(p *pending) int {
	n := p.slot / identifiers
	if p.server.Address.Addr().Is6() {
		n += c.settings.Sockets
	}
	return n
}

// transmit sends a request, the same octets each time (RFC 5080 section 2.2.1), and sets when it
// is looked at again: up to a tenth more or less than the wait, so that requests do not keep step.
func (c *Client) transmit(p *pending, now time.Time, out *Output) {
	p.sent++
	out.SendUDP(c.socketOf(p), p.server.Address, out.Copy(p.wire))
	jitter := time.Duration(c.random.Uint64()%uint64(p.wait/5+1)) - p.wait/10
	c.times.Set(p, now.Add(p.wait+jitter))
	p.wait *= 2
}

// Tick does what is due.
func (c *Client) Tick(now time.Time, out *Output) {
	for {
		p, due := c.times.Due(now)
		switch {
		case !due:
			return
		case p.held:
			p.held, p.tried = false, append(p.tried, p.server)
			c.ask(p, now, out)
		case p.sent < c.settings.Tries && !p.outdated():
			p.server.stats.Repeated++
			p.server.window.lost(p.since, now)
			c.transmit(p, now, out)
		default:
			c.giveUp(p, now, out)
			c.goOn(now, out)
		}
	}
}

// Next is when Tick has something to do next; zero is never.
func (c *Client) Next() time.Time { return c.times.Next() }

// giveUp gives a server up for a request, and the server itself if it has said nothing since.
func (c *Client) giveUp(p *pending, now time.Time, out *Output) {
	s := p.server
	s.stats.GivenUp++
	c.release(p, false)
	outdated := p.outdated() // which says nothing of the server
	if outdated {
		p.tried = slices.DeleteFunc(p.tried, func(one *server) bool { return one == s })
	} else if s.heard.Before(p.since) {
		if !s.dead {
			out.Events = append(out.Events, Event{s.Address, true})
		}
		if !s.dead || s.deadAt.Before(now) {
			s.deadAt = now.Add(c.settings.DeadTime)
		}
		s.dead = true
	}
	if !c.next(p, now, out) && !(outdated && c.anyway(p, now, out)) {
		c.unanswered(p, out)
	}
}

// HandleUDP takes a datagram that came by a socket.
func (c *Client) HandleUDP(socket int, from netip.AddrPort, b []byte, now time.Time, out *Output) {
	if r := c.receive(socket, from, b, now, out); r != 0 {
		c.stats.Dropped[r]++
	}
}

func (c *Client) receive(socket int, from netip.AddrPort, b []byte, now time.Time, out *Output) Reason {
	s := c.serverAt(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()))
	if s == nil {
		return Stranger
	}
	answer, err := radius.Parse(b, s.Secret)
	if err != nil {
		return Malformed
	}
	b = b[:int(b[2])<<8|int(b[3])] // what follows is padding (RFC 2865 section 3)
	at := socket%c.settings.Sockets*identifiers + int(answer.Identifier)
	p := s.slots[at].waiting
	switch {
	case p != nil:
	case s.slots[at].answered:
		return Twice
	default:
		return Late
	}
	if r := s.judge(p, b, answer.Code); r != 0 {
		return r
	}
	back := s.dead
	if back {
		s.revive(now)
		out.Events = append(out.Events, Event{s.Address, false})
	}
	s.heard = now
	s.stats.Answered++
	c.times.Stop(p)
	s.window.answered(s.underWay())
	c.release(p, true)
	out.Answers = append(out.Answers, Answer{p.ticket, answer.Code, Attributes{answer.Attributes}})
	if back { // what waits for a server behind it need not
		c.resume(c.takeQueues(), now, out)
	}
	c.goOn(now, out)
	return 0
}

// serverAt returns the server at an address, also one that leaves; nil: there is none.
func (c *Client) serverAt(a netip.AddrPort) *server {
	for _, list := range [][]*server{c.servers, c.leaving} {
		for _, s := range list {
			if s.Address == a {
				return s
			}
		}
	}
	return nil
}

// judge returns why a packet is no answer of the server's to a request.
func (s *server) judge(p *pending, b []byte, code Code) Reason {
	switch {
	case p.request.Code == AccessRequest && code != AccessAccept && code != AccessReject && code != AccessChallenge,
		p.request.Code == AccountingRequest && code != AccountingResponse:
		return Malformed
	case !radius.IsAuthenticResponse(b, p.wire, p.secret):
		return Authenticator
	}
	at, err := findSignature(b)
	switch {
	case err != nil:
		return Malformed
	case at == 0 && p.request.Code == AccessRequest && !s.AnySigned:
		return Unsigned
	case at != 0 && !signedBy(b, at, p.wire[4:headerLen], p.secret):
		return Signature
	}
	return 0
}

// Stats returns the counters.
func (c *Client) Stats() Stats { return c.stats }

// Waiting is how many requests wait for an answer, or to be sent.
func (c *Client) Waiting() int { return c.times.Len() }

// Servers tells of the servers, in their order.
func (c *Client) Servers() (list []ServerInfo) {
	for _, s := range c.servers {
		list = append(list, ServerInfo{s.Address, s.dead, s.waiting(), s.stats})
	}
	return list
}
