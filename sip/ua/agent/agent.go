// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/media/mediaio"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/ua"
)

// Settings of an agent.
type Settings struct {
	// UA are those of the engine; Lookup is the agent's own.
	UA ua.Settings
	// Port is that of SIP on every address, 0 for 5060.
	Port uint16
	// Interfaces are those whose addresses are used; none is all but the loopback.
	Interfaces []string
	// Names are the addresses of hosts, in small letters, that no one else is asked for.
	Names map[string]netip.Addr
	// Sound makes what the next call sends, and what takes what it hears; nil is silence. A sink that is an
	// [io.Closer] is closed when its call has ended.
	Sound func() (media.Source, media.Sink)
	// Latch has media go to where the peer's come from, guarded as package media says.
	Latch bool
	// Secure demands SRTP.
	Secure bool
	// AutoAnswer takes every call.
	AutoAnswer bool
}

// Event is what an agent has to tell.
type Event struct {
	ua.Event
	// Media is set for what has happened to the media of Call; Event says nothing else then.
	Media *media.Event
	// Address is set for what somebody has told of the host's addresses, see
	// [Agent.AddressChanged]; Event says nothing then.
	Address *event.AddressChange
	Time    time.Time
}

// Agent is a user agent on this host.
type Agent struct {
	set    Settings
	engine *ua.Engine
	host   *port.Host // is asked for routes, which nobody keeps waiting
	links  *port.Host // for links and addresses
	ns     port.Namespace
	out    ua.Output
	paths  map[int]*path
	last   int      // the number of the newest path
	lost   []func() // close the sockets of paths that are no more
	calls  map[ua.CallID]*call
	media  *mediaio.Host
	work   chan func()
	told   chan event.AddressChange
	events chan Event
	missed atomic.Uint64 // events that no one fetched
	ended  chan struct{}
	ctx    context.Context // of Run, for what looks for names beside the loop

	looking, again bool           // at links and addresses; once more behind it
	checking       bool           // the carrier
	checked        time.Time      // when it was
	asking         sync.WaitGroup // what asks links

	names names
}

// New makes an agent in the network namespace of the calling thread.
func New(s Settings) (*Agent, error) {
	if s.Port == 0 {
		s.Port = 5060
	}
	a := &Agent{
		set: s, paths: map[int]*path{}, calls: map[ua.CallID]*call{},
		work: make(chan func(), 1024), events: make(chan Event, 1024), ended: make(chan struct{}),
		told: make(chan event.AddressChange, maxTold),
	}
	a.set.UA.Lookup = a.lookup
	var err error
	if a.engine, err = ua.New(a.set.UA, rand.Reader); err != nil {
		return nil, err
	}
	if a.ns, err = port.CurrentNamespace(); err != nil {
		return nil, err
	}
	if a.host, err = port.OpenHost(); err != nil {
		a.ns.Close()
		return nil, err
	}
	if a.links, err = port.OpenHost(); err != nil {
		a.host.Close()
		a.ns.Close()
		return nil, err
	}
	a.media = mediaio.NewHost(mediaio.Config{})
	return a, nil
}

// Events are what happens, oldest first. It is closed when Run returns. Events that no one
// fetches for long are lost, and counted.
func (a *Agent) Events() <-chan Event { return a.events }

// Run serves until ctx is done; then calls are ended and the registration is removed, as far
// as one message each does that.
func (a *Agent) Run(ctx context.Context) error {
	defer close(a.events)
	defer close(a.ended)
	defer a.ns.Close()
	defer a.host.Close()
	defer a.links.Close()
	defer a.asking.Wait()
	defer a.media.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var changes <-chan port.Change
	err := a.ns.Do(func() (err error) {
		changes, err = port.Watch(ctx)
		return err
	})
	if err != nil {
		return err
	}
	a.ctx = ctx
	a.resolveOwn(ctx)
	defer a.closePaths()
	found, err := a.addresses()
	if err == nil {
		err = a.compare(found, time.Now())
	}
	if err != nil {
		return err // such as a port in use
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		a.flush()
		if next := a.engine.Next(); next.IsZero() || time.Until(next) > 0 { // no call has yet to ask its peer to follow
			a.closeLost()
		}
		timer.Reset(a.untilNext())
		select {
		case <-ctx.Done():
			a.leave()
			return nil
		case f := <-a.work:
			f()
		case c, ok := <-changes:
			if !ok && ctx.Err() == nil {
				return errors.New("the netlink monitor of addresses, links and routes has closed")
			}
			// No wait for further changes: a call hangs on the first. Those that have come
			// are one with it, and an overrun is a change like any other, for everything is
			// looked at each time.
			a.heed(c, changes)
			a.flush()
			a.look()
		case e := <-a.told:
			a.look()
			a.tell(Event{Address: &e, Time: time.Now()})
		case now := <-timer.C:
			a.engine.Tick(now, &a.out)
			a.checkCarrier(now)
		}
	}
}

// maxTold is how many changes of addresses wait.
const maxTold = 16

// AddressChanged tells the agent that something has given the host another address, such as a
// Teredo client of the same process, and why. The host is looked at once more, at once, and the
// change passed on as an event. It does not wait: a change that finds too many waiting is left
// out, for the address itself is seen on the host in any case.
func (a *Agent) AddressChanged(e event.AddressChange) {
	select {
	case a.told <- e:
	default:
	}
}

// untilNext is how long nothing is due.
func (a *Agent) untilNext() time.Duration {
	next := a.engine.Next()
	if at := a.checked.Add(carrierEvery); len(a.calls) > 0 && (next.IsZero() || at.Before(next)) {
		next = at
	}
	if next.IsZero() {
		return time.Hour
	}
	return max(time.Until(next), 0)
}

