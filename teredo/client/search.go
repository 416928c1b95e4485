// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// SearchSocket is the index of the Teredo secondary port in the datagrams of the
// output and in [SocketChange].
const SearchSocket = 1

// Specification constants of the search for the refresh interval (RFC 4380
// section 5.2.7).
const (
	longestRefresh = 120 * time.Second // first value of the maximum
	// concluded is the part of the maximum, in percent, that is near enough.
	concluded = 75
)

// searchGrain ends the search when a success would be followed by a candidate
// that is hardly longer: the text halves the rest without end.
const searchGrain = time.Second

// searchPhase says what the search waits for.
type searchPhase uint8

const (
	searchIdle       searchPhase = iota
	searchQualifying             // an advertisement on the secondary port
	searchWaiting                // the candidate interval
	searchTesting                // the bubble on the secondary port
)

// search is the optional refresh interval determination procedure.
type search struct {
	phase    searchPhase
	port     uint16 // Teredo secondary port
	exchange solicitation
	address  netip.Addr // Teredo secondary IPv6 address
	sent     int        // bubbles of this test
	due      time.Time  // of the end of waiting, or of the next bubble
	// candidate is under test; maximum is known to be too long, or not wanted.
	candidate, maximum time.Duration
}

// startSearch begins the search for the longest refresh interval that the NAT
// allows, as soon as there is an address.
func (c *Client) startSearch(now time.Time, out *Out) {
	if !c.cfg.RefreshSearch || c.nat.Mapping == NoNAT {
		return
	}
	c.search = search{port: c.pickPort(), maximum: longestRefresh}
	c.search.candidate = c.search.after(c.interval)
	out.Sockets = append(out.Sockets, SocketChange{Socket: SearchSocket, Port: c.search.port})
	c.qualifySearch(now, out)
}

// after is the candidate that follows a success.
func (s *search) after(interval time.Duration) time.Duration {
	return min(2*interval, (interval+s.maximum)/2)
}

// qualifySearch runs qualification, or maintenance, on the secondary port.
func (c *Client) qualifySearch(now time.Time, out *Out) {
	s := &c.search
	s.phase = searchQualifying
	c.solicitFrom(&s.exchange, SearchSocket, c.server().Primary, now, out)
}

// stopSearch ends the search. The interval stays at what was proved.
func (c *Client) stopSearch(out *Out) {
	if c.search.phase == searchIdle {
		return
	}
	c.search = search{}
	out.Sockets = append(out.Sockets, SocketChange{Socket: SearchSocket})
	out.Events = append(out.Events, Event{Kind: SearchEnded, Wait: c.interval})
}

// resetInterval forgets what was found: another mapping may be another NAT's.
func (c *Client) resetInterval(out *Out) {
	c.interval = c.cfg.Refresh
	c.stopSearch(out)
}

// handleSearch takes a UDP payload received on the secondary port, which is used
// for nothing but the search.
func (c *Client) handleSearch(from netip.AddrPort, payload []byte, now time.Time, out *Out) {
	c.stats.Received++
	s := &c.search
	p, err := teredo.Parse(payload)
	switch {
	case err != nil:
		c.drop(faultReason(err))
	case from != c.primary.server || s.phase == searchIdle:
		c.drop(NotSearched)
	case s.exchange.active && p.IPv6.NextHeader() == packet.ProtoICMPv6:
		c.searchAdvertised(from, &p, now)
	case s.phase == searchTesting && teredo.IsBubble(p.IPv6) && p.IPv6.Src() == c.last.address && p.IPv6.Dst() == s.address:
		c.stats.BubblesReceived++
		c.candidateSucceeded(now, out)
	default:
		c.drop(NotSearched)
	}
}

// searchAdvertised takes an advertisement: the interaction from which the
// candidate interval counts.
func (c *Client) searchAdvertised(from netip.AddrPort, p *teredo.Packet, now time.Time) {
	s := &c.search
	asked, prefix := c.advertisement(from, p, &s.exchange)
	if asked == nil {
		return
	}
	s.exchange.active = false
	s.address = teredo.Addr{Prefix: prefix, Server: c.last.server, Mapped: p.Origin}.IP()
	s.phase = searchWaiting
	s.due = now.Add(s.candidate)
}

// tickSearch does what is due.
func (c *Client) tickSearch(now time.Time, out *Out) {
	s := &c.search
	switch {
	case s.phase == searchIdle || now.Before(c.nextSearch()):
	case s.phase == searchQualifying && s.exchange.sent < c.cfg.Attempts:
		c.resolicit(&s.exchange, now, out)
	case s.phase == searchQualifying:
		c.stopSearch(out)
	case s.phase == searchWaiting:
		s.phase, s.sent = searchTesting, 0
		c.testCandidate(now, out)
	case s.sent < maxAttempts:
		c.testCandidate(now, out)
	default:
		c.candidateFailed(now, out)
	}
}

// nextSearch is when tickSearch has something to do; zero is never.
func (c *Client) nextSearch() time.Time {
	switch c.search.phase {
	case searchIdle:
		return time.Time{}
	case searchQualifying:
		return c.search.exchange.due
	}
	return c.search.due
}

// testCandidate sends a bubble from the service port to the secondary address, by
// way of the server: that reaches the secondary port, whatever the NAT filters, if
// its mapping has lived for the candidate interval. A direct bubble would need a
// NAT that hairpins.
func (c *Client) testCandidate(now time.Time, out *Out) {
	s := &c.search
	s.sent++
	s.due = now.Add(retryInterval)
	c.stats.IndirectBubbles++
	b := teredo.AppendBubble(out.Alloc(teredo.BubbleLen), c.last.address, s.address)
	out.SendUDP(0, c.primary.server, b)
}

// candidateSucceeded takes the candidate as the interval and goes on to a longer
// one.
func (c *Client) candidateSucceeded(now time.Time, out *Out) {
	s := &c.search
	c.interval = s.candidate
	next := s.after(c.interval)
	if next-c.interval < searchGrain {
		c.stopSearch(out)
		return
	}
	s.candidate = next
	c.qualifySearch(now, out)
}

// candidateFailed goes back half of the way, unless the interval is near enough to
// what failed.
func (c *Client) candidateFailed(now time.Time, out *Out) {
	s := &c.search
	s.maximum = s.candidate
	if 100*c.interval >= concluded*s.maximum {
		c.stopSearch(out)
		return
	}
	s.candidate = (c.interval + s.maximum) / 2
	c.qualifySearch(now, out)
}
