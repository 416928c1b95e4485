// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/nattest"
	"github.com/isthmus-net/isthmus/teredo/server"
)

// spareServer is a server with one address and a delay of its own, which takes
// part in relaying like the first.
type spareServer struct {
	w      *world
	engine *server.Engine
	addr   netip.Addr
	deaf   bool
	slower time.Duration
	queue  []func()
	due    []time.Time
	asked  int
}

func (w *world) spareServer(addr string, slower time.Duration) *spareServer {
	s := &spareServer{w: w, addr: netip.MustParseAddr(addr), slower: slower}
	var err error
	if s.engine, err = server.New(server.Config{Primary: s.addr, Rand: seeded(120)}); err != nil {
		w.t.Fatal(err)
	}
	w.net.Attach(s, s.addr)
	return s
}

func (s *spareServer) Receive(from, to netip.AddrPort, payload []byte, now time.Time) {
	if s.deaf || to.Port() != teredo.Port {
		return
	}
	s.asked++
	var out packet.Batch
	s.engine.HandleUDP(from, server.Primary, payload, now, &out)
	s.due = append(s.due, now.Add(s.slower))
	s.queue = append(s.queue, func() {
		for _, d := range out.UDP {
			s.w.net.Send(netip.AddrPortFrom(s.addr, teredo.Port), d.To, d.Payload)
		}
		for _, p := range out.IP {
			s.w.native(p)
		}
	})
}

func (s *spareServer) Tick(now time.Time) {
	for len(s.due) > 0 && !s.due[0].After(now) {
		s.queue[0]()
		s.due, s.queue = s.due[1:], s.queue[1:]
	}
}

func (s *spareServer) Next() time.Time {
	if len(s.due) > 0 {
		return s.due[0]
	}
	return time.Time{}
}

// servers gives a client servers, the usual one first.
func (n *clientNode) servers(others ...*spareServer) {
	list := []client.Server{{Primary: primary, Secondary: second}}
	for _, s := range others {
		list = append(list, client.Server{Primary: s.addr})
	}
	n.do(func(now time.Time, out *client.Out) { n.engine.SetServers(list, now, out) })
}

// A server that dies while in use is left within 5 s, and its client finds new
// peers by the next server.
func TestServerDeathInUse(t *testing.T) {
	for _, traffic := range []string{"new peers only", "an old peer too"} {
		t.Run(traffic, func(t *testing.T) {
			w := newWorld(t)
			a := w.qualified(nattest.NewNAT(nattest.PortRestricted, natA), watchful)
			other := w.spareServer("203.0.113.30", 0)
			a.servers(other)
			a.talk(hostAddr, 20*time.Millisecond, 30*time.Second, never)
			w.server.deaf = true
			dead := w.net.Now()
			target := hostAddr
			for w.net.Now().Sub(dead) < 10*time.Second && a.engine.Snapshot().Server == primary {
				if traffic == "an old peer too" {
					a.say(hostAddr, "ping")
				}
				target = target.Next()
				a.say(target, "are you there?")
				w.net.Run(100 * time.Millisecond)
			}
			took := w.net.Now().Sub(dead)
			a.got = nil
			a.talk(hostAddr, 20*time.Millisecond, time.Second, func() bool { return len(a.got) > 0 })
			if took > 5*time.Second || len(a.got) == 0 {
				t.Errorf("after %v at server %s, %d answers", took, a.engine.Snapshot().Server, len(a.got))
			}
		})
	}
}

// A server that dies while nothing happens is left at the next refresh, with no
// more than three unanswered questions.
func TestServerDeathIdle(t *testing.T) {
	w := newWorld(t)
	a := w.qualified(nattest.NewNAT(nattest.FullCone, natA), watchful)
	other := w.spareServer("203.0.113.30", 0)
	a.servers(other)
	w.net.Run(time.Minute)
	w.server.deaf = true
	dead := w.net.Now()
	if !w.net.RunUntil(time.Minute, func() bool { return a.engine.Snapshot().Server == other.addr }) {
		t.Fatal("the dead server was not left")
	}
	if took := w.net.Now().Sub(dead); took > 32*time.Second {
		t.Errorf("left after %v", took)
	}
	if a.engine.Snapshot().State != client.Qualified {
		t.Error("not qualified")
	}
}

// A first server that is dead from the start costs a moment, not 12 s.
func TestServerDeadAtStart(t *testing.T) {
	w := newWorld(t)
	w.server.deaf = true
	a := w.client(nattest.NewNAT(nattest.FullCone, natA), watchful)
	a.do(func(now time.Time, out *client.Out) { a.engine.SetServers(nil, now, out) })
	a.servers(w.spareServer("203.0.113.30", 0))
	began := w.net.Now()
	if !w.net.RunUntil(20*time.Second, func() bool { return a.engine.Snapshot().State == client.Qualified }) {
		t.Fatal("not qualified")
	}
	if took := w.net.Now().Sub(began); took > 5*time.Second {
		t.Errorf("qualified after %v", took)
	}
}

