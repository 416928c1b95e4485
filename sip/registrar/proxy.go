// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// ProxySettings are those of a proxy or redirect server in front of a registrar.
type ProxySettings struct {
	// Listeners are where requests come to and leave from, one of a transport and family.
	Listeners []Listener
	// Redirect answers with the contacts in place of passing requests on (RFC 3261 section 8.3).
	Redirect bool
	// RecordRoute keeps the proxy in the path of dialogs.
	RecordRoute bool
	// Prove has callers of the proxy's own domains prove who they are. Who calls others through
	// it must do so in any case.
	Prove bool
	// Trusted are the proxies beside this one, which have proved who calls.
	Trusted []netip.Prefix
	// NextHop is the SIP URI of the proxy to which everything goes that comes from terminals: this
	// one stands before it, and keeps the ways to terminals for it (RFC 3327). Empty: there is none.
	NextHop string
	// ICSCF is the SIP URI of the proxy by which calls for those go whom another registrar serves (TS
	// 23.228 section 5.5.1): it knows which. Empty: they go straight there.
	ICSCF string
	// TimerC is how long an INVITE may ring (RFC 3261 section 16.6, number 11).
	TimerC time.Duration
	// MaxForks bounds the targets of a request.
	MaxForks int
	// MTU is that of the path; 0: not known.
	MTU          int
	Transactions transaction.Settings
}

// Listener is a socket of the proxy.
type Listener struct {
	Transport string // "UDP", "TCP" or "TLS"
	Address   netip.AddrPort
}

// ProxyDefaults are settings without listeners.
func ProxyDefaults() ProxySettings {
	return ProxySettings{RecordRoute: true, Prove: true, TimerC: 185 * time.Second, MaxForks: 10, Transactions: transaction.Defaults()}
}

// Output is what a proxy has done: messages to send, and names to resolve.
type Output struct {
	transaction.Output
	// Lookups are names for [Proxy.Resolved].
	Lookups []Lookup
}

// Lookup is a host that a request goes to, which is to be resolved (RFC 3263).
type Lookup struct {
	ID        uint64
	URI       message.URI
	Transport string
}

// Proxy is a stateful proxy or redirect server with its registrar.
type Proxy struct {
	*Engine
	settings ProxySettings
	layer    *transaction.Layer
	waiting  waiting
	lookups  map[uint64]foundFunc
	lookup   uint64
	nextHop  map[string][]netip.Addr // where its name was found, by transport
	relayed  [NumVerdicts]uint64
	origin   transaction.Target // that of the message at hand, wherever its response goes
	// Connected reports whether a connection is still there; nil: all are.
	Connected func(transaction.Target) bool
}

// NewProxy makes a proxy without bindings.
func NewProxy(s Settings, p ProxySettings, random io.Reader) (*Proxy, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	e, err := New(s, random)
	if err != nil {
		return nil, err
	}
	proxy := &Proxy{Engine: e, settings: p, layer: transaction.New(p.Transactions), waiting: waiting{}, lookups: map[uint64]foundFunc{}, nextHop: map[string][]netip.Addr{}}
	proxy.layer.Reserved = proxy.continues
	return proxy, nil
}

// continues reports whether a request goes on with what there is: it ends or changes a call, or keeps somebody
// reachable here. When new calls fill all other places, calls that are there still end. A REGISTER that is passed on
// waits for its answer, so whoever sends many could take these places as well.
func (p *Proxy) continues(m *message.Message) bool {
	switch m.Method {
	case "CANCEL":
		return true
	case "REGISTER":
		return p.onward(m) == ""
	}
	by := p.preprocess(m.Clone())
	return by.within(m)
}

func (s *ProxySettings) check() error {
	if len(s.Listeners) == 0 || s.MaxForks < 1 || s.TimerC < 3*time.Minute {
		return errors.New("a proxy needs a listener, room for a fork, and a Timer C of three minutes at least")
	}
	for _, uri := range []string{s.NextHop, s.ICSCF} {
		if u, err := message.ParseURI(uri); uri != "" && (err != nil || !u.IsSIP()) {
			return fmt.Errorf("%s is no SIP URI", uri)
		}
	}
	return nil
}

// Reconfigure sets other settings, or returns what is wrong with them and keeps the old ones. What
// goes on goes on as it was begun.
func (p *Proxy) Reconfigure(s Settings, ps ProxySettings) error {
	if err := ps.check(); err != nil {
		return err
	}
	if err := p.Engine.Reconfigure(s); err != nil {
		return err
	}
	if ps.NextHop != p.settings.NextHop {
		clear(p.nextHop)
	}
	p.settings = ps
	p.layer.Reconfigure(ps.Transactions)
	return nil
}

// Verdict is what has become of a request that was not for the registrar.
type Verdict uint8

// Verdicts.
const (
	Relayed Verdict = iota
	Redirected
	Unproved // no proof of who calls
	ForeignTarget
	NoBinding
	TooManyHops
	Loop
	UnknownScheme
	ProxyExtension
	TooManyForks
	Overloaded
	Unmatched       // a CANCEL, an ACK or a request in a dialog of nothing that is known
	NoWay           // no listener reaches the target
	FlowFailed      // the connection to the terminal is gone
	NumVerdicts int = iota
)

var verdictNames = [NumVerdicts]string{
	"relayed", "redirected", "unproved", "foreign_target", "no_binding", "too_many_hops", "loop", "unknown_scheme", "proxy_extension",
	"too_many_forks", "overloaded", "unmatched", "no_way",
	"flow_failed",
}

// String returns the name of the counter.
func (v Verdict) String() string { return verdictNames[v] }

