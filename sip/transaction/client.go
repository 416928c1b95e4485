// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// completedHold is Timer D, how long refusals of an INVITE are acknowledged again (RFC 3261 section
// 17.1.1.2).
const completedHold = 32 * time.Second

// Why no transaction begins.
var (
	ErrFull   = errors.New("there are too many transactions")
	ErrBranch = errors.New("the request has no branch of its own")
)

type state uint8

const (
	calling    state = iota // of a client: Calling and Trying
	proceeding              // of a server, Trying as well
	completed
	accepted
	confirmed
	terminated
)

// Client is the transaction of a request that was sent.
type Client struct {
	Request *message.Message
	To      Target
	// User is whatever the user of the layer wants to find there.
	User any

	layer  *Layer
	key    string
	number uint64
	state  state
	first  time.Duration // before the first repetition
	times  times
	ack    *message.Message // of a refused INVITE
	cancel *Target          // where CANCEL goes, if it is to be cancelled
	heard  int              // the highest status of a provisional response
}

// Start sends a request, whose topmost Via has a branch of its own. First, if it is not 0, is the
// time before it is repeated for the first time, in place of a longer T1: RFC 3261 section 17.1.1.2
// allows that in closed networks alone.
func (l *Layer) Start(request *message.Message, to Target, first time.Duration, now time.Time, out *Output) (*Client, error) {
	v, ok := request.Via()
	key := clientKey(request)
	switch {
	case !ok || len(v.Branch()) <= len(message.Cookie) || l.clients[key] != nil:
		return nil, ErrBranch
	case len(l.clients) >= l.settings.Clients:
		l.stats.Unsent++
		return nil, ErrFull
	}
	l.started++
	c := &Client{Request: request, To: to, layer: l, key: key, number: l.started, first: l.settings.T1}
	if first > 0 {
		c.first = min(first, c.first)
	}
	c.times.timer.Fire = c.due
	l.clients[key] = c
	c.send(now, out)
	return c, nil
}

// send sends the request for the first time.
func (c *Client) send(now time.Time, out *Output) {
	t := &c.times
	t.repeat, t.limit, t.interval = time.Time{}, now.Add(64*c.layer.settings.T1), c.first // Timers B and F
	if !c.To.Reliable() {
		t.repeat = now.Add(t.interval) // Timers A and E
	}
	c.layer.schedule(t)
	out.send(c.To, c.Request)
}

// Reroute sends a request that no one has answered to another target, such as one by UDP when there
// is no TCP (RFC 3261 section 18.1.1). The branch stays, so that who did get it takes it for a
// repetition.
func (c *Client) Reroute(to Target, now time.Time, out *Output) {
	v, ok := c.Request.Via()
	if c.state != calling || !ok {
		return
	}
	v.Transport = to.Transport
	c.Request, c.To = c.Request.Clone(), to // what was put out already stays as it is
	c.Request.Set("Via", v.String())
	c.send(now, out)
}

// Cancel asks that an INVITE be given up, by its own target or by another: at once, or when a
// provisional response has shown that someone knows it (RFC 3261 section 9.1). From then on it is
// waited for no longer than 64 T1, since some do not know CANCEL.
func (c *Client) Cancel(to Target, now time.Time, out *Output) {
	if c.Request.Method != "INVITE" || !c.Waiting() || c.cancel != nil {
		return
	}
	c.cancel = &to
	if c.Provisional() {
		c.sendCancel(now, out)
	}
}

func (c *Client) sendCancel(now time.Time, out *Output) {
	c.times.limit = now.Add(64 * c.layer.settings.T1)
	c.layer.schedule(&c.times)
	_, _ = c.layer.Start(Cancel(c.Request), *c.cancel, c.first, now, out) // without room the INVITE ends by its time
}

// Done reports whether the transaction has ended.
func (c *Client) Done() bool { return c.state == terminated }

// Waiting reports whether there is no final response yet.
func (c *Client) Waiting() bool { return c.state == calling || c.state == proceeding }

// Unanswered reports whether no response has come, and one may still come.
func (c *Client) Unanswered() bool { return c.state == calling }

// Provisional reports whether a provisional response has come and no final one: an INVITE can
// be cancelled then (RFC 3261 section 9.1).
func (c *Client) Provisional() bool { return c.state == proceeding }

