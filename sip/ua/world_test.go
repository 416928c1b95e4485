// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// delay is one way through a world.
const delay = 25 * time.Millisecond

// world is a network in virtual time: agents, a server, and packets under way.
type world struct {
	t      *testing.T
	now    time.Time
	agents []*agent
	flying []flight // in the order of their arrival, for all take as long
	seen   []flight // all that were sent, lost ones included
	lose   func(flight) bool
	change func(*message.Message) // what is sent
	server *server
	proxy  *proxy
	broken string // packets by it come back as unreachable
}

// flight is a packet under way.
type flight struct {
	from, to  netip.AddrPort
	transport string
	at        time.Time // of its arrival
	sent      time.Time
	data      []byte
}

// first is the method or status of a flight.
func (f flight) first() string {
	words := strings.Fields(string(f.data[:min(len(f.data), 40)]))
	if len(words) < 2 {
		return "keepalive"
	}
	if words[0] == "SIP/2.0" {
		return words[1]
	}
	return words[0]
}

func (f flight) header(name string) string {
	m, fault := message.Parse(f.data)
	if fault != nil {
		return ""
	}
	return m.Get(name)
}

func (f flight) branch() string {
	v, _ := message.ParseVia(f.header("Via"))
	return v.Branch()
}

// agent is an engine with addresses.
type agent struct {
	w      *world
	name   string
	engine *Engine
	paths  map[int]netip.AddrPort
	out    Output
	events []Event
	media  map[CallID]*fakeMedia
	answer bool // calls at once

	lookups []message.URI
}

func newWorld(t *testing.T) *world { return &world{t: t, now: start} }

type seed struct{ b byte }

func (s seed) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = s.b + byte(i)
	}
	return len(b), nil
}

// agent makes an agent that has an address on path 1.
func (w *world) agent(name, address string, change func(*Settings)) *agent {
	w.t.Helper()
	set := Settings{AOR: message.URI{Scheme: "sip", User: name, Host: "example.com"}}
	if change != nil {
		change(&set)
	}
	e, err := New(set, seed{byte(len(w.agents)*16 + 1)})
	if err != nil {
		w.t.Fatal(err)
	}
	a := &agent{w: w, name: name, engine: e, paths: map[int]netip.AddrPort{}, media: map[CallID]*fakeMedia{}, answer: true}
	w.agents = append(w.agents, a)
	a.add(1, address)
	a.use(1)
	return a
}

func (a *agent) add(id int, address string) { a.addMTU(id, address, 1500) }

func (a *agent) addMTU(id int, address string, mtu int) {
	a.paths[id] = netip.MustParseAddrPort(address)
	a.engine.AddPath(Path{ID: id, Name: fmt.Sprint(id), Local: a.paths[id], MTU: mtu})
}

// has reports whether an address is one of the agent's.
func (a *agent) has(local netip.AddrPort) bool {
	for _, at := range a.paths {
		if at == local {
			return true
		}
	}
	return false
}

func (a *agent) use(id int) {
	a.engine.Use(id, a.w.now, &a.out)
	a.flush()
}

func (a *agent) lost(id int) {
	delete(a.paths, id)
	a.engine.LosePath(id, a.w.now, &a.out)
	a.flush()
}

// call calls another agent at its first address.
func (a *agent) call(to string) CallID {
	a.w.t.Helper()
	u, err := message.ParseURI(to)
	if err != nil {
		a.w.t.Fatal(err)
	}
	m := &fakeMedia{name: a.name}
	id, err := a.engine.Invite(u, m, a.w.now, &a.out)
	if err != nil {
		a.w.t.Fatal(err)
	}
	a.media[id] = m
	a.flush()
	return id
}

func (a *agent) tick() {
	a.engine.Tick(a.w.now, &a.out)
	a.flush()
}

// flush sends what the engine put out, and answers calls that came in.
func (a *agent) flush() {
	events, packets := slices.Clone(a.out.Events), slices.Clone(a.out.Packets)
	a.lookups = append(a.lookups, a.out.Lookups...)
	a.out.Reset()
	for _, p := range packets {
		if a.has(p.To.Local) {
			a.w.send(p.To.Local, p.To.Remote, p.To.Transport, p.Data, a)
		}
	}
	for _, v := range events {
		a.events = append(a.events, v)
		if v.Kind == Incoming && a.answer {
			a.pickUp(v.Call)
		}
	}
}

func (a *agent) pickUp(id CallID) {
	m := &fakeMedia{name: a.name}
	a.media[id] = m
	if err := a.engine.Answer(id, m, a.w.now, &a.out); err != nil {
		a.w.t.Error(err)
	}
	a.flush()
}