// Verdicts counts requests by what has become of them.
func (p *Proxy) Verdicts() [NumVerdicts]uint64 { return p.relayed }

// Layer is the proxy's transaction layer, for its counters.
func (p *Proxy) Layer() *transaction.Layer { return p.layer }

// Handle takes a message that [message.Parse] has found no fault with.
func (p *Proxy) Handle(m *message.Message, from transaction.Target, now time.Time, out *Output) {
	p.origin = from
	p.layer.Handle(m, from, now, &out.Output)
	p.settle(now, out)
}

// Tick does what is due.
func (p *Proxy) Tick(now time.Time, out *Output) {
	p.Engine.Tick(now)
	p.layer.Tick(now, &out.Output)
	p.settle(now, out)
}

// Next is when something is due; zero: never.
func (p *Proxy) Next() time.Time {
	next, other := p.Engine.Next(), p.layer.Next()
	if next.IsZero() || !other.IsZero() && other.Before(next) {
		return other
	}
	return next
}

// Unreachable ends what was to go to a target that cannot be reached, such as by a connection that
// was closed.
func (p *Proxy) Unreachable(to transaction.Target, now time.Time, out *Output) {
	p.layer.FailAll(func(c *transaction.Client) bool { return c.To == to }, &out.Output)
	p.settle(now, out)
}

// Unopened notes that no connection to a target could be opened.
func (p *Proxy) Unopened(to transaction.Target, now time.Time) { p.layer.Avoid(to, now) }

// settle takes what the layer has told, until there is nothing more.
func (p *Proxy) settle(now time.Time, out *Output) {
	for len(out.Events) > 0 {
		events := slices.Clone(out.Events)
		out.Events = out.Events[:0]
		for i := range events {
			p.event(&events[i], now, out)
		}
	}
}

func (p *Proxy) event(e *transaction.Event, now time.Time, out *Output) {
	switch e.Kind {
	case transaction.Request:
		p.request(e.Server, now, out)
	case transaction.ACK:
		p.ack(e.Message, now, out)
	case transaction.Response:
		p.response(e, now, out)
	case transaction.Timeout, transaction.Unreachable:
		if f := forkOf(e.Client); f != nil {
			p.failed(f, e, now, out)
		}
	case transaction.Overload:
		p.relayed[Overloaded]++
		r := p.reply(e.Message, 503, "Service Unavailable")
		r.Add("Retry-After", "10")
		out.Sends = append(out.Sends, transaction.Send{To: e.From, Message: r})
	case transaction.Stray: // RFC 6026 section 7.3: dropped, and counted by the layer
	}
}

// answer ends a request with a response of the proxy's own, once and without state (RFC 3261 section
// 26.3.2.4): whoever forges a source shall neither take room here, nor have responses repeated to it.
// If the response is lost, the request comes again and gets the same.
func (p *Proxy) answer(s *transaction.Server, v Verdict, status int, reason string, out *Output, fields ...message.Header) {
	p.relayed[v]++
	r := p.reply(s.Request, status, reason)
	r.Headers = append(r.Headers, fields...)
	p.once(s, r, out)
}

// once sends a response without state.
func (p *Proxy) once(s *transaction.Server, r *message.Message, out *Output) {
	out.Sends = append(out.Sends, transaction.Send{To: s.From, Message: r})
	s.End()
}

// register answers a REGISTER. What has changed bindings is answered the same when it comes again,
// and refusals leave nothing behind.
func (p *Proxy) register(s *transaction.Server, now time.Time, out *Output) {
	r := p.Register(s.Request, sourceOf(s.Request, p.origin), now)
	if r.Status >= 300 {
		p.once(s, r, out)
		return
	}
	s.Respond(r, now, &out.Output)
	if to, ok := s.Request.To(); ok {
		p.follow(p.directory.byAOR[aorOf(&to.URI)], now, out)
	}
}

// request answers a new request, or passes it on.
func (p *Proxy) request(s *transaction.Server, now time.Time, out *Output) {
	m := s.Request
	target, err := message.ParseURI(m.URI)
	p.stripMaddr(&target)
	switch {
	case m.Method == "CANCEL":
		p.cancel(s, now, out)
		return
	case err != nil || !target.IsSIP() && target.Scheme != "tel":
		p.answer(s, UnknownScheme, 416, "Unsupported URI Scheme", out)
		return
	case m.Method == "OPTIONS" && target.User == "" && p.own(&target): // RFC 3261 section 11
		r := p.reply(m, 200, "OK")
		r.Add("Supported", strings.Join(supported, ", "))
		p.once(s, r, out)
		return
	case m.Method == "REGISTER" && p.registers(&target) && p.onward(m) == "":
		p.register(s, now, out)
		return
	}
	if hops, there := m.MaxForwards(); there && hops == 0 {
		p.answer(s, TooManyHops, 483, "Too Many Hops", out)
		return
	}
	if tags := m.Unsupported("Proxy-Require"); len(tags) > 0 {
		p.answer(s, ProxyExtension, 420, "Bad Extension", out, message.Header{Name: "Unsupported", Value: strings.Join(tags, ", ")})
		return
	}
	m = m.Clone() // what is passed on; the transaction keeps what has come
	p.disown(m, s.From.Remote.Addr())
	by := p.preprocess(m)
	if p.loops(m) {
		p.answer(s, Loop, 482, "Loop Detected", out)
		return
	}
	if by.failed(m) {
		p.answer(s, FlowFailed, 430, "Flow Failed", out)
		return
	}
	if by.known || p.allowed(s, m, now, out) {
		p.relay(s, m, by, now, out)
	}
}
