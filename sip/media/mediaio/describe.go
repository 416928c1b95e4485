// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediaio

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/offer"
)

// carrier is the path of media while signalling goes by another: that one, unless the peer of an offer that we answered
// has media of the other family alone, and there is a way to them. The way is looked for anew where the peer is told of it
// or a move begins, and else stays.
func (c *Call) carrier(path int, anew bool) *pair {
	p := c.find(path)
	if p == nil || !c.apart.IsValid() || p.reaches(c.apart) {
		return p
	}
	open := c.aside != nil && c.paths[c.aside.slot] == c.aside
	if anew || !open {
		if other := c.leading(c.apart); other != nil || !open {
			c.aside = other
		}
	}
	if c.aside == nil {
		return p
	}
	return c.aside
}

// leading is the path that leads to an address, as who knows the routes says; nil: none.
func (c *Call) leading(to netip.Addr) *pair {
	if c.toward == nil {
		return nil
	}
	if path, ok := c.toward(to); ok {
		if p := c.find(path); p != nil && p.reaches(to) {
			return p
		}
	}
	return nil
}

// local is what a path, or its carrier, has for the stream.
func (c *Call) local(path int) (offer.Local, *pair, error) {
	p := c.carrier(path, true)
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
	return body, c.start(p, netip.Addr{})
}

// start sends by a path if none was chosen yet, or if media are to go where the one in use does not lead.
func (c *Call) start(p *pair, to netip.Addr) error {
	current := c.slot(c.stream.Path())
	if c.stream.Path() < 0 || p == c.aside || current != nil && to.IsValid() && !current.reaches(to) {
		return c.stream.SendBy(p.slot, time.Now())
	}
	return nil
}

// Answer answers an offer by a path, and media flows as agreed from then on. Where the peer's media are of the other family
// than the path, they go by the one that [Settings].Toward names from then on, whichever signalling names. An error refuses
// the offer; it wraps one of package offer.
func (c *Call) Answer(body []byte, path int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.find(path)
	if p == nil {
		return nil, fmt.Errorf("path %d is not open", path)
	}
	to, err := c.session.Offered(body)
	if err != nil {
		return nil, err
	}
	before, aside := c.apart, c.aside
	if to.IsValid() { // else the call is held, and where media go stays as it was
		c.apart, c.aside = netip.Addr{}, nil
		if !p.reaches(to.Addr()) {
			c.apart = to.Addr().Unmap()
		}
	}
	answer, err := c.answer(path, to.Addr())
	if err != nil {
		c.apart, c.aside = before, aside
	}
	return answer, err
}

// answer answers the open offer of the peer, or withdraws it.
func (c *Call) answer(path int, to netip.Addr) ([]byte, error) {
	l, p, err := c.local(path)
	if err != nil {
		return nil, err
	}
	answer, agreed, err := c.session.Answer(l)
	if err != nil {
		c.session.Withdraw()
		return nil, err
	}
	return answer, errors.Join(c.start(p, to), c.agree(agreed))
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
