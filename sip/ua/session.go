// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"cmp"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// sessionInterval is what we ask of a session timer (RFC 4028).
type sessionInterval struct {
	expires, min time.Duration
	raised       int
}

// maxRaises is how often a refusal raises an interval: each proxy on the way may, and none without end.
const maxRaises = 8

func (e *Engine) wantedInterval() sessionInterval {
	return sessionInterval{expires: e.set.SessionExpires}
}

// ask adds what we want to a request that begins a call.
func (i *sessionInterval) ask(req *message.Message) {
	if i.expires <= 0 {
		return
	}
	req.Add("Session-Expires", inSeconds(i.expires))
	if i.min > 0 {
		req.Add("Min-SE", inSeconds(i.min))
	}
}

// raise takes the least interval that a 422 names, and reports whether asking again makes
// sense (section 7.3).
func (i *sessionInterval) raise(res *message.Message) bool {
	if res == nil {
		return false
	}
	min, ok := seconds(res.Get("Min-SE"))
	if !ok || min <= i.expires || i.expires <= 0 || min > 24*time.Hour || i.raised >= maxRaises {
		return false
	}
	i.expires, i.min, i.raised = min, min, i.raised+1
	return true
}

// minimumSE is the least that any interval may be (section 5).
const minimumSE = 90 * time.Second

// tooShort reports whether a request asks for a shorter interval than we accept.
func (e *Engine) tooShort(req *message.Message) (min time.Duration, short bool) {
	min = max(e.set.MinSE, minimumSE)
	wanted, ok := seconds(req.Get("Session-Expires"))
	return min, ok && wanted < min && supports(req, "timer")
}

// sessionTimer ends a call of which the peer has not been heard for too long, or shows it
// that we are here.
type sessionTimer struct {
	call      *Call
	interval  sessionInterval
	on        time.Duration // the interval agreed, 0 for none
	refresher bool          // it is for us to refresh
	due       bool          // a re-INVITE is to do so
	until     time.Time     // when the session expires
	refresh   *transaction.Timer
	expire    *transaction.Timer
}

func (t *sessionTimer) init(c *Call) {
	t.call, t.interval = c, c.e.wantedInterval()
	t.refresh = c.e.timer(t.refreshNow)
	t.expire = c.e.timer(func() { c.bye(408, "the session expired") })
}

// ask adds the interval to a request in the dialog, which is itself a refresh; who refreshes
// stays who it was (section 7.4).
func (t *sessionTimer) ask(req *message.Message) {
	if t.on == 0 {
		return
	}
	role := ";refresher=uas"
	if t.refresher {
		role = ";refresher=uac"
	}
	req.Add("Session-Expires", inSeconds(cmp.Or(t.interval.min, t.on))+role)
	if t.interval.min > 0 {
		req.Add("Min-SE", inSeconds(t.interval.min))
	}
}

// agreed takes what a 2xx to a request of ours says. One that says nothing is of a peer
// without session timers.
func (t *sessionTimer) agreed(res *message.Message, uac bool) {
	d, refresher, ok := interval(res)
	if !ok || d < minimumSE {
		d = 0
	}
	t.begin(d, (refresher == "uac") == uac)
}

// answer adds to a 2xx of ours what is agreed (section 9).
func (t *sessionTimer) answer(req *message.Message, res *message.Message) {
	d, role, ok := interval(req)
	peerKnows := supports(req, "timer")
	switch {
	case ok && d < minimumSE: // which has been refused to who knows timers
		t.begin(0, false)
		return
	case !ok && (!peerKnows || t.call.e.set.SessionExpires <= 0):
		t.begin(0, false)
		return
	case !ok:
		d = max(t.call.e.set.SessionExpires, minimumSE)
		if min, has := seconds(req.Get("Min-SE")); has {
			d = max(d, min)
		}
	}
	if !peerKnows || role != "uac" {
		role = "uas" // that is us, and we can
	}
	res.Add("Session-Expires", inSeconds(d)+";refresher="+role)
	if role == "uac" {
		res.Add("Require", "timer")
	}
	t.begin(d, role == "uas")
}

// interval is what a message says of session timers, and who refreshes.
func interval(m *message.Message) (d time.Duration, refresher string, ok bool) {
	text, params := message.Parameters(m.Get("Session-Expires"))
	refresher, _ = params.Get("refresher")
	d, ok = seconds(text)
	return d, strings.ToLower(refresher), ok
}

// begin starts the timers anew: half the interval to a refresh, and to the end of the call the whole
// interval (section 1), or if the peer refreshes the third of it or 32 s less (section 10).
func (t *sessionTimer) begin(d time.Duration, refresher bool) {
	l := t.call.e.layer
	t.on, t.refresher, t.due, t.until = d, refresher, false, t.call.e.now.Add(d)
	l.StopTimer(t.refresh)
	l.StopTimer(t.expire)
	switch {
	case d == 0:
	case refresher:
		t.call.e.after(t.refresh, d/2)
		t.call.e.after(t.expire, d)
	default:
		t.call.e.after(t.expire, d-min(32*time.Second, d/3))
	}
}

// refreshNow refreshes the session by UPDATE, which changes nothing of it, or by re-INVITE.
func (t *sessionTimer) refreshNow() {
	c := t.call
	if !c.dialog.updates || c.update != nil {
		t.due = true
		c.pursue()
		return
	}
	c.sendUpdate(c.dialog, nil, func(res *message.Message, err error) {
		switch status, why := outcome(res, err); {
		case status < 300:
			t.agreed(res, true)
		case status == 481 && c.goBack(false):
			t.due = true
			c.pursue()
		case status == 481 || status == 408:
			c.bye(status, why)
		case err != nil, status == 422 && t.interval.raise(res), status == 405, status == 501:
			t.due = true
			c.pursue()
		default:
			t.retry(res)
		}
	})
}

// retry has a refused refresh tried again after half of the time that is left: again, but not continuously
// (section 10), and later if the peer's Retry-After asks for that in time.
func (t *sessionTimer) retry(res *message.Message) {
	if t.on == 0 || !t.refresher {
		return
	}
	left := t.until.Sub(t.call.e.now)
	wait := max(left/2, time.Second)
	if d, ok := seconds(res0(res).Get("Retry-After")); ok && d < left {
		wait = max(wait, d)
	}
	t.due = false
	t.call.e.after(t.refresh, wait)
}
