// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"time"

	"github.com/emiago/sipgo/sip"
)

// Handler takes what becomes of a request: each response that is new to its transaction, 2xx
// of an INVITE whenever they come, or the error that ended it.
type Handler func(res *sip.Response, err error, now time.Time, out *Output)

type state uint8

const (
	calling state = iota // of requests that are no INVITE: trying
	proceeding
	completed
	accepted  // RFC 6026
	confirmed // of servers
	terminated
)

// Client is a client transaction.
type Client struct {
	// Request is what was sent; its owner does not change it any more.
	Request *sip.Request
	// Hop is where it went.
	Hop Hop

	timer    Timer
	number   uint64
	key      clientKey
	state    state
	raw      []byte
	handle   Handler
	began    time.Time
	repeats  int           // of FirstRepeats, until now
	interval time.Duration // of the next repeat after those
	repeatAt time.Time
	endAt    time.Time

	cancelled bool // CANCEL was sent, or will be after the first provisional response
	cancelHop Hop
}

type clientKey struct {
	branch string
	method sip.RequestMethod
}

// Waiting reports whether the request still waits for its final response.
func (c *Client) Waiting() bool { return c.state <= proceeding }

// Answered reports whether any response has come.
func (c *Client) Answered() bool { return c.state != calling }

// Since is when the request was first sent.
func (c *Client) Since() time.Time { return c.began }

func (c *Client) invite() bool { return c.Request.Method == sip.INVITE }

// Send sends a request, whose top Via has a branch of its own, and has handle told what
// becomes of it.
func (l *Layer) Send(req *sip.Request, hop Hop, handle Handler, now time.Time, out *Output) (*Client, error) {
	key := clientKey{Branch(req), req.Method}
	if l.clients[key] != nil || len(l.clients) >= l.set.Max {
		l.stats.RefusedClients++
		return nil, ErrBusy
	}
	l.started++
	c := &Client{Request: req, Hop: hop, number: l.started, key: key, handle: handle, raw: []byte(req.String())}
	c.timer.Fire = func(now time.Time, out *Output) { l.expireClient(c, now, out) }
	l.clients[key] = c
	l.stats.Requests++
	l.begin(c, now, out)
	return c, nil
}

// begin sends the request for the first time and sets timers A and B, or E and F.
func (l *Layer) begin(c *Client, now time.Time, out *Output) {
	out.Send(c.Hop, c.raw)
	c.began, c.endAt, c.repeatAt = now, now.Add(l.Lifetime()), time.Time{}
	c.interval, c.repeats = l.set.T1, 0
	if !c.Hop.Transport.Reliable() {
		l.planRepeat(c, now)
	}
	l.plan(c)
}

// planRepeat sets the time of the next repeat: timers A and E.
func (l *Layer) planRepeat(c *Client, now time.Time) {
	if c.repeats < len(l.set.FirstRepeats) && l.set.FirstRepeats[c.repeats] < l.set.T1 {
		c.repeatAt = c.began.Add(l.set.FirstRepeats[c.repeats])
		c.repeats++
		return
	}
	if c.repeatAt.IsZero() || c.repeatAt.Before(c.began.Add(l.set.T1)) {
		c.repeatAt = c.began.Add(l.set.T1) // whatever was repeated before
		return
	}
	c.interval *= 2
	if !c.invite() {
		c.interval = min(c.interval, l.set.T2)
	}
	c.repeatAt = now.Add(c.interval)
}

func (l *Layer) plan(c *Client) { l.SetTimer(&c.timer, earlier(c.repeatAt, c.endAt)) }

// Reroute sends a request that no one has answered by another hop, as a repeat: the branch
// stays, so that one who did get it takes it for one.
func (l *Layer) Reroute(c *Client, hop Hop, now time.Time, out *Output) {
	if c.state != calling {
		return
	}
	c.Hop = hop
	c.Request.Via().Transport = hop.Transport.String()
	c.raw = []byte(c.Request.String())
	l.begin(c, now, out)
}

// Cancel asks that a request be given up, by the same hop or another. It is sent when a
// provisional response has shown that there is one who knows the request (section 9.1).
func (l *Layer) Cancel(c *Client, hop Hop, now time.Time, out *Output) {
	if !c.invite() || !c.Waiting() || c.cancelled {
		return
	}
	c.cancelled, c.cancelHop = true, hop
	if c.state == proceeding {
		l.sendCancel(c, now, out)
	}
}

