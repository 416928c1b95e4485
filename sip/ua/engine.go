// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"cmp"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// Settings of an engine; the zero value of each is the default.
type Settings struct {
	// AOR is the address of record, by which others call and which requests are from.
	AOR         message.URI
	DisplayName string
	// Username and Password answer challenges; the username is that of AOR by default.
	Username, Password string
	// SIM answers challenges of AKA, nil if there is none.
	SIM *SIM
	// Proxy, if its host is set, is where requests outside a dialog go first; registrations
	// go there as well, and to AOR's domain without one.
	Proxy message.URI
	// Lookup finds where a host's name leads, the best first; literals need none. The transport is ""
	// where it is open, the port 0. It answers at once, out of what its owner has resolved before;
	// [Output.Lookups] say what is missing.
	Lookup func(name string, port uint16, transport string) []transaction.Target

	// Register is how long registrations shall last, 0 for none.
	Register time.Duration
	// Instance is a URN that names the device over restarts, such as urn:uuid:…, for
	// RFC 5626; "" registers without.
	Instance string
	// KeepAlive sends keep-alives to the registrar whether it speaks of RFC 5626 or not.
	KeepAlive bool

	// SessionExpires is the interval of session timers, MinSE the least that is accepted
	// (RFC 4028): 1800 s and 90 s. A negative interval asks for none.
	SessionExpires, MinSE time.Duration
	// Reliable rings by reliable provisional responses if the caller knows them (RFC 3262).
	Reliable bool
	// RingFor is how long a call that comes in rings until it is refused by 480, 0 for 3 minutes: a proxy
	// waits for an answer no less (RFC 3261 section 16.6, Timer C).
	RingFor time.Duration
	// MaxCalls is the most calls at a time, 0 for 4096. Half of them may be calls that came in and only ring, and half
	// of these of one source.
	MaxCalls int
	// RetryAfterCap is the longest wait that a peer's Retry-After imposes on a move, 0 for 4 s.
	RetryAfterCap time.Duration
	// UserAgent is the program's name for User-Agent and Server, "" for none.
	UserAgent string
	// FirstRepeat is when a request without an answer is repeated for the first time, 0 for T1.
	// Sooner than T1 is for closed networks alone (RFC 3261 section 17.1.1.2).
	FirstRepeat time.Duration
	// Transactions are the timers and bounds beneath, those of transaction.Defaults if there are none.
	Transactions transaction.Settings
}

// Engine is a user agent. It is for one thread at a time.
type Engine struct {
	set       Settings
	random    *rand.ChaCha8
	layer     *transaction.Layer
	tx        transaction.Output // what the layer has put out, until leave
	paths     map[int]*path
	use       *path // nil: there is none
	calls     map[CallID]*Call
	dialogs   map[dialogKey]*Call
	ringing   unanswered
	last      CallID
	reg       registration
	realms    []string           // of the registrar
	waiting   []func()           // what is sent when there is an address again
	followers []*Call            // that have yet to ask their peers to follow
	following *transaction.Timer // when the next of them do
	sought    map[place][]func() // what is sent when it is known where that is
	stats     Stats

	// of the call that its owner is in
	now time.Time
	out *Output
}

// New makes an engine.
func New(s Settings, random io.Reader) (*Engine, error) {
	if s.AOR.Host == "" {
		return nil, errors.New("a user agent needs an address of record, such as sip:alice@example.com")
	}
	var seed [32]byte
	if _, err := io.ReadFull(random, seed[:]); err != nil {
		return nil, fmt.Errorf("no randomness for tags and branches: %w", err)
	}
	s.AOR.Scheme = cmp.Or(s.AOR.Scheme, "sip")
	s.Proxy.Scheme = cmp.Or(s.Proxy.Scheme, "sip")
	s.Username = cmp.Or(s.Username, s.AOR.User)
	s.SessionExpires = cmp.Or(s.SessionExpires, 1800*time.Second)
	s.MinSE = cmp.Or(s.MinSE, 90*time.Second)
	s.RingFor = cmp.Or(s.RingFor, 3*time.Minute)
	s.MaxCalls = cmp.Or(s.MaxCalls, 4096)
	s.RetryAfterCap = cmp.Or(s.RetryAfterCap, 4*time.Second)
	s.Transactions = cmp.Or(s.Transactions, transaction.Defaults())
	e := &Engine{
		set: s, random: rand.NewChaCha8(seed), layer: transaction.New(s.Transactions),
		paths: map[int]*path{}, calls: map[CallID]*Call{}, dialogs: map[dialogKey]*Call{}, sought: map[place][]func(){},
		ringing: unanswered{of: map[netip.Prefix]int{}},
	}
	e.following = e.timer(e.follow)
	e.reg.init(e)
	return e, nil
}

// enter notes the time and the output of a call by the owner. What it returns does what is left to
// do, and forgets them.
func (e *Engine) enter(now time.Time, out *Output) (leave func()) {
	e.now, e.out = now, out
	return func() {
		e.settle()
		e.put()
		e.out = nil
	}
}