func (a *agent) do(err error) {
	a.w.t.Helper()
	if err != nil {
		a.w.t.Fatal(err)
	}
	a.flush()
}

// kinds are the events since the last call of it.
func (a *agent) kinds() []string {
	var list []string
	for _, v := range a.events {
		list = append(list, v.Kind.String())
	}
	a.events = nil
	return list
}

// told returns the first event of a kind.
func (a *agent) told(k Kind) (Event, bool) {
	i := slices.IndexFunc(a.events, func(v Event) bool { return v.Kind == k })
	if i < 0 {
		return Event{}, false
	}
	return a.events[i], true
}

// only returns the one call of an agent.
func (a *agent) only() CallInfo {
	a.w.t.Helper()
	ids := a.engine.Calls()
	if len(ids) != 1 {
		a.w.t.Fatalf("%s has %d calls, want one", a.name, len(ids))
	}
	info, _ := a.engine.Call(ids[0])
	return info
}

func (w *world) send(from, to netip.AddrPort, t string, data []byte, by *agent) {
	if m, fault := message.Parse(data); fault == nil && w.change != nil {
		w.change(m)
		data = m.Append(nil)
	}
	f := flight{from, to, t, w.now.Add(delay), w.now, data}
	w.seen = append(w.seen, f)
	if t == w.broken {
		by.engine.Unreachable(transaction.Target{Transport: t, Local: from, Remote: to}, w.now, &by.out)
		by.flush()
		return
	}
	if w.lose == nil || !w.lose(f) {
		w.flying = append(w.flying, f)
	}
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	until := w.now.Add(d)
	for {
		at, tick := until.Add(1), func() {}
		for _, a := range w.agents {
			if n := a.engine.Next(); !n.IsZero() && n.Before(at) {
				at, tick = n, a.tick
			}
		}
		if w.proxy != nil {
			if n := w.proxy.engine.Next(); !n.IsZero() && n.Before(at) {
				at, tick = n, w.proxy.tick
			}
		}
		switch {
		case len(w.flying) > 0 && !w.flying[0].at.After(at) && !w.flying[0].at.After(until):
			f := w.flying[0]
			w.flying = w.flying[1:]
			w.now = f.at
			w.arrive(f)
		case !at.After(until):
			w.now = maxTime(w.now, at)
			tick()
		default:
			w.now = until
			return
		}
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (w *world) arrive(f flight) {
	switch {
	case w.server != nil && f.to == w.server.at:
		w.server.handle(f)
		return
	case w.proxy != nil && f.to == w.proxy.at:
		w.proxy.handle(f)
		return
	}
	for _, a := range w.agents {
		if a.has(f.to) {
			a.engine.Handle(f.data, transaction.Target{Transport: f.transport, Local: f.to, Remote: f.from}, w.now, &a.out)
			a.flush()
			return
		}
	}
}

// sent are first words of what was sent since the last call, one for each.
func (w *world) sent() []string {
	var list []string
	for _, f := range w.seen {
		list = append(list, f.first())
	}
	w.seen = nil
	return list
}

// find returns what was sent with a first word.
func (w *world) find(first string) []flight {
	var list []flight
	for _, f := range w.seen {
		if f.first() == first {
			list = append(list, f)
		}
	}
	return list
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// fakeMedia writes what it is asked for into its descriptions, and remembers the peer's.
type fakeMedia struct {
	name    string
	version int
	open    bool
	hold    bool
	peer    string // the last description of the peer
	refuse  bool   // offers
	padding int
	silent  bool // makes no offers
}

func (m *fakeMedia) describe(kind string, path int) []byte {
	m.version++
	return []byte(fmt.Sprintf("o=%s v=%d %s path=%d hold=%t %s", m.name, m.version, kind, path, m.hold, strings.Repeat("x", m.padding)))
}

func (m *fakeMedia) Offer(path int) ([]byte, error) {
	if m.open {
		return nil, errors.New("an offer is open already")
	}
	if m.silent {
		return nil, nil
	}
	m.open = true
	return m.describe("offer", path), nil
}

func (m *fakeMedia) Answer(offer []byte, path int) ([]byte, error) {
	if m.refuse || !bytes.Contains(offer, []byte("offer")) {
		return nil, errors.New("not acceptable")
	}
	m.peer = string(offer)
	return m.describe("answer", path), nil
}

func (m *fakeMedia) Accept(answer []byte) error {
	if !m.open || !bytes.Contains(answer, []byte("answer")) {
		return fmt.Errorf("no answer to an offer (open: %t): %q", m.open, answer)
	}
	m.open, m.peer = false, string(answer)
	return nil
}

func (m *fakeMedia) Withdraw()    { m.open = false }
func (m *fakeMedia) Hold(on bool) { m.hold = on }
