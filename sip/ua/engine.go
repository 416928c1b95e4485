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

	"github.com/emiago/sipgo/sip"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// Settings of an engine; the zero value of each is the default.
type Settings struct {
	// AOR is the address of record, by which others call and which requests are from.
	AOR         sip.Uri
	DisplayName string
	// Username and Password answer challenges; the username is that of AOR by default.
	Username, Password string
	// SIM answers challenges of AKA, nil if there is none.
	SIM *SIM
	// Proxy, if its host is set, is where requests outside a dialog go first; registrations
	// go there as well, and to AOR's domain without one.
	Proxy sip.Uri
	// Lookup finds the address of a host's name; literals need none. It answers at once,
	// out of what its owner has resolved before.
	Lookup func(name string, port int, t transaction.Transport) (netip.AddrPort, bool)

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
	// MaxCalls is the most calls at a time, 0 for 4096.
	MaxCalls int
	// RetryAfterCap is the longest wait that a peer's Retry-After imposes on a move, 0 for 4 s.
	RetryAfterCap time.Duration
	// UserAgent is the program's name for User-Agent and Server, "" for none.
	UserAgent string
	// Transactions are the timers beneath; FirstRepeats in there repeats faster.
	Transactions transaction.Settings
}

// Engine is a user agent. It is for one thread at a time.
type Engine struct {
	set     Settings
	random  *rand.ChaCha8
	layer   *transaction.Layer
	paths   map[int]*path
	use     *path // nil: there is none
	calls   map[CallID]*Call
	dialogs map[dialogKey]*Call
	last    CallID
	reg     registration
	waiting []func() // what is sent when there is an address again
	stats   Stats
	parser  *sip.Parser

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
	s.Username = cmp.Or(s.Username, s.AOR.User)
	s.SessionExpires = cmp.Or(s.SessionExpires, 1800*time.Second)
	s.MinSE = cmp.Or(s.MinSE, 90*time.Second)
	s.MaxCalls = cmp.Or(s.MaxCalls, 4096)
	s.RetryAfterCap = cmp.Or(s.RetryAfterCap, 4*time.Second)
	e := &Engine{
		set: s, random: rand.NewChaCha8(seed), layer: transaction.New(s.Transactions), parser: sip.NewParser(),
		paths: map[int]*path{}, calls: map[CallID]*Call{}, dialogs: map[dialogKey]*Call{},
	}
	e.reg.init(e)
	return e, nil
}

// enter notes the time and the output of a call by the owner; what it returns forgets them.
func (e *Engine) enter(now time.Time, out *Output) (leave func()) {
	e.now, e.out = now, out
	return func() { e.out = nil }
}

// Tick does what is due.
func (e *Engine) Tick(now time.Time, out *Output) {
	defer e.enter(now, out)()
	e.layer.Tick(now, &out.Output)
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

// timer makes a timer of the engine's.
func (e *Engine) timer(fire func()) *transaction.Timer {
	return &transaction.Timer{Fire: func(time.Time, *transaction.Output) { fire() }}
}

// after has a timer fire after a while.
func (e *Engine) after(t *transaction.Timer, d time.Duration) { e.layer.SetTimer(t, e.now.Add(d)) }

// Handle takes a message that came by a hop, whose Socket is the number of a path.
func (e *Engine) Handle(b []byte, hop transaction.Hop, now time.Time, out *Output) {
	defer e.enter(now, out)()
	hop.Remote = netip.AddrPortFrom(hop.Remote.Addr().Unmap(), hop.Remote.Port())
	if e.reg.keepAliveAnswer(b, hop) {
		return
	}
	if checked, fault := message.Parse(b); fault != nil {
		e.malformed(checked, fault, hop)
		return
	}
	m, err := e.parser.ParseSIP(b)
	if err != nil || !wellFormed(m) { // what RFC 3261 allows and the library cannot read
		e.stats.Malformed++
		return
	}
	switch m := m.(type) {
	case *sip.Response:
		if !e.layer.HandleResponse(m, now, &out.Output) {
			e.strayResponse(m)
		}
	case *sip.Request:
		e.request(m, hop)
	}
}

// Unreachable tells that a hop failed: a connection that broke or did not come about, or an
// ICMP error. What no one has answered by TCP goes by UDP if it may (RFC 3261 section 18.1.1);
// everything else ends as a transport error.
func (e *Engine) Unreachable(hop transaction.Hop, now time.Time, out *Output) {
	defer e.enter(now, out)()
	hop.Remote = netip.AddrPortFrom(hop.Remote.Addr().Unmap(), hop.Remote.Port())
	e.backToUDP(hop)
	e.layer.FailHop(hop, now, &out.Output)
	e.reg.unreachable(hop)
}
