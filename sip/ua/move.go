// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// usePath takes the call to the path that is in use now; a re-INVITE says so to the peer of one that
// stands when it is pursued.
func (c *Call) usePath() {
	c.refusedBy, c.attempts, c.waits = nil, 0, 0
	if c.again.IsSet() && !c.obliged {
		c.e.layer.StopTimer(c.again)
	}
	switch c.state {
	case Calling:
		c.moveCalling()
	case Alerting:
		c.moveAlerting()
	case Up:
		if c.mustMove() || c.offer != nil {
			c.beginMove()
		}
	}
}

// beginMove tells that media shall be sent from the new path at once: a description restricts
// where they are received, not where they come from.
func (c *Call) beginMove() {
	if c.toward == c.e.use {
		return
	}
	if c.moving.IsZero() {
		c.moving = c.e.now
	}
	c.toward = c.e.use
	c.tell(Event{Kind: Moving, Path: c.e.use.ID, From: c.from()})
}

// from is the number of the path that the peer knows, or knew last.
func (c *Call) from() int {
	if c.path == nil {
		return 0
	}
	return c.path.ID
}

// arrived notes that the peer knows a path of ours: it has answered a request that named it,
// or sent one there (RFC 6141 section 4.4).
func (c *Call) arrived(p *path) {
	from := c.from()
	c.path, c.unsure = p, false
	if p != c.e.use || c.moving.IsZero() {
		return
	}
	c.e.stats.Moves++
	c.tell(Event{Kind: Moved, Path: p.ID, From: from, Took: c.e.now.Sub(c.moving), Repaired: c.repaired})
	c.moving, c.toward, c.repaired, c.waits = time.Time{}, nil, false, 0
}

// reachedBy notes by which path a request in the dialog has come.
func (c *Call) reachedBy(from transaction.Target) {
	if o := c.offer; o != nil && o.purpose == toMove && o.path.Local == from.Local && c.path != o.path {
		c.repair.stop()
		c.arrived(o.path)
	}
}

// moveRefused leaves the call on its old path and says so. If that is gone, or if it cannot be
// known which of them the peer took, the peer is asked again, ever more seldom.
func (c *Call) moveRefused(o *reinvite, status int, why string) {
	c.attempts++
	c.e.stats.MovesFailed++
	c.tell(Event{Kind: MoveFailed, Path: o.path.ID, From: c.from(), Status: status, Reason: why})
	if c.path.lost || c.unsure {
		c.obliged = false
		c.e.after(c.again, min(time.Second<<min(c.attempts, 5), 32*time.Second))
		return
	}
	c.refusedBy, c.moving, c.toward, c.waits = o.path, time.Time{}, nil, 0
	c.pursue()
}

// leftBehind asks the peer again that has refused to follow to the path in use, where the call has lost the
// one that it stayed on.
func (c *Call) leftBehind(lost *path) {
	if c.path == lost && c.refusedBy != nil && c.refusedBy == c.e.use {
		c.usePath()
		c.pursue()
	}
}

// moveCalling moves a call that the peer has not answered yet. While the old address is there
// the answer will come to it, so the peer need only learn the new target; if it is gone, so is
// the answer, and the peer is called again.
func (c *Call) moveCalling() {
	o := c.outgoing
	switch {
	case o.ended:
	case o.retry:
		o.retry = false
		c.inviteAgain()
	case !o.path.lost:
		for _, d := range c.early {
			c.updateEarly(d)
		}
	}
}

// updateEarly tells the peer of an early dialog the new target by UPDATE, with an offer if the
// one of the INVITE has been answered (RFC 3311 section 5.1).
func (c *Call) updateEarly(d *dialog) {
	if !d.updates || c.update != nil {
		return
	}
	p := c.e.use
	c.beginMove()
	var body []byte
	if c.outgoing.complete {
		body, _ = c.media.Offer(p.ID) // without one the UPDATE moves the target alone
	}
	c.sendUpdate(d, body, func(res *message.Message, err error) {
		success := err == nil && res.Status < 300
		switch {
		case body == nil:
		case success && c.media.Accept(res.Body) == nil:
			c.arrived(p)
		default:
			c.media.Withdraw()
		}
	})
}

// moveAlerting tells a caller whose call we have not answered that we are elsewhere. Our 200
// will have the same Contact (RFC 3311 section 5.1), and the description of the new path.
func (c *Call) moveAlerting() {
	if !c.dialog.updates || c.update != nil {
		return
	}
	p := c.e.use
	c.beginMove()
	c.sendUpdate(c.dialog, nil, func(res *message.Message, err error) {
		if err == nil && res.Status < 300 {
			c.arrived(p)
		}
	})
}