// Fail ends the transaction of a request that could not be sent (RFC 3261 section 17.1.4), or whose
// path is gone. Nothing more is heard of it.
func (c *Client) Fail(out *Output) {
	open := c.Waiting()
	c.end()
	if open {
		out.event(Event{Kind: Unreachable, Client: c, Message: c.Request})
	}
}

// Forget ends a transaction that its user has no more use for: it has no User any more, and
// nothing is told of it.
func (c *Client) Forget() {
	c.User = nil
	c.end()
}

// Matching returns the transactions that match, the oldest first.
func (l *Layer) Matching(match func(*Client) bool) (all []*Client) {
	for _, c := range l.clients {
		if match(c) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *Client) int { return cmp.Compare(a.number, b.number) })
	return all
}

// FailAll ends the transactions that match, such as those of an address that is gone, the oldest
// first.
func (l *Layer) FailAll(match func(*Client) bool, out *Output) {
	for _, c := range l.Matching(match) {
		c.Fail(out)
	}
}

// response finds the transaction of a response (section 17.1.3).
func (l *Layer) response(m *message.Message, from Target, now time.Time, out *Output) {
	c := l.clients[clientKey(m)]
	if c == nil {
		l.stats.Strays++
		out.event(Event{Kind: Stray, Message: m, From: from})
		return
	}
	invite := c.Request.Method == "INVITE"
	switch {
	case c.state == completed:
		l.stats.Absorbed++
		if c.ack != nil && m.Status >= 300 {
			out.send(c.To, c.ack)
		}
		return
	case c.state == accepted && m.Status/100 != 2: // of another branch behind a proxy, and too late
		l.stats.Absorbed++
		return
	case m.Status < 200:
		c.heard = max(c.heard, m.Status)
		c.provisional(invite, now, out)
	case invite && m.Status < 300:
		c.accept(now)
	default:
		c.complete(m, invite, now, out)
	}
	out.event(Event{Kind: Response, Message: m, From: from, Client: c})
}

// provisional stops repetitions of an INVITE, which then has all the time that its user gives it,
// and slows down those of other requests.
func (c *Client) provisional(invite bool, now time.Time, out *Output) {
	first, t := c.state == calling, &c.times
	c.state = proceeding
	switch {
	case invite && c.cancel == nil:
		t.repeat, t.limit = time.Time{}, time.Time{}
	case invite && first:
		t.repeat = time.Time{}
		c.sendCancel(now, out)
	case first && !t.repeat.IsZero():
		t.interval = c.layer.settings.T2
		t.repeat = now.Add(t.interval)
	}
	c.layer.schedule(t)
}

// accept keeps the transaction for further 2xx, which the user acknowledges (RFC 6026 section
// 7.2: Timer M).
func (c *Client) accept(now time.Time) {
	if c.state == accepted {
		return
	}
	c.keep(accepted, 64*c.layer.settings.T1, now)
}

// complete acknowledges the refusal of an INVITE, and absorbs repetitions: Timers D and K.
func (c *Client) complete(m *message.Message, invite bool, now time.Time, out *Output) {
	hold := c.layer.settings.T4
	if invite {
		hold = completedHold
		c.ack = Acknowledge(c.Request, m)
		out.send(c.To, c.ack)
	}
	if c.To.Reliable() {
		c.end()
		return
	}
	c.keep(completed, hold, now)
}

// keep keeps an answered transaction for a time.
func (c *Client) keep(s state, hold time.Duration, now time.Time) {
	c.state = s
	c.times.repeat, c.times.limit = time.Time{}, now.Add(hold)
	c.layer.schedule(&c.times)
}

// due is what the timer of a client does.
func (c *Client) due(now time.Time, out *Output) {
	t := &c.times
	if t.over(now) {
		open := c.Waiting()
		c.end()
		if open {
			c.layer.stats.Timeouts++
			out.event(Event{Kind: Timeout, Client: c, Message: c.Request})
		}
		return
	}
	c.layer.stats.Repeated++
	out.send(c.To, c.Request)
	if c.Request.Method == "INVITE" {
		t.again(now, 0)
	} else {
		t.again(now, c.layer.settings.T2)
	}
	c.layer.schedule(t)
}

func (c *Client) end() {
	if c.state == terminated {
		return
	}
	c.state = terminated
	c.layer.StopTimer(&c.times.timer)
	delete(c.layer.clients, c.key)
}
