// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediaio

import (
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/offer"
)

// local is what a path has for the stream.
func (c *Call) local(path int) (offer.Local, *pair, error) {
	p := c.find(path)
	if p == nil {
		return offer.Local{}, nil, fmt.Errorf("path %d is not open", path)
	}
	return offer.Local{RTP: p.rtp.local, RTCP: p.rtcp.local, Send: true, Receive: !c.held}, p, nil
}

// Offer describes the stream at a path for the peer to answer. The first path that is offered
// is sent by.
func (c *Call) Offer(path int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, p, err := c.local(path)
	if err != nil {
		return nil, err
	}
	body, err := c.session.Offer(l)
	if err != nil {
		return nil, err
	}
	return body, c.start(p)
}

// start sends by a path if none was chosen yet.
func (c *Call) start(p *pair) error {
	if c.stream.Path() >= 0 {
		return nil
	}
	return c.stream.SendBy(p.slot, time.Now())
}

// Answer answers an offer by a path, and media flows as agreed from then on. An error refuses
// the offer; it wraps one of package offer.
func (c *Call) Answer(body []byte, path int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, p, err := c.local(path)
	if err != nil {
		return nil, err
	}
	if _, err := c.session.Offered(body); err != nil {
		return nil, err
	}
	answer, agreed, err := c.session.Answer(l)
	if err != nil {
		c.session.Withdraw()
		return nil, err
	}
	return answer, errors.Join(c.start(p), c.agree(agreed))
}

// Accept takes the answer to the last offer, and media flows as agreed from then on.
func (c *Call) Accept(answer []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	agreed, err := c.session.Answered(answer)
	if err != nil {
		return err
	}
	return c.agree(agreed)
}

// agree has the stream do what was agreed.
func (c *Call) agree(a media.Agreement) error {
	a.Send = a.Send && !c.held
	err := c.stream.Agree(a, time.Now())
	c.flush()
	return err
}

// Withdraw takes the open offer back, or refuses the peer's: all is as it was.
func (c *Call) Withdraw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session.Withdraw()
}

// Hold says whether the next descriptions put the peer on hold: they are sendonly, and nothing
// is sent (RFC 3264 section 8.4).
func (c *Call) Hold(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = on
}