// settle takes what the layer has told, until there is nothing more.
func (e *Engine) settle() {
	for i := 0; i < len(e.tx.Events); i++ { // taking one may add others
		e.event(e.tx.Events[i])
	}
	clear(e.tx.Events)
	e.tx.Events = e.tx.Events[:0]
}

func (e *Engine) event(v transaction.Event) {
	switch v.Kind {
	case transaction.Request:
		e.request(v.Server)
	case transaction.ACK:
		e.ack(v.Message, v.From)
	case transaction.Response, transaction.Timeout, transaction.Unreachable:
		e.result(v)
	case transaction.Stray:
		// A 2xx to an INVITE among them is one whose transaction is over: its sender will end
		// the call for want of an ACK.
		e.stats.Strays++
	case transaction.Overload: // counted by the layer; who has sent it comes again
	}
}

// result tells who has sent a request what has become of it.
func (e *Engine) result(v transaction.Event) {
	if v.Client == nil {
		return // an answer of ours without an ACK
	}
	a, ok := v.Client.User.(*attempt)
	switch {
	case !ok, e.nextServer(a, &v): // no one cares, or another server may know
	case v.Kind == transaction.Timeout:
		a.handle(nil, errTimeout)
	case v.Kind == transaction.Unreachable:
		a.handle(nil, errTransport)
	default:
		a.handle(v.Message, nil)
	}
}

// Tick does what is due.
func (e *Engine) Tick(now time.Time, out *Output) {
	defer e.enter(now, out)()
	e.layer.Tick(now, &e.tx)
}

// Next is when Tick has something to do; zero is never.
func (e *Engine) Next() time.Time { return e.layer.Next() }

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Transactions = e.layer.Stats()
	return s
}

// Calls returns the numbers of all calls, in the order of their begin.
func (e *Engine) Calls() []CallID { return slices.Sorted(maps.Keys(e.calls)) }

// sorted has the calls in the order of their begin.
func (e *Engine) sorted() []*Call {
	calls := make([]*Call, 0, len(e.calls))
	for _, id := range e.Calls() {
		calls = append(calls, e.calls[id])
	}
	return calls
}

// self is From, or the To of a registration.
func (e *Engine) self() message.Address {
	a := message.Address{URI: e.set.AOR}
	if e.set.DisplayName != "" {
		a.Display = message.Quote(e.set.DisplayName)
	}
	return a
}

// tell puts out an event.
func (e *Engine) tell(v Event) { e.out.Events = append(e.out.Events, v) }

// token is random text that no one can guess: 80 bits for tags, branches and Call-IDs.
func (e *Engine) token() string {
	var b [10]byte
	_, _ = e.random.Read(b[:])
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// between is a random time from low to high, in steps of 10 ms (RFC 3261 section 14.1).
func (e *Engine) between(low, high time.Duration) time.Duration {
	const step = 10 * time.Millisecond
	n := uint64((high-low)/step) + 1
	return low + time.Duration(e.random.Uint64()%n)*step
}

// timer makes a timer of the engine's. What the layer has told before it is due comes first.
func (e *Engine) timer(fire func()) *transaction.Timer {
	return &transaction.Timer{Fire: func(time.Time, *transaction.Output) {
		e.settle()
		fire()
	}}
}

// after has a timer fire after a while.
func (e *Engine) after(t *transaction.Timer, d time.Duration) { e.layer.SetTimer(t, e.now.Add(d)) }

// Handle takes a message that came to the address of a path, From.Local.
func (e *Engine) Handle(b []byte, from transaction.Target, now time.Time, out *Output) {
	defer e.enter(now, out)()
	from.Remote = netip.AddrPortFrom(from.Remote.Addr().Unmap(), from.Remote.Port())
	if e.reg.keepAliveAnswer(b, from) {
		return
	}
	m, fault := message.Parse(b)
	if fault != nil {
		e.malformed(m, fault, from)
		return
	}
	e.layer.Handle(m, from, now, &e.tx)
}

// Broken takes the last of a stream in which no further message can be found, by a fault of
// [message.Frame]: a request is answered as far as it has come.
func (e *Engine) Broken(b []byte, fault *message.Fault, from transaction.Target, now time.Time, out *Output) {
	defer e.enter(now, out)()
	m, _ := message.Parse(b[:min(len(b), message.MaxSize)])
	if m != nil && !m.IsRequest() {
		m = nil
	}
	e.malformed(m, fault, from)
}

// malformed counts what has a fault, and answers it if that has a status.
func (e *Engine) malformed(m *message.Message, f *message.Fault, from transaction.Target) {
	e.stats.Malformed++
	e.tx.Refuse(m, f, from, e.token())
}

// Unreachable tells that a target failed: a connection that broke or did not come about, or an
// ICMP error. What no one has answered by TCP goes by UDP if it may (RFC 3261 section 18.1.1);
// everything else ends as a transport error.
func (e *Engine) Unreachable(to transaction.Target, now time.Time, out *Output) {
	defer e.enter(now, out)()
	to.Remote = netip.AddrPortFrom(to.Remote.Addr().Unmap(), to.Remote.Port())
	e.backToUDP(to)
	e.layer.FailAll(func(c *transaction.Client) bool { return c.Waiting() && c.To == to }, &e.tx)
	e.settle()
	e.reg.unreachable(to)
}
