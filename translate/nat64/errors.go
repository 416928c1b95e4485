// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"io"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/translate"
)

// errorLimits bounds the ICMP errors of the engine's own: all of one class, those to one
// IPv4 host, and those to one client, or to one /64 of clients that are smaller. Anybody's
// IPv4 address can be forged: errors to them leave half of each class to clients.
type errorLimits struct {
	limit   ratelimit.Limit
	buckets [numErrorClasses]ratelimit.Bucket
	hosts4  *ratelimit.PerSource
	clients *ratelimit.Fair
}

func newErrorLimits(s *Errors, clientLength int, random io.Reader) (l errorLimits, err error) {
	if l.hosts4, err = ratelimit.NewPerSource(ratelimit.Limit{}, ratelimit.DefaultBuckets, random); err != nil {
		return l, err
	}
	if l.clients, err = ratelimit.NewFair(ratelimit.Limit{}, ratelimit.DefaultBuckets, random); err != nil {
		return l, err
	}
	l.clients.SetClientLength(clientLength)
	l.set(s)
	return l, nil
}

// set changes the limits; buckets keep what they hold.
func (l *errorLimits) set(s *Errors) {
	l.limit = ratelimit.PerSecond(s.Rate, s.Burst)
	source := ratelimit.PerSecond(s.SourceRate, s.SourceBurst)
	l.hosts4.SetLimit(source)
	l.clients.SetLimit(source)
}

// share takes an error to a host from those that it may have, and tells by what share it may
// take one of those of a class.
func (l *errorLimits) share(to netip.Addr, now time.Time) ratelimit.Share {
	switch {
	case to.Is6():
		return l.clients.Take(to, now)
	case l.hosts4.Allow(to, now):
		return ratelimit.Spare
	}
	return ratelimit.NoShare
}

// classOf returns the class of an error that translation owes.
func classOf(r translate.Reason) ErrorClass {
	switch r {
	case translate.ReasonHopLimit:
		return ErrorHopLimit
	case translate.ReasonTooBig:
		return ErrorTooBig
	case translate.ReasonSourceRoute, translate.ReasonSegmentsLeft:
		return ErrorParameter
	}
	return ErrorProhibited
}

// mayAnswer reports whether an error of the class may go to a host now.
func (e *Engine) mayAnswer(c *call, class ErrorClass, to netip.Addr) bool {
	if e.settings.Errors.Off[class] || !e.errors.buckets[class].Take(e.errors.limit, e.errors.share(to, c.now), c.now) {
		e.stats.ErrorsWithheld[class]++
		return false
	}
	return true
}

// answer sends an error that was made already.
func (e *Engine) answer(c *call, class ErrorClass, to netip.Addr, message []byte) {
	stranger := to.Is6() && !e.clients.has(to) && !e.settings.DetourPrefix.Contains(to) // who may not send is not answered either
	if len(message) == 0 || stranger || !e.mayAnswer(c, class, to) {
		return
	}
	e.stats.ErrorsSent[class]++
	if !to.Is4() || !e.pool.has(to) {
		c.out.SendIP(message)
		return
	}
	second := *c
	second.turned = true
	if r := e.from4(&second, message); r != none {
		e.stats.Dropped[r]++
	}
}

// refuse4 and refuse6 answer a packet of that family with an error and return the reason
// for its drop.
func (e *Engine) refuse4(c *call, ip []byte, class ErrorClass, typ, code uint8, why Reason) Reason {
	if m := e.translator.ErrorAbout4(ip, typ, code, c.path, &c.out.Batch); m != nil {
		e.answer(c, class, sender4(ip), m)
	}
	return why
}

func (e *Engine) refuse6(c *call, ip []byte, class ErrorClass, typ, code uint8, why Reason) Reason {
	m := e.translator.ErrorAbout6(ip, typ, code, &c.out.Batch)
	if m != nil {
		e.answer(c, class, packet.IPv6(ip).Src(), m)
	}
	return why
}

// icmpReply sends the error of a translation that failed and returns the reason.
func (e *Engine) icmpReply(c *call, res translate.Result, to netip.Addr) Reason {
	if res.Verdict == translate.Error {
		e.answer(c, classOf(res.Reason), to, res.Error)
	}
	return Reason(res.Reason)
}

func sender4(ip []byte) netip.Addr { return netip.AddrFrom4([4]byte(ip[12:16])) }

// totalLength4 is the length an IPv4 header gives.
func totalLength4(ip []byte) int { return int(binary.BigEndian.Uint16(ip[2:])) }

// ICMP types and codes that are sent here.
const (
	icmpUnreachable = 3 // RFC 792

	codeHost       = 1
	codeProtocol   = 2
	codePort       = 3
	codeProhibited = 13 // RFC 1812 section 5.2.7.1

	codeProhibited6 = 1 // RFC 4443 section 3.1
	codePort6       = 4
)
