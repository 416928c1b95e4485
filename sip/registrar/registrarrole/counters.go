// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/registrar"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// Transports, by number.
const (
	udp = iota
	tcp
	tlsTransport
	numTransports
)

var transports = map[string]int{"UDP": udp, "TCP": tcp, "TLS": tlsTransport}

// counters are what the instance has seen, by all its goroutines.
type counters struct {
	received    [numTransports]atomic.Uint64
	keepAlives  atomic.Uint64
	rateLimited atomic.Uint64 // datagrams that were dropped
	delayed     atomic.Uint64 // readings of connections
	faults      faults
}

// streamCounters are those of connections.
type streamCounters struct {
	accepted, opened     atomic.Uint64
	refused, gaveWay     atomic.Uint64 // without a place, and whose place another has got
	idled, slow          atomic.Uint64 // closed by their time
	slowReaders, unsent  atomic.Uint64
	handshakes, unopened atomic.Uint64
}

// faults are what was wrong with messages, by name.
type faults map[string]*atomic.Uint64

func newFaults() faults {
	all := faults{}
	for _, name := range message.FaultNames() {
		all[name] = new(atomic.Uint64)
	}
	return all
}

func (c *counters) fault(f *message.Fault) { c.faults[f.Name].Add(1) }

// eachDropped calls f for every reason for which a message was not what its sender wanted, in a fixed
// order; the loop's mutex is held.
func (r *Registrar) eachDropped(f func(reason string, n uint64)) {
	c := &r.counters
	for _, name := range slices.Sorted(maps.Keys(c.faults)) {
		f(name, c.faults[name].Load())
	}
	f("rate_limit", c.rateLimited.Load())
	stats := r.proxy.Stats()
	for reason, n := range stats.Refused {
		f(registrar.Reason(reason).String(), n)
	}
	for verdict, n := range r.proxy.Verdicts() {
		if v := registrar.Verdict(verdict); v != registrar.Relayed && v != registrar.Redirected {
			f(v.String(), n)
		}
	}
	f("stray_response", r.proxy.Layer().Stats().Strays)
}

// sizes are what there is now, and what was counted until now.
type sizes struct {
	addresses, bindings, servers, clients int
	stats                                 registrar.Stats
	verdicts                              [registrar.NumVerdicts]uint64
	layer                                 transaction.Stats
}

func (r *Registrar) sizes() (s sizes) {
	r.do(func(p *registrar.Proxy, _ time.Time, _ *registrar.Output) {
		s.addresses, s.bindings = p.Table().Len()
		s.servers, s.clients = p.Layer().Len()
		s.stats, s.verdicts, s.layer = p.Stats(), p.Verdicts(), p.Layer().Stats()
	})
	return s
}

// Collect implements [role.Instance].
func (r *Registrar) Collect(emit func(role.Metric)) {
	s, c := r.sizes(), &r.counters
	for name, number := range transports {
		emit(role.Metric{Name: "messages_total", Kind: role.Counter, Help: "Messages received, by transport.", Path: name, Value: float64(c.received[number].Load())})
	}
	emit(role.Count("registrations_total", "Registrations that have changed bindings.", s.stats.Registered))
	emit(role.Count("registration_queries_total", "Registrations that have asked for bindings.", s.stats.Queried))
	emit(role.Count("bindings_expired_total", "Bindings that have expired.", s.stats.Expired))
	for reason, n := range s.stats.Refused {
		emit(role.Metric{Name: "registrations_refused_total", Kind: role.Counter, Help: "Registrations and proofs refused, by reason.", Reason: registrar.Reason(reason).String(), Value: float64(n)})
	}
	for verdict, n := range s.verdicts {
		emit(role.Metric{Name: "requests_total", Kind: role.Counter, Help: "Requests that were not for the registrar, by what became of them.", Verdict: registrar.Verdict(verdict).String(), Value: float64(n)})
	}
	emit(role.Count("repeated_total", "Messages sent again.", s.layer.Repeated))
	emit(role.Count("absorbed_total", "Messages that came again.", s.layer.Absorbed))
	emit(role.Count("timeouts_total", "Requests without a response, and responses without an ACK.", s.layer.Timeouts))
	emit(role.Count("keep_alives_total", "Keep-alives of terminals, STUN among them.", c.keepAlives.Load()))
	emit(role.Level("addresses", "Addresses of record with bindings.", float64(s.addresses)))
	emit(role.Level("bindings", "Bindings.", float64(s.bindings)))
	emit(role.Level("requests_open", "Requests that have come and are not forgotten.", float64(s.servers)))
	emit(role.Level("requests_sent_open", "The same of those that the proxy has sent.", float64(s.clients)))
	r.collectStreams(emit)
	for _, name := range slices.Sorted(maps.Keys(c.faults)) {
		emit(role.Dropped(name, c.faults[name].Load()))
	}
	emit(role.Dropped("rate_limit", c.rateLimited.Load()))
	emit(role.Dropped("stray_response", s.layer.Strays))
	emit(role.Dropped("overload", s.layer.Overloads))
	emit(role.Dropped("source_overload", s.layer.SourceOverloads))
	loop.CollectPort(emit, "udp", r.sockets.stats())
}

// collectStreams reports connections.
func (r *Registrar) collectStreams(emit func(role.Metric)) {
	c := &r.streams.counters
	emit(role.Level("connections", "Connections over TCP and TLS.", float64(r.streams.count())))
	emit(role.Count("connections_accepted_total", "Connections of others.", c.accepted.Load()))
	emit(role.Count("connections_opened_total", "Connections to others.", c.opened.Load()))
	emit(role.Count("connections_delayed_total", "Readings of connections that waited for rate_per_source.", r.counters.delayed.Load()))
	for _, of := range []struct {
		reason string
		n      uint64
	}{
		{"full", c.refused.Load()}, {"gave_way", c.gaveWay.Load()}, {"idle", c.idled.Load()}, {"slow_message", c.slow.Load()},
		{"slow_reader", c.slowReaders.Load()}, {"send_failed", c.unsent.Load()}, {"tls", c.handshakes.Load()}, {"unreachable", c.unopened.Load()},
	} {
		emit(role.Metric{Name: "connections_ended_total", Kind: role.Counter, Help: "Connections refused, or ended by other reasons than the other end's wish.", Reason: of.reason, Value: float64(of.n)})
	}
}
