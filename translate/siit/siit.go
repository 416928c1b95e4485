// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package siit is the engine of a stateless IP/ICMP translator (RFC 7915) with the
// address forms of RFC 6052 and the explicit mappings of RFC 7757. All rules are in
// package translate; the engine adds what a running translator has beside them: the
// rate of the ICMP errors that it owes, counters, and settings that change between two
// packets.
//
//house:engine
package siit

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/ipid"
)

// Settings of an Engine.
type Settings struct {
	Translate translate.Settings
	// MTU4 and MTU6 are the sizes that the networks on either side take, in bytes; 0
	// leaves the check to the host's routes.
	MTU4, MTU6 int
	// Link4 and Link6 are what the links of this host take at most; see [translate.Path].
	Link4, Link6 int
	// Pool4 are IPv4 addresses that the host leads to the translator, beside those of
	// the mappings.
	Pool4 []netip.Prefix
	// ErrorRate is how many ICMP errors the translator sends a second, a quarter of them to
	// one IPv6 /64 or IPv4 /24; 0 is any number.
	ErrorRate int
	// Silent are the classes of errors that are not sent at all.
	Silent [NumClasses]bool
}

// Stats count packets since the engine was made.
type Stats struct {
	// FromIPv4 and FromIPv6 came in; ToIPv4 and ToIPv6 went out. A packet that was cut
	// into fragments counts once for each.
	FromIPv4, FromIPv6, ToIPv4, ToIPv6 uint64
	// Hairpinned went from IPv6 to IPv6.
	Hairpinned uint64
	// ErrorsSent and ErrorsSuppressed are ICMP errors that the translator owed.
	ErrorsSent, ErrorsSuppressed uint64
	// Dropped counts by translate.Reason, those that earned an error included.
	Dropped [translate.NumReasons]uint64
}

// Engine translates packets one by one. It is for one thread at a time.
type Engine struct {
	settings   Settings
	translator *translate.Translator
	returning  returning
	limit      ratelimit.Limit
	bucket     ratelimit.Bucket
	sources    *ratelimit.Fair
	routers    *translate.Routers
	ids        translate.Identifier
	stats      Stats
	reports    translate.Reports
	told       []translate.Report
}

// New makes an engine. It takes its secrets from random.
func New(s Settings, random io.Reader) (*Engine, error) {
	var seed uint64
	if err := binary.Read(random, binary.NativeEndian, &seed); err != nil {
		return nil, fmt.Errorf("no random seed for the translator: %w", err)
	}
	ids, err := ipid.New(random)
	if err != nil {
		return nil, err
	}
	e := &Engine{routers: translate.NewRouters(seed), ids: ids.Next}
	if e.sources, err = ratelimit.NewFair(ratelimit.Limit{}, ratelimit.DefaultBuckets, random); err != nil {
		return nil, err
	}
	return e, e.Reconfigure(s)
}

// SetIDs has the engine take identifications from where a fast path takes them.
func (e *Engine) SetIDs(ids ipid.IDs) { e.ids = ids.Next }

// Check reports what is wrong with settings.
func Check(s Settings) error {
	_, err := translate.New(s.Translate)
	return err
}

// Reconfigure takes other settings, or refuses them and keeps the old ones.
func (e *Engine) Reconfigure(s Settings) error {
	t, err := translate.New(s.Translate)
	if err != nil {
		return err
	}
	e.settings, e.translator, e.returning = s, t, newReturning(&s)
	e.limit = ratelimit.PerSecond(s.ErrorRate, s.ErrorRate)
	e.sources.SetLimit(e.limit.Part(networkShare))
	return nil
}

// Stats returns the counters.
func (e *Engine) Stats() Stats { return e.stats }

// maxReports bounds the reports that no one has taken.
const maxReports = 16

// EachReport calls f for each report of a dropped packet since the last call.
func (e *Engine) EachReport(f func(translate.Report)) {
	for _, r := range e.told {
		f(r)
	}
	e.told = e.told[:0]
}

// EachDropped calls f for every drop reason, in a fixed order.
func (s *Stats) EachDropped(f func(reason string, n uint64)) {
	for r := translate.ReasonNone + 1; int(r) < translate.NumReasons; r++ {
		f(r.String(), s.Dropped[r])
	}
}