// flush sends what the engine put out and takes note of its events. Messages go first: they
// are what a move waits for.
func (a *Agent) flush() {
	for len(a.out.Packets)+len(a.out.Events)+len(a.out.Lookups) > 0 {
		packets, events, lookups := a.out.Packets, a.out.Events, a.out.Lookups
		a.out = ua.Output{}
		for _, p := range packets {
			a.send(p)
		}
		for _, v := range events {
			a.event(v)
		}
		for _, l := range lookups {
			go a.find(l)
		}
	}
}

// event acts on an event and passes it on.
func (a *Agent) event(v ua.Event) {
	if c := a.calls[v.Call]; c != nil {
		c.event(v)
	}
	if v.Kind == ua.Incoming && a.set.AutoAnswer {
		_ = a.answer(v.Call)
	}
	a.tell(Event{Event: v, Time: time.Now()})
}

// tell passes on an event. It never waits, and any goroutine may call it.
func (a *Agent) tell(v Event) {
	select {
	case a.events <- v:
	default:
		a.missed.Add(1)
	}
}

// do has the loop do something, and waits for it.
func (a *Agent) do(ctx context.Context, f func() error) error {
	result := make(chan error, 1)
	select {
	case a.work <- func() { result <- f() }:
	case <-a.ended:
		return net.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-result:
		return err
	case <-a.ended:
		return net.ErrClosed
	}
}

// post has the loop do something, unless it has ended.
func (a *Agent) post(f func()) {
	select {
	case a.work <- f:
	case <-a.ended:
	}
}

// Call calls someone.
func (a *Agent) Call(ctx context.Context, to string) (id ua.CallID, err error) {
	u, err := message.ParseURI(to)
	if err != nil || u.Host == "" {
		return 0, fmt.Errorf("%q is no address to call, such as sip:bob@example.com", to)
	}
	if a.set.UA.Proxy.Host == "" { // else the engine says when it has to know
		a.resolve(ctx, u)
	}
	err = a.do(ctx, func() error {
		c, err := a.newCall()
		if err != nil {
			return err
		}
		if id, err = a.engine.Invite(u, c, time.Now(), &a.out); err != nil {
			c.Close()
			return err
		}
		c.begin(id)
		return nil
	})
	return id, err
}

// Answer takes a call that has come in.
func (a *Agent) Answer(ctx context.Context, id ua.CallID) error {
	return a.do(ctx, func() error { return a.answer(id) })
}

func (a *Agent) answer(id ua.CallID) error {
	c, err := a.newCall()
	if err != nil {
		return err
	}
	c.begin(id)
	if err := a.engine.Answer(id, c, time.Now(), &a.out); err != nil {
		delete(a.calls, id)
		c.Close()
		return err
	}
	return nil
}

// Reject refuses a call that has come in, by a status such as 486.
func (a *Agent) Reject(ctx context.Context, id ua.CallID, status int) error {
	return a.do(ctx, func() error { return a.engine.Reject(id, status, time.Now(), &a.out) })
}

// HangUp ends a call.
func (a *Agent) HangUp(ctx context.Context, id ua.CallID) error {
	return a.do(ctx, func() error { return a.engine.HangUp(id, time.Now(), &a.out) })
}

// Hold holds a call, or resumes it.
func (a *Agent) Hold(ctx context.Context, id ua.CallID, on bool) error {
	return a.do(ctx, func() error { return a.engine.Hold(id, on, time.Now(), &a.out) })
}

// Press sends digits (RFC 4733).
func (a *Agent) Press(ctx context.Context, id ua.CallID, digits string) error {
	return a.do(ctx, func() error {
		c := a.calls[id]
		if c == nil {
			return ua.ErrNoCall
		}
		return c.press(digits)
	})
}

// Move takes all calls, and the registration, to the address on an interface that is of their family,
// whatever the routes say; they may take them elsewhere when something changes.
func (a *Agent) Move(ctx context.Context, link string) error {
	return a.do(ctx, func() error {
		id, err := a.onLink(link)
		if err == nil {
			a.engine.Use(id, time.Now(), &a.out)
		}
		return err
	})
}

// State is an agent at one time.
type State struct {
	// Path is the address in use; not valid: there is none.
	Path netip.AddrPort
	Link string
	// Standby are the other addresses that are ready.
	Standby []netip.AddrPort
	Calls   []CallState
	Stats   ua.Stats
	// Missed counts events that no one fetched in time.
	Missed uint64
}

// CallState is a call with its media.
type CallState struct {
	ua.CallInfo
	Media   media.Stats
	Handoff media.Handoff
	// Unsent counts packets of media that no socket took.
	Unsent uint64
}

// State returns what is now.
func (a *Agent) State(ctx context.Context) (s State, err error) {
	err = a.do(ctx, func() error {
		using, _ := a.engine.Using()
		for _, id := range a.preferred() {
			if p := a.paths[id]; id == using {
				s.Path, s.Link = p.Local, p.link
			} else {
				s.Standby = append(s.Standby, p.Local)
			}
		}
		s.Stats, s.Missed = a.engine.Stats(), a.missed.Load()
		for _, id := range a.engine.Calls() {
			info, _ := a.engine.Call(id)
			if c := a.calls[id]; c != nil {
				s.Calls = append(s.Calls, c.state(info))
			} else {
				s.Calls = append(s.Calls, CallState{CallInfo: info})
			}
		}
		return nil
	})
	return s, err
}

// leave ends calls and the registration.
func (a *Agent) leave() {
	now := time.Now()
	for _, id := range a.engine.Calls() {
		_ = a.engine.HangUp(id, now, &a.out)
	}
	a.engine.Unregister(now, &a.out)
	a.flush()
}
