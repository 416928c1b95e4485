// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"crypto/rand"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/registrar"
	"github.com/isthmus-net/isthmus/sip/stun"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// fromUDP takes datagrams of a listener with its number.
func (r *Registrar) fromUDP(number int, l registrar.Listener) func(*port.Message, time.Time, *output) {
	return func(m *port.Message, now time.Time, out *output) {
		from := source(m.From)
		r.counters.received[udp].Add(1)
		if !r.rates.admit(from.Addr(), now) {
			r.counters.rateLimited.Add(1)
			return
		}
		switch {
		case isKeepAlive(m.Payload):
			r.counters.keepAlives.Add(1)
		case stun.IsMessage(m.Payload):
			r.counters.keepAlives.Add(1)
			if answer := stun.AppendAnswer(out.Alloc(64), m.Payload, from); len(answer) > 0 {
				out.SendUDP(number, m.From, answer)
			}
		default:
			one, fault := message.Parse(m.Payload)
			r.take(one, fault, transaction.Target{Transport: l.Transport, Local: l.Address, Remote: from}, now, out)
			if r.loop.Tracing() { // what was sent is seen with what it was sent for
				r.settled(out)
			}
		}
	}
}

// isKeepAlive reports whether a datagram holds nothing but the line ends, or the zeros, by which some
// user agents keep the binding of a NAT.
func isKeepAlive(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return c != '\r' && c != '\n' && c != 0 })
}

// take gives a message to the proxy, or answers what is wrong with it; the loop's mutex is held.
func (r *Registrar) take(m *message.Message, fault *message.Fault, from transaction.Target, now time.Time, out *output) {
	if fault == nil {
		r.proxy.Handle(m, from, now, &out.sip)
		return
	}
	r.counters.fault(fault)
	out.sip.Refuse(m, fault, from, r.tag)
}

// rates limit sources, for many goroutines.
type rates struct {
	mu      sync.Mutex
	sources *ratelimit.PerSource
	trusted []netip.Prefix // these are not limited
}

func (r *rates) open(cfg *Settings) (err error) {
	r.sources, err = ratelimit.NewPerSource(rate(cfg), ratelimit.DefaultBuckets, rand.Reader)
	r.trusted = cfg.Trusted
	return err
}

func rate(cfg *Settings) ratelimit.Limit { return ratelimit.PerSecond(cfg.RatePerSource, cfg.Burst) }

func (r *rates) set(cfg *Settings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sources.SetLimit(rate(cfg))
	r.trusted = cfg.Trusted
}

// admit takes a message of a source.
func (r *rates) admit(a netip.Addr, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.trusted, func(p netip.Prefix) bool { return p.Contains(a) }) || r.sources.Allow(a, now)
}