// Handle translates a packet of either family. What comes out is for the host's stack. The
// hop limit of the packet may be changed.
func (e *Engine) Handle(ip []byte, now time.Time, out *packet.Batch) {
	e.HandleFragment(ip, 0, now, out)
}

// HandleFragment is Handle for a fragment of an ICMP message of which it is known how long
// that is; see [translate.Path].
func (e *Engine) HandleFragment(ip []byte, message int, now time.Time, out *packet.Batch) {
	path := translate.Path{MTU4: e.settings.MTU4, MTU6: e.settings.MTU6, Link4: e.settings.Link4, Link6: e.settings.Link6, IDs: e.ids, Routers: e.routers, Message: message}
	before := len(out.IP)
	var r translate.Result
	from6 := len(ip) > 0 && ip[0]>>4 == 6
	if from6 {
		e.stats.FromIPv6++
		if e.returning.takes(ip) {
			halve(ip)
		}
		r = e.translator.IPv6(ip, path, out)
	} else {
		e.stats.FromIPv4++
		r = e.translator.IPv4(ip, path, out)
	}
	if r.Verdict != translate.Translated {
		e.stats.Dropped[r.Reason]++
		if told, ok := e.reports.Dropped(ip, r.Reason, now); ok && len(e.told) < maxReports {
			e.told = append(e.told, told)
		}
		e.owe(&r, now, out)
		return
	}
	for _, p := range out.IP[before:] {
		switch {
		case p[0]>>4 == 4:
			e.stats.ToIPv4++
		default:
			e.stats.ToIPv6++
			if from6 {
				e.stats.Hairpinned++
			}
		}
	}
}

// owe sends the error of a result, if its class and the rate allow it.
func (e *Engine) owe(r *translate.Result, now time.Time, out *packet.Batch) {
	if r.Verdict != translate.Error {
		return
	}
	if e.settings.Silent[ClassOf(r.Error)] || !e.bucket.Take(e.limit, e.share(r.Error, now), now) {
		e.stats.ErrorsSuppressed++
		return
	}
	e.stats.ErrorsSent++
	out.SendIP(r.Error)
}

// networkShare is the part of the errors that go to one network.
const networkShare = 4

// share takes an error from those that its receiver may have, and tells by what share it may
// take one of those that all have. Anybody's IPv4 address can be forged: errors to them leave
// half to the IPv6 side.
func (e *Engine) share(message []byte, now time.Time) ratelimit.Share {
	if message[0]>>4 == 4 {
		return min(e.sources.Take(netip.AddrFrom4([4]byte(message[16:])), now), ratelimit.Spare)
	}
	return e.sources.Take(packet.IPv6(message).Dst(), now)
}

// Tick implements the loop's engine: there is nothing to do by time.
func (e *Engine) Tick(time.Time, *packet.Batch) {}

// Next implements the loop's engine.
func (e *Engine) Next() time.Time { return time.Time{} }

// Class is a kind of ICMP error that can be switched off.
type Class uint8

// The classes.
const (
	Unreachable Class = iota
	TooBig            // fragmentation needed, packet too big
	HopLimit
	Parameter
	// NumClasses is the number of classes.
	NumClasses
)

// Offsets and types of RFC 792 and RFC 4443.
const (
	icmpUnreachable, icmpTimeExceeded = 3, 11
	codeFragmentation                 = 4
	ipv4HeaderLen                     = 20
)

// ClassOf returns the class of an error that the translator made, which has an IP
// header without options.
func ClassOf(e []byte) Class {
	if e[0]>>4 == 4 {
		switch m := binary.BigEndian.Uint16(e[ipv4HeaderLen:]); {
		case m == icmpUnreachable<<8|codeFragmentation:
			return TooBig
		case m>>8 == icmpUnreachable:
			return Unreachable
		case m>>8 == icmpTimeExceeded:
			return HopLimit
		}
		return Parameter
	}
	switch e[packet.IPv6HeaderLen] {
	case packet.ICMPv6Unreachable:
		return Unreachable
	case packet.ICMPv6PacketTooBig:
		return TooBig
	case packet.ICMPv6TimeExceeded:
		return HopLimit
	}
	return Parameter
}
