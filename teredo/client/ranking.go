// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
)

// Implementation constants of ranking.
const (
	// scoutTries is how often a server that is not in use is asked.
	scoutTries = 2
	// firstScout is the pause between servers until each was asked once.
	firstScout = 2 * time.Second
	// scoutEvery is the pause then, in refresh intervals: all servers together
	// get less than half of what the one in use gets.
	scoutEvery = 2
	// A server takes the place of one that works only when it was better this
	// many times in a row: the former while the host is idle for idleFor, the
	// latter in any case. A change of address breaks connections.
	betterIdle, betterBusy = 3, 10
	idleFor                = 30 * time.Second
	// A server that fell silent more than once within fallMemory has to be better
	// twice as often for each time, up to maxFalls times.
	fallMemory, maxFalls = time.Hour, 5
	// leastGain is the least difference of round trips that matters, beside a
	// quarter of the smaller one.
	leastGain = 5 * time.Millisecond
)

// rank is what the client knows of a server.
type rank struct {
	rtt    time.Duration // smoothed; 0 is not measured
	silent bool          // did not answer the last time
	better int           // times in a row that it was better than the one in use
	tried  int           // scouts since the server in use fell silent
	fell   int           // times that it fell silent in use, of late
	fellAt time.Time     // the last of them
}

// scout is the exchange with a server that is not in use. It measures the round
// trip, and has an address at hand when the one in use falls silent.
type scout struct {
	solicitation
	index   int
	at      time.Time // of the next one
	prefix  netip.Prefix
	mapping netip.AddrPort // of the answer; not valid: none
	began   time.Time
}

// rankOf returns the rank of a server, or nil.
func (c *Client) rankOf(primary netip.Addr) *rank {
	for i := range c.servers {
		if c.servers[i].Primary == primary && i < len(c.ranks) {
			return &c.ranks[i]
		}
	}
	return nil
}

// keepRanks makes the ranks of a new list of servers; before is the old one.
func (c *Client) keepRanks(before []Server) {
	old := c.ranks
	c.ranks = make([]rank, len(c.servers))
	for i, s := range c.servers {
		if j := slices.IndexFunc(before, func(b Server) bool { return b.Primary == s.Primary }); j >= 0 && j < len(old) {
			c.ranks[i] = old[j]
		}
	}
	c.scout = scout{at: c.scout.at}
}

// measure notes the answer of a server. Only the first sending tells the round
// trip, since the answer does not say to which it belongs.
func (c *Client) measure(s *solicitation, now time.Time) {
	r := c.rankOf(s.server.Addr())
	if r == nil {
		return
	}
	r.silent = false
	if s.sent != 1 {
		return
	}
	if trip := now.Sub(s.began); r.rtt == 0 {
		r.rtt = max(trip, 1)
	} else {
		r.rtt = max((7*r.rtt+trip)/8, 1)
	}
}

// scouting reports whether there is anything to compare.
func (c *Client) scouting() bool {
	return c.watchful() && len(c.servers) > 1 && (c.state == Qualified || c.alarmed())
}

// alarmed reports that the server in use has not answered at once, so that it is
// time to look for another.
func (c *Client) alarmed() bool {
	return c.primary.active && c.primary.quick > 0 && c.primary.timely() > 1
}

// found reports that another server has answered since the one in use was asked.
func (c *Client) found() bool {
	return c.scout.mapping.IsValid() && !c.scout.began.Before(c.primary.began)
}

// tickScouts asks other servers, and goes over to one when the server in use is
// silent.
func (c *Client) tickScouts(now time.Time, out *Out) {
	if !c.scouting() {
		return
	}
	if c.troubled() && c.found() {
		c.failOver(now, out)
		return
	}
	s := &c.scout
	if s.active && !now.Before(s.due) {
		if s.sent < scoutTries {
			c.resolicit(&s.solicitation, now, out)
		} else {
			s.active = false
			c.ranks[s.index].silent, c.ranks[s.index].better = true, 0
		}
	}
	if !s.active && !now.Before(c.scoutAt()) {
		c.sendScout(now, out)
	}
}

// scoutAt is when the next scout leaves.
func (c *Client) scoutAt() time.Time {
	if c.alarmed() && !c.found() {
		return c.primary.began
	}
	return c.scout.at
}

// sendScout asks the server that is most likely to help.
func (c *Client) sendScout(now time.Time, out *Out) {
	i := c.pickScout()
	s := &c.scout
	wait := c.share(scoutEvery * c.cfg.Refresh)
	for j, r := range c.ranks {
		if j != i && j != c.current && r.rtt == 0 && !r.silent {
			wait = firstScout
		}
	}
	*s = scout{index: i, at: now.Add(wait), began: now}
	c.ranks[i].tried++
	c.solicit(&s.solicitation, c.servers[i].Primary, now, out)
	s.quick = scoutTries
	s.due = now.Add(c.pause(&s.solicitation))
}

// pickScout picks the next server in turn, or in need the best one that was
// asked least since.
func (c *Client) pickScout() int {
	n := len(c.servers)
	best := -1
	for d := 1; d <= n; d++ {
		i := (c.scout.index + d) % n
		if i == c.current {
			continue
		}
		if best < 0 || c.alarmed() && c.order(i, best) < 0 {
			best = i
		}
	}
	return best
}

