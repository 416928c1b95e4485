// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package radius

import (
	"bytes"
	"errors"
	"slices"
	"time"
)

// errSockets is that a client keeps the ports that it began with.
var errSockets = errors.New("the number of ports to send from cannot change")

// Reconfigure gives a client other settings, or returns why it cannot have them and keeps those that it
// has. The ports stay. What is on its way goes on: the answer of a server that has gone, or of one under
// the secret that it had, counts as long as it is waited for. When it would be asked again, a server of now
// is, by the secret of now; what waited for room goes to those that have some.
func (c *Client) Reconfigure(s Settings, now time.Time, out *Output) error {
	if err := s.Check(); err != nil {
		return err
	}
	if s.Sockets != c.settings.Sockets {
		return errSockets
	}
	c.settings = s
	waiting := c.takeQueues()
	c.setServers(s.Servers, now)
	c.resume(waiting, now, out)
	return nil
}

// setServers sets the servers and their order. One that stays keeps what is known of it; one whose secret
// is another is tried at once, for that may be why it did not answer.
func (c *Client) setServers(list []Server, now time.Time) {
	before := append(c.servers, c.leaving...)
	c.servers, c.leaving = nil, nil
	for _, one := range list {
		at := slices.IndexFunc(before, func(s *server) bool { return s.Address == one.Address })
		if at < 0 {
			c.servers = append(c.servers, newServer(one, c.settings.Sockets))
			continue
		}
		s := before[at]
		before = slices.Delete(before, at, at+1)
		if latest := now.Add(c.settings.DeadTime); s.deadAt.After(latest) {
			s.deadAt = latest
		}
		if s.gone || !bytes.Equal(s.Secret, one.Secret) {
			s.deadAt = now
		}
		s.Server, s.gone = one, false
		c.servers = append(c.servers, s)
	}
	for _, s := range before {
		if s.gone = true; s.awaited() {
			c.leaving = append(c.leaving, s)
		}
	}
}

// release gives the identifier of a request back, and forgets its server if that has gone and this was the
// last request that waited for it.
func (c *Client) release(p *pending, answered bool) {
	s := p.server
	s.give(p.slot, answered)
	if p.turn <= s.back {
		s.lost--
	}
	if s.gone && !s.awaited() {
		c.leaving = slices.DeleteFunc(c.leaving, func(one *server) bool { return one == s })
	}
}

// outdated reports whether the server of a request has gone since it was asked, or has another secret.
func (p *pending) outdated() bool {
	return p.server.gone || !bytes.Equal(p.secret, p.server.Secret)
}

// awaited reports whether requests wait for answers of the server.
func (s *server) awaited() bool { return s.waiting() > 0 }