// The first server gets its client back, but only when it has answered several
// times and the host is idle.
func TestServerReturns(t *testing.T) {
	w := newWorld(t)
	a := w.qualified(nattest.NewNAT(nattest.FullCone, natA), watchful)
	other := w.spareServer("203.0.113.30", 0)
	a.servers(other)
	w.net.Run(time.Minute)
	w.server.deaf = true
	w.net.RunUntil(time.Minute, func() bool { return a.engine.Snapshot().Server == other.addr })
	w.net.Run(time.Minute)
	w.server.deaf = false
	back := w.net.Now()
	a.talk(hostAddr, time.Second, 4*time.Minute, func() bool { return a.engine.Snapshot().Server == primary })
	if a.engine.Snapshot().Server == primary {
		t.Errorf("the busy host changed its address %v after the server's return", w.net.Now().Sub(back))
	}
	if !w.net.RunUntil(5*time.Minute, func() bool { return a.engine.Snapshot().Server == primary }) {
		t.Fatal("the idle host did not go back")
	}
	w.net.Run(time.Second)
	changes := len(a.events)
	w.net.Run(time.Hour)
	if len(a.events) != changes {
		t.Errorf("no rest: %q", a.events[changes:])
	}
}

// A host that is never idle goes back too, but only behind ten good answers.
func TestServerReturnsToBusyHost(t *testing.T) {
	w := newWorld(t)
	a := w.qualified(nattest.NewNAT(nattest.FullCone, natA), watchful)
	other := w.spareServer("203.0.113.30", 0)
	a.servers(other)
	w.net.Run(time.Minute)
	w.server.deaf = true
	w.net.RunUntil(time.Minute, func() bool { return a.engine.Snapshot().Server == other.addr })
	w.server.deaf = false
	took, ok := a.talk(hostAddr, 5*time.Second, 20*time.Minute, func() bool { return a.engine.Snapshot().Server == primary })
	if !ok || took < 7*time.Minute || took > 11*time.Minute {
		t.Errorf("back after %v", took)
	}
}

// A server that comes and goes does not make the address flap.
func TestNoFlapping(t *testing.T) {
	w := newWorld(t)
	a := w.qualified(nattest.NewNAT(nattest.FullCone, natA), watchful)
	other := w.spareServer("203.0.113.30", 0)
	a.servers(other)
	w.net.Run(time.Minute)
	changes := 0
	for range 20 {
		w.server.deaf = !w.server.deaf
		before := len(a.events)
		w.net.Run(2 * time.Minute)
		for _, e := range a.events[before:] {
			if strings.HasPrefix(e, "address changed") {
				changes++
			}
		}
	}
	if changes < 1 || changes > 3 {
		t.Errorf("%d changes of address in 40 minutes", changes)
	}
}

// Servers are ranked by round trip, and the load of ranking is light.
func TestRanking(t *testing.T) {
	w := newWorld(t)
	a := w.qualified(nattest.NewNAT(nattest.FullCone, natA), watchful)
	far := w.spareServer("203.0.113.30", 80*time.Millisecond)
	gone := w.spareServer("203.0.113.40", 0)
	gone.deaf = true
	near := w.spareServer("203.0.113.50", 2*time.Millisecond)
	a.servers(far, gone, near)
	w.net.Run(30 * time.Second)
	var got []string
	for _, r := range a.engine.Snapshot().Servers {
		got = append(got, fmt.Sprintf("%s in use %v silent %v, %v", r.Server, r.InUse, r.Silent, r.RTT.Round(time.Millisecond)))
	}
	want := []string{
		"203.0.113.1 in use true silent false, 20ms",
		"203.0.113.50 in use false silent false, 22ms",
		"203.0.113.30 in use false silent false, 100ms",
		"203.0.113.40 in use false silent true, 0s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ranking (-want +got):\n%s", diff)
	}
	asked := far.asked + near.asked
	w.net.Run(time.Hour)
	if n := far.asked + near.asked - asked; n < 20 || n > 60 {
		t.Errorf("%d questions to servers not in use in an hour", n)
	}
	if s := a.engine.Snapshot().Server; s != primary {
		t.Errorf("the client went to %s", s)
	}
}

// A list of servers that is set again does not stop the ranking.
func TestRankingAfterSet(t *testing.T) {
	b := newBench(t, watchful)
	servers := []client.Server{{Primary: primary}, {Primary: peerServer}}
	b.begin(servers...)
	b.udp(primaryPort, b.answer(mapping))
	b.out.Reset()
	b.c.SetServers(servers, b.now, &b.out)
	d, got := b.tick()
	b.want("scout", got, "to peer's server: solicitation")
	if d > firstScouted {
		t.Errorf("asked after %v", d)
	}
	for range 2 {
		b.tick()
	}
	if r := b.c.Snapshot().Servers[1]; r.Server != peerServer || !r.Silent {
		t.Errorf("ranked %+v", r)
	}
}

// A much nearer server is used after a while.
func TestNearerServer(t *testing.T) {
	w := newWorld(t)
	first := w.spareServer("203.0.113.30", 100*time.Millisecond)
	a := w.client(nattest.NewNAT(nattest.FullCone, natA), watchful)
	a.do(func(now time.Time, out *client.Out) {
		a.engine.SetServers([]client.Server{{Primary: first.addr}}, now, out)
		a.engine.SetServers([]client.Server{{Primary: first.addr}, {Primary: primary, Secondary: second}}, now, out)
	})
	if !w.net.RunUntil(10*time.Minute, func() bool { return a.engine.Snapshot().Server == primary }) {
		t.Fatal("the nearer server is not used")
	}
	if took := w.net.Now().Sub(start); took < time.Minute {
		t.Errorf("changed after %v, with too little proof", took)
	}
}