// order compares two servers for a time of need.
func (c *Client) order(i, j int) int {
	a, b := &c.ranks[i], &c.ranks[j]
	return cmp.Or(cmp.Compare(a.tried, b.tried), compareRanks(a, b), cmp.Compare(i, j))
}

// compareRanks puts servers that answer before others, the nearest first.
func compareRanks(a, b *rank) int {
	class := func(r *rank) int {
		switch {
		case r.silent:
			return 2
		case r.rtt == 0:
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(class(a), class(b)), cmp.Compare(a.rtt, b.rtt))
}

// scouted takes the answer to a scout.
func (c *Client) scouted(prefix netip.Prefix, mapping netip.AddrPort, now time.Time, out *Out) {
	s := &c.scout
	s.active = false
	s.prefix, s.mapping = prefix, mapping
	if c.troubled() {
		c.failOver(now, out)
		return
	}
	if c.state != Qualified || c.primary.active {
		return
	}
	r := &c.ranks[s.index]
	if !c.isBetter(s.index) {
		r.better = 0
		return
	}
	r.better++
	idle := now.Sub(c.silence.traffic) >= idleFor
	twice := max(r.fell-1, 0)
	if r.better >= betterBusy<<twice || idle && r.better >= betterIdle<<twice {
		c.use(CauseBetterServer, now, out)
	}
}

// isBetter reports whether a server is clearly nearer than the one in use, or
// stands before it in the list and is not clearly farther.
func (c *Client) isBetter(i int) bool {
	a, b := c.ranks[i].rtt, c.ranks[c.current].rtt
	if a == 0 || b == 0 {
		return i < c.current && a != 0
	}
	margin := max(min(a, b)/4, leastGain)
	return a+margin < b || i < c.current && a <= b+margin
}

// failOver leaves a silent server for the one that has answered.
func (c *Client) failOver(now time.Time, out *Out) {
	r := &c.ranks[c.current]
	if now.Sub(r.fellAt) > fallMemory {
		r.fell = 0
	}
	r.silent, r.fell, r.fellAt = true, min(r.fell+1, maxFalls), now
	out.Events = append(out.Events, Event{Kind: ServerSilent, Server: c.server().Primary})
	c.use(CauseServerSilent, now, out)
}

// use goes over to the server that was scouted last.
func (c *Client) use(why Cause, now time.Time, out *Out) {
	c.current = c.scout.index
	c.ranks[c.current].better = 0
	c.primary = c.scout.solicitation
	c.why = why
	c.scout.at = now.Add(c.share(scoutEvery * c.cfg.Refresh))
	prefix, mapping := c.scout.prefix, c.scout.mapping
	c.scout.mapping = netip.AddrPort{}
	c.qualify(prefix, mapping, now, out)
}

// beginWatch starts again with a new address.
func (c *Client) beginWatch(now time.Time) {
	c.why, c.silence = 0, silence{traffic: c.silence.traffic, since: now}
	if c.scout.at.IsZero() {
		c.scout.at = now.Add(c.share(firstScout))
	}
}

// nextWatch is when the traffic or the servers are looked at next.
func (c *Client) nextWatch() time.Time {
	next := c.silence.checkAt
	if !c.scouting() {
		return next
	}
	if c.scout.active {
		return earlier(next, c.scout.due)
	}
	return earlier(next, c.scoutAt())
}

// tickWatch does what is due there.
func (c *Client) tickWatch(now time.Time, out *Out) {
	if c.state != Qualified {
		c.silence = silence{}
	}
	c.tickSilence(now, out)
	c.tickScouts(now, out)
}

// asksScouted reports whether a is the server that a scout waits for.
func (c *Client) asksScouted(a netip.AddrPort) bool { return c.scout.active && a == c.scout.server }

// ServerRank is what the client knows of one of its servers.
type ServerRank struct {
	Server netip.Addr
	InUse  bool
	// RTT is the smoothed round trip; 0 is not measured.
	RTT time.Duration
	// Silent: it did not answer the last time.
	Silent bool
}

// ranking lists the servers, the best first.
func (c *Client) ranking() []ServerRank {
	order := make([]int, len(c.ranks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return compareRanks(&c.ranks[i], &c.ranks[j]) })
	list := make([]ServerRank, 0, len(order))
	for _, i := range order {
		r := &c.ranks[i]
		list = append(list, ServerRank{Server: c.servers[i].Primary, InUse: i == c.current && c.state == Qualified, RTT: r.rtt, Silent: r.silent})
	}
	return list
}

// whose returns the server that the answer to an exchange must name. The
// secondary address too announces the primary one.
func (c *Client) whose(s *solicitation) netip.Addr {
	if s == &c.scout.solicitation {
		return s.server.Addr()
	}
	return c.server().Primary
}

// namesServer reports whether an advertised prefix names a server.
func namesServer(prefix, server netip.Addr) bool {
	b := prefix.As16()
	return teredo.Server(&b) == server
}
