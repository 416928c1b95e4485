// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import "time"

// Implementation constants of probing.
const (
	// checksPerProbe is how many times the traffic is looked at before the first
	// probe; Config.Probe is their sum.
	checksPerProbe = 3
	// leastProbe bounds how often the traffic is looked at.
	leastProbe = 100 * time.Millisecond
	// maxPatience bounds the checks between probes that changed nothing, so that
	// a flow that is never answered asks the server every 3.5 to 4 s at the
	// default, and a mapping that changes meanwhile is still noticed within 5 s.
	maxPatience = 7
	// quickest is the least wait for an answer whose round trip is known, and
	// unmeasured the wait where it is not.
	quickest, unmeasured = 500 * time.Millisecond, time.Second
	// trustServer is how long a server that was heard is above suspicion. It is
	// as long as an echo test waits for its first repeat.
	trustServer = retryInterval
)

// silence notices that nothing comes back for what the host sends. The mapping
// may have changed then, and only the server can tell. It is looked at in steps,
// so that packets cost two stores and no timer is moved for them.
type silence struct {
	pending  bool      // the host has sent since the last answer or probe
	heard    bool      // something of a peer has come since the last check
	quiet    int       // checks in a row that found an answer missing
	patience int       // how many of them lead to a probe
	checkAt  time.Time // zero while there is no traffic
	traffic  time.Time // last check that saw any
	since    time.Time // last check: what the fast path carried before is counted
	passed   time.Time // last packet of the host that the fast path has reported
}

// hostSent notes a packet of the host.
func (c *Client) hostSent(now time.Time) {
	c.silence.pending = true
	if c.silence.checkAt.IsZero() && c.watchful() {
		c.silence.checkAt = now.Add(c.cfg.Probe / checksPerProbe)
	}
}

// watchful reports whether the client looks after its address and its servers by
// more than the refresh.
func (c *Client) watchful() bool { return c.cfg.Probe > 0 }

// tickSilence looks at the traffic, and asks the server when nothing has come
// back for a while. Each probe that changes nothing doubles the patience for the
// next, up to a bound; an answer of a peer restores it.
func (c *Client) tickSilence(now time.Time, out *Out) {
	s := &c.silence
	if s.checkAt.IsZero() || now.Before(s.checkAt) {
		return
	}
	traffic := s.heard || s.pending
	if s.heard || s.patience == 0 {
		s.pending, s.quiet, s.patience = s.pending && !s.heard, 0, checksPerProbe
	}
	if s.pending {
		s.quiet++
	}
	s.heard = false
	if s.quiet >= s.patience {
		s.pending, s.quiet = false, 0
		s.patience = min(2*s.patience, maxPatience)
		c.probe(now, out)
	}
	s.checkAt, s.since = time.Time{}, now
	if traffic {
		s.traffic = now
		s.checkAt = now.Add(c.cfg.Probe / checksPerProbe)
	}
}

// probe asks the server at once whether the address still holds, with a few
// sendings in quick succession before those of RFC 4380.
func (c *Client) probe(now time.Time, out *Out) {
	if c.state != Qualified || c.primary.active && c.primary.quick > 0 {
		return
	}
	c.solicit(&c.primary, c.server().Primary, now, out)
	c.primary.confirm = true
	c.hasten(now)
}

// Examine asks the server at once whether the address still holds, when something
// outside gives reason to doubt it. The answer is an event in any case.
func (c *Client) Examine(now time.Time, out *Out) {
	if c.state != Qualified {
		return
	}
	c.primary.active = false
	c.probe(now, out)
}

// hasten makes the exchange under way a quick one.
func (c *Client) hasten(now time.Time) {
	if !c.watchful() {
		return
	}
	c.primary.quick = c.cfg.Attempts
	c.primary.due = now.Add(c.pause(&c.primary))
	for i := range c.ranks {
		c.ranks[i].tried = 0
	}
}

// suspect is told that a test by way of the server was not answered. The peer may
// be gone, or the server: it is asked unless it was heard just now. That costs it
// less than the test itself.
func (c *Client) suspect(now time.Time, out *Out) {
	if c.watchful() && !c.primary.active && now.Sub(c.lastServer) >= trustServer {
		c.probe(now, out)
	}
}

// pause is the wait for an answer: while an exchange is quick, four round trips
// of that server within bounds, else T.
func (c *Client) pause(s *solicitation) time.Duration {
	if s.timely() > s.quick || s.quick == 0 {
		return c.cfg.Timeout
	}
	wait := unmeasured
	if r := c.rankOf(s.server.Addr()); r != nil && r.rtt > 0 {
		wait = max(4*r.rtt, quickest)
	}
	return min(wait, c.cfg.Timeout)
}

// troubled reports that the quick sendings of the exchange under way had no answer.
func (c *Client) troubled() bool {
	return c.primary.active && c.primary.quick > 0 && c.primary.timely() > c.primary.quick
}

// Resumed reports that the host has slept, for as long as its steady clock stood
// still, or that the process was stopped (slept is 0). All that was proved before
// has aged by that time, and the address is examined at once.
func (c *Client) Resumed(slept time.Duration, now time.Time, out *Out) {
	if !c.running {
		return
	}
	c.clock.Epoch = c.clock.Epoch.Add(-slept)
	c.ageBindings(slept)
	c.silence = silence{since: now}
	c.withdrawAll() // its clock stood still too
	if c.state != Qualified {
		c.backoff = 0
		c.begin(now, out)
		return
	}
	c.Examine(now, out)
}
