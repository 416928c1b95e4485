// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pref64

import (
	"math/rand/v2"
	"time"
)

// Times of a router (RFC 4861 sections 6.2.1 and 10).
const (
	// DefaultInterval is MaxRtrAdvInterval; MinInterval and MaxInterval are its bounds.
	DefaultInterval = 600 * time.Second
	MinInterval     = 4 * time.Second
	MaxInterval     = 1800 * time.Second

	initialInterval = 16 * time.Second
	initialCount    = 3
	delayBetween    = 3 * time.Second
	solicitedDelay  = 500 * time.Millisecond
)

// Schedule says when a router advertises: at random within its interval, sooner at
// first, and soon after a solicitation (RFC 4861 sections 6.2.4 and 6.2.6).
type Schedule struct {
	interval time.Duration
	random   *rand.Rand
	sent     int
	last     time.Time
	next     time.Time

	lastBefore, planned time.Time // last before the latest call of Sent, and next behind it
}

// NewSchedule starts a schedule whose first advertisement is due now.
func NewSchedule(interval time.Duration, random *rand.Rand, now time.Time) *Schedule {
	return &Schedule{interval: interval, random: random, next: now}
}

// Next is when to send.
func (s *Schedule) Next() time.Time { return s.next }

// Sent goes on to the next time. It is called before an advertisement leaves, so that what changes
// meanwhile finds the schedule as it will be.
func (s *Schedule) Sent(now time.Time) {
	s.lastBefore, s.last = s.last, now
	s.sent++
	least := s.interval / 3
	wait := least + time.Duration(s.random.Int64N(int64(s.interval-least)+1))
	if s.sent < initialCount {
		wait = min(wait, initialInterval)
	}
	s.next = now.Add(wait)
	s.planned = s.next
}

// Failed takes [Schedule.Sent] back: the advertisement could not be sent, and is tried again. It
// does not count, for hosts hear the first ones sooner (RFC 4861 section 6.2.4). A time that
// something else has brought about meanwhile stays.
func (s *Schedule) Failed(now time.Time) {
	s.last, s.sent = s.lastBefore, max(s.sent-1, 0)
	if s.next.Equal(s.planned) {
		s.next = now.Add(delayBetween)
	}
}

// Solicited brings the next time forward: one advertisement to all is the answer to all
// who ask meanwhile, and two are never closer than three seconds.
func (s *Schedule) Solicited(now time.Time) {
	at := now.Add(time.Duration(s.random.Int64N(int64(solicitedDelay))))
	if earliest := s.last.Add(delayBetween); at.Before(earliest) {
		at = earliest
	}
	if at.Before(s.next) {
		s.next = at
	}
}

// Soon has the next advertisement sent as soon as the rules allow, since what it says
// has changed, and goes on with another interval.
func (s *Schedule) Soon(interval time.Duration, now time.Time) {
	s.interval, s.sent = interval, 0
	s.next = now
	if earliest := s.last.Add(delayBetween); !s.last.IsZero() && now.Before(earliest) {
		s.next = earliest
	}
}

// Times of a host that asks name servers (RFC 7050 section 3).
const (
	beforeEnd    = 10 * time.Second // of the TTL
	behindEnd    = 20 * time.Second // a round of questions to eight name servers that are silent
	leastAgain   = time.Second
	negativeTime = 60 * time.Second // of an answer that does not say
	failureFirst = 2 * time.Second
	failureMost  = 2 * time.Minute
	longest      = 24 * time.Hour
)

// AskAgain is how long to wait behind an answer with prefixes that is good for ttl: until
// shortly before its end, or until its end where that is near.
func AskAgain(ttl time.Duration) time.Duration {
	if ttl > beforeEnd {
		ttl -= beforeEnd
	}
	return min(max(ttl, leastAgain), longest)
}

// Keep is how long the prefixes of such an answer are used if no other answer comes: beyond
// its end, for a resolver that counts the TTL down has nothing new before.
func Keep(ttl time.Duration) time.Duration { return max(ttl, leastAgain) + behindEnd }

// AskAfterNegative is the same behind an answer without; ttl is 0 if it did not say how
// long that is so.
func AskAfterNegative(ttl time.Duration) time.Duration {
	if ttl <= 0 {
		return negativeTime
	}
	return min(max(ttl, leastAgain), longest)
}

// AskAfterFailures is the same behind failures in a row, the first of which is 1.
func AskAfterFailures(failures int) time.Duration {
	return min(failureFirst<<min(failures-1, 8), failureMost)
}
