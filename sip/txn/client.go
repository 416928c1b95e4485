// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package txn

import (
	"errors"
	"maps"
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

	layer *Layer
	key   string
	state state
	timer timer
	ack   *message.Message // of a refused INVITE
}

// Start sends a request, whose topmost Via has a branch of its own. First, if it is not 0, is the
// time before it is repeated for the first time, in place of T1.
func (l *Layer) Start(request *message.Message, to Target, first time.Duration, now time.Time, out *Output) (*Client, error) {
	v, ok := request.Via()
	key := clientKey(request)
	switch {
	case !ok || len(v.Branch()) <= len(message.Cookie) || l.clients[key] != nil:
		return nil, ErrBranch
	case len(l.clients) >= l.settings.Clients:
		return nil, ErrFull
	}
	c := &Client{Request: request, To: to, layer: l, key: key}
	c.timer = timer{of: c, index: -1, limit: now.Add(64 * l.settings.T1), interval: l.settings.T1} // Timers B and F
	if first > 0 {
		c.timer.interval = first
	}
	if !to.Reliable() {
		c.timer.repeat = now.Add(c.timer.interval) // Timers A and E
	}
	l.clients[key] = c
	l.schedule(&c.timer)
	out.send(to, request)
	return c, nil
}

// Done reports whether the transaction has ended.
func (c *Client) Done() bool { return c.state == terminated }

// Provisional reports whether a provisional response has come and no final one: an INVITE can
// be cancelled then (RFC 3261 section 9.1).
func (c *Client) Provisional() bool { return c.state == proceeding }

// Fail ends the transaction of a request that could not be sent (RFC 3261 section 17.1.4), or whose
// path is gone. Nothing more is heard of it.
func (c *Client) Fail(out *Output) {
	open := c.state == calling || c.state == proceeding
	c.end()
	if open {
		out.event(Event{Kind: Unreachable, Client: c, Message: c.Request})
	}
}

// FailAll ends the transactions that match, such as those of an address that is gone.
func (l *Layer) FailAll(match func(*Client) bool, out *Output) {
	for _, key := range slices.Sorted(maps.Keys(l.clients)) {
		if c := l.clients[key]; match(c) {
			c.Fail(out)
		}
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
		c.provisional(invite, now)
	case invite && m.Status < 300:
		c.accept(now)
	default:
		c.complete(m, invite, now, out)
	}
	out.event(Event{Kind: Response, Message: m, From: from, Client: c})
}

// provisional stops repetitions of an INVITE, which then has all the time that its user gives it,
// and slows down those of other requests.
func (c *Client) provisional(invite bool, now time.Time) {
	first := c.state == calling
	c.state = proceeding
	if invite {
		c.timer.repeat, c.timer.limit = time.Time{}, time.Time{}
	} else if first && !c.timer.repeat.IsZero() {
		c.timer.interval = c.layer.settings.T2
		c.timer.repeat = now.Add(c.timer.interval)
	}
	c.layer.schedule(&c.timer)
}

// accept keeps the transaction for further 2xx, which the user acknowledges (RFC 6026 section
// 7.2: Timer M).
func (c *Client) accept(now time.Time) {
	if c.state == accepted {
		return
	}
	c.state = accepted
	c.timer.repeat, c.timer.limit = time.Time{}, now.Add(64*c.layer.settings.T1)
	c.layer.schedule(&c.timer)
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
	c.state = completed
	c.timer.repeat, c.timer.limit = time.Time{}, now.Add(hold)
	c.layer.schedule(&c.timer)
}

// due implements the timers of a client.
func (c *Client) due(now time.Time, out *Output) {
	t := &c.timer
	if !t.limit.IsZero() && !t.limit.After(now) {
		open := c.state == calling || c.state == proceeding
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
}

func (c *Client) end() {
	c.state = terminated
	c.timer.repeat, c.timer.limit = time.Time{}, time.Time{}
	c.layer.schedule(&c.timer)
	delete(c.layer.clients, c.key)
}