// Cancelled reports whether Cancel was called.
func (c *Client) Cancelled() bool { return c.cancelled }

func (l *Layer) sendCancel(c *Client, now time.Time, out *Output) {
	ignore := func(*sip.Response, error, time.Time, *Output) {}
	if _, err := l.Send(CancelOf(c.Request), c.cancelHop, ignore, now, out); err != nil {
		return
	}
	c.endAt = now.Add(l.Lifetime()) // who does not know CANCEL answers no 487
	l.plan(c)
}

// Fail ends a transaction with an error that its handler is told.
func (l *Layer) Fail(c *Client, err error, now time.Time, out *Output) {
	waited := c.Waiting()
	l.Forget(c)
	if waited {
		c.handle(nil, err, now, out)
	}
}

// Forget ends a transaction that its owner has no more use for; its handler is told nothing.
func (l *Layer) Forget(c *Client) {
	c.state = terminated
	l.StopTimer(&c.timer)
	if l.clients[c.key] == c {
		delete(l.clients, c.key)
	}
}

// expireClient is a client's timer.
func (l *Layer) expireClient(c *Client, now time.Time, out *Output) {
	if !c.endAt.IsZero() && !c.endAt.After(now) {
		if c.Waiting() {
			l.stats.Timeouts++
		}
		l.Fail(c, ErrTimeout, now, out)
		return
	}
	l.stats.Repeats++
	out.Send(c.Hop, c.raw)
	l.planRepeat(c, now)
	l.plan(c)
}

// HandleResponse takes a response, and reports whether it is one to a request of this layer.
func (l *Layer) HandleResponse(res *sip.Response, now time.Time, out *Output) bool {
	cseq := res.CSeq()
	if cseq == nil || res.Via() == nil {
		l.stats.StrayResponses++
		return false
	}
	c := l.clients[clientKey{branchOf(res.Via()), cseq.MethodName}]
	if c == nil {
		l.stats.StrayResponses++
		return false
	}
	switch {
	case res.StatusCode < 200:
		l.provisional(c, res, now, out)
	case c.invite():
		l.inviteFinal(c, res, now, out)
	case c.Waiting():
		l.complete(c, completed, l.set.T4, now) // timer K
		c.handle(res, nil, now, out)
	}
	return true
}

func (l *Layer) provisional(c *Client, res *sip.Response, now time.Time, out *Output) {
	if !c.Waiting() {
		return
	}
	first := c.state == calling
	c.state = proceeding
	if c.invite() {
		c.repeatAt = time.Time{}
		if !c.cancelled {
			c.endAt = time.Time{} // how long it rings is its owner's business
		}
	} else if first && !c.repeatAt.IsZero() {
		c.interval, c.repeatAt = l.set.T2, now.Add(l.set.T2)
	}
	l.plan(c)
	if c.invite() && first && c.cancelled {
		l.sendCancel(c, now, out)
	}
	c.handle(res, nil, now, out)
}

func (l *Layer) inviteFinal(c *Client, res *sip.Response, now time.Time, out *Output) {
	success := res.StatusCode < 300
	switch {
	case c.Waiting() && success:
		l.complete(c, accepted, l.Lifetime(), now) // timer M, by whatever transport
		c.handle(res, nil, now, out)
	case c.state == accepted && success:
		c.handle(res, nil, now, out)
	case c.Waiting():
		l.complete(c, completed, timerD, now)
		out.Send(c.Hop, []byte(follow(c.Request, sip.ACK, res.To()).String()))
		c.handle(res, nil, now, out)
	case c.state == completed && !success:
		out.Send(c.Hop, []byte(follow(c.Request, sip.ACK, res.To()).String()))
	}
}

// complete keeps an answered transaction, so that repeats of the answer are known.
func (l *Layer) complete(c *Client, s state, keep time.Duration, now time.Time) {
	c.state, c.repeatAt, c.endAt = s, time.Time{}, now.Add(keep)
	if s == completed && c.Hop.Transport.Reliable() {
		l.Forget(c)
		return
	}
	l.plan(c)
}
