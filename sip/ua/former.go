// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import "github.com/isthmus-net/isthmus/sip/transaction"

// A call that was repaired has two dialogs for a while. Who takes an INVITE with Replaces knows the
// new one at once; the peer does when it has the answer, which may be lost with the peer's address.
// Until one end has heard the other in one of them, requests in either are the call's, and so is an
// INVITE that replaces either.

// goOn has the call go on in another dialog; the peer knows the former one.
func (c *Call) goOn(d, former *dialog) {
	c.repair.stop()
	if c.offer != nil && c.offer.tx != nil {
		c.offer.tx.Cancel(c.offer.tx.To, c.e.now, &c.e.tx)
	}
	c.offer = nil // but a 2xx is acknowledged
	c.e.layer.StopTimer(c.again)
	c.answered.stop()
	c.answered = nil
	for _, d := range []*dialog{c.dialog, c.former} {
		if d != former {
			c.drop(d)
		}
	}
	c.dialog, c.former = d, former
	c.take(d)
}

// heardIn notes that the peer has spoken in a dialog. In the one in use, that ends the former one:
// by BYE of who was asked to replace it (RFC 3891 section 3), to where the peer is now.
func (c *Call) heardIn(d *dialog) {
	d.refused = false
	switch former := c.former; {
	case former == nil:
	case d == former:
		c.swap()
	case d == c.dialog:
		c.former = nil
		c.drop(former)
		if !c.sure {
			former.target = d.target
			c.sayBye(former)
		}
	}
}

// swap goes on in the former dialog. Where the peer is, the other one knows better.
func (c *Call) swap() {
	c.former.target = c.dialog.target
	c.dialog, c.former, c.sure = c.former, c.dialog, false
}

// goBack leaves a dialog that the peer does not know, or has ended, for the former one, and reports
// whether there is one that the peer may know.
func (c *Call) goBack(ended bool) bool {
	former := c.former
	if former == nil || former.refused {
		return false
	}
	c.dialog.refused = true
	c.swap()
	c.unsure = true
	if ended {
		c.drop(c.former)
		c.former = nil
	}
	return true
}

// byeInFormer takes the end of the former dialog. Unless it is sure that the peer knows the other one,
// the call may be at its end, which a re-INVITE shows.
func (c *Call) byeInFormer(s *transaction.Server) {
	c.e.refuse(s, 200)
	c.drop(c.former)
	c.former = nil
	if !c.sure {
		c.unsure = true
		c.pursue()
	}
}
