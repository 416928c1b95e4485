// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package radius

import "time"

// window is how many requests may wait for a server at a time. What comes at once beyond what its socket holds, by Linux's
// default some 170 requests, is lost, and asked again only when its time is over. So it grows with answers and falls
// with what was lost, as TCP's does (RFC 5681 section 3.1); RADIUS over UDP has no congestion control of its own.
type window struct {
	size, threshold float64
	lowered         time.Time
}

// The window at first, and the least.
const (
	firstWindow = 64
	leastWindow = 8
)

func newWindow() window { return window{size: firstWindow, threshold: 1 << 16} }

// answered notes an answer that came while so many requests waited. A window that was not full is not known to be too
// small.
func (w *window) answered(waiting int) {
	switch {
	case waiting < int(w.size):
	case w.size < w.threshold:
		w.size++
	default:
		w.size += 1 / w.size
	}
}

// lost notes that a request has to be sent again, which was sent first at a time. Those that were under way with one for
// which the window was lowered are no reason to lower it again.
func (w *window) lost(sent, now time.Time) {
	if sent.After(w.lowered) {
		w.size = max(w.size/2, leastWindow)
		w.threshold, w.lowered = w.size, now
	}
}

// waiting is how many requests wait for the server.
func (s *server) waiting() int { return len(s.slots) - s.count }

// underWay is how many requests may still be on their way to the server: what was sent to it while it was dead is not, and
// would keep the window full until it is given up.
func (s *server) underWay() int { return s.waiting() - s.lost }

// full reports whether as many requests are under way to the server as it is known to take.
func (s *server) full() bool { return s.underWay() >= int(s.window.size) }

// revive begins anew with a server that is back. That what it was sent before has to be sent again says nothing of its
// window.
func (s *server) revive(now time.Time) {
	s.dead, s.window = false, newWindow()
	s.window.lowered = now
	s.back, s.lost = s.turn, s.waiting()
}

// hold has a request wait until a server has room in its window, for longer than that has for an answer: if it is dead, this
// is known before. False: as many wait as it has identifiers.
func (c *Client) hold(p *pending, s *server, now time.Time) bool {
	if len(s.queue) >= s.count {
		return false
	}
	p.held, p.server = true, s
	s.queue = append(s.queue, p)
	c.times.Set(p, now.Add(c.settings.Timeout<<c.settings.Tries))
	return true
}

// goOn sends the requests that there is room for now, in their order, and has those that wait for a dead server go elsewhere.
// Behind it no server that lives has both room and a queue: a new request overtakes none.
func (c *Client) goOn(now time.Time, out *Output) {
	for _, s := range c.servers {
		for len(s.queue) > 0 {
			first := s.queue[0]
			waits := first.held && first.server == s
			if waits && !s.dead && s.full() {
				break
			}
			s.queue[0], s.queue = nil, s.queue[1:]
			if waits {
				c.resume([]*pending{first}, now, out)
			}
		}
	}
}

// takeQueues takes the requests that wait for room out of all queues. Once it is known which servers there are, resume has
// each wait at its own, or sends it.
func (c *Client) takeQueues() (list []*pending) {
	for _, s := range c.servers {
		list = append(list, s.queue...)
		s.queue = nil
	}
	return list
}

// resume asks a server for each of some requests that waits for room.
func (c *Client) resume(list []*pending, now time.Time, out *Output) {
	for _, p := range list {
		if p.held {
			c.times.Stop(p)
			p.held = false
			c.ask(p, now, out)
		}
	}
}
