// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/nattest"
)

const probeAfter = 1500 * time.Millisecond

// firstScouted is when the second server is asked at the latest.
const firstScouted = 2 * time.Second

func watchful(c *client.Config) { c.Probe = probeAfter }

// talk sends a packet to dst each period until done, for at most d, and tells
// how long it took.
func (n *clientNode) talk(dst netip.Addr, period, d time.Duration, done func() bool) (time.Duration, bool) {
	began := n.w.net.Now()
	for n.w.net.Now().Sub(began) < d {
		if n.address().IsValid() {
			n.say(dst, "ping")
		}
		if n.w.net.RunUntil(period, done) {
			return n.w.net.Now().Sub(began), true
		}
	}
	return d, false
}

func never() bool { return false }

// A NAT that changes its address while traffic flows is noticed within 5 s,
// however long the flow had gone unanswered before.
func TestProbeFindsNewMapping(t *testing.T) {
	eachPath(t, func(t *testing.T, all ...option) {
		for _, unanswered := range []time.Duration{0, time.Second, 10 * time.Second, 100 * time.Second} {
			t.Run(unanswered.String(), func(t *testing.T) {
				w := newWorld(t, all...)
				nat := nattest.NewNAT(nattest.PortRestricted, natA)
				a := w.qualified(nat, watchful)
				a.talk(hostAddr, 20*time.Millisecond, 2*time.Second, never)
				// The host stops answering: the flow is one-way.
				w.relay.deaf = true
				a.talk(hostAddr, 20*time.Millisecond, unanswered, never)
				w.relay.deaf = false
				w.net.Renumber(nat, natB)
				was := len(a.got)
				took, ok := a.talk(hostAddr, 20*time.Millisecond, 10*time.Second, func() bool { return len(a.got) > was })
				if !ok || took > 5*time.Second {
					t.Errorf("working again after %v", took)
				}
				if last := a.events[len(a.events)-2]; !strings.HasPrefix(last, "address changed, for "+natB.String()) {
					t.Errorf("events %q", a.events)
				}
			})
		}
	})
}

// One-way traffic asks the server at most every 3.5 s in the long run; traffic
// that is answered, and silence, do not.
func TestProbeLoad(t *testing.T) {
	eachPath(t, func(t *testing.T, all ...option) {
		tests := []struct {
			name     string
			deaf     bool
			period   time.Duration
			low, top uint64
		}{
			{"answered", false, 100 * time.Millisecond, 3, 8},
			{"one-way", true, 100 * time.Millisecond, 20, 35},
			{"no traffic", false, 0, 3, 6},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				w := newWorld(t, all...)
				a := w.qualified(nattest.NewNAT(nattest.FullCone, natA), watchful)
				a.talk(hostAddr, time.Second, 5*time.Second, never)
				w.relay.deaf = tt.deaf
				before := a.engine.Stats().Solicitations
				for range 100 {
					if tt.period == 0 {
						w.net.Run(time.Second)
					} else {
						a.talk(hostAddr, tt.period, time.Second, never)
					}
				}
				if n := a.engine.Stats().Solicitations - before; n < tt.low || n > tt.top {
					t.Errorf("%d solicitations in 100 s, want %d to %d", n, tt.low, tt.top)
				}
			})
		}
	})
}

// The sendings of one probe: three quick ones, then those of RFC 4380, and the
// address is kept until the last.
func TestProbeTimers(t *testing.T) {
	b := newQualified(t, watchful)
	b.ip(data(b.address(), peerAddr, "hello"))
	type step struct {
		After time.Duration
		Got   string
	}
	var got []step
	at := b.now
	for b.c.Snapshot().State == client.Qualified {
		_, lines := b.tick()
		for _, l := range lines {
			if strings.Contains(l, "solicitation") || strings.HasPrefix(l, "event") {
				got = append(got, step{b.now.Sub(at).Round(time.Millisecond), l})
				at = b.now
			}
		}
	}
	const rs = "to primary: solicitation"
	want := []step{
		{1500 * time.Millisecond, rs}, {500 * time.Millisecond, rs}, {500 * time.Millisecond, rs},
		{500 * time.Millisecond, rs},
		{0, "event: doubted: 203.0.113.1"},
		{4 * time.Second, rs}, {4 * time.Second, rs},
		{4 * time.Second, "event: silent: 203.0.113.1"},
		{0, "event: lost: the server is silent"},
		{0, "event: off-line"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// After a sleep the client knows that its relay has forgotten it, and packets wait
// for the new binding.
func TestResumedBindsAgain(t *testing.T) {
	w, c := carryWorld(t)
	a := w.withFallback(nattest.NewNAT(nattest.SymmetricRandom, natA), relayAddr, watchful)
	b := w.withFallback(nattest.NewNAT(nattest.SymmetricRandom, natB), relayAddr, watchful)
	pingPair(w, a, b)
	was := len(a.got)
	c.ahead = time.Hour
	for _, n := range []*clientNode{a, b} {
		n.do(func(now time.Time, out *client.Out) { n.engine.Resumed(time.Hour, now, out) })
	}
	if a.bound() {
		t.Error("bound after an hour of sleep")
	}
	a.say(b.address(), "ping")
	if !w.net.RunUntil(5*time.Second, func() bool { return len(a.got) > was }) || !a.bound() {
		t.Errorf("bound again: %v; %d errors; dropped %s", a.bound(), a.errors, a.dropped())
	}
}

// After a sleep the address is examined at once, and peers are proved again.
func TestResumed(t *testing.T) {
	eachPath(t, func(t *testing.T, all ...option) {
		w := newWorld(t, all...)
		nat := nattest.NewNAT(nattest.PortRestricted, natA)
		a := w.qualified(nat, watchful)
		a.talk(hostAddr, 100*time.Millisecond, time.Second, never)
		// The world goes on for an hour, but the host's clock stands still.
		nat.Restart()
		w.net.Renumber(nat, natB)
		a.do(func(now time.Time, out *client.Out) { a.engine.Resumed(time.Hour, now, out) })
		woke := w.net.Now()
		if !w.net.RunUntil(time.Second, func() bool { return a.engine.Snapshot().Mapping.Addr() == natB }) {
			t.Fatal("the new mapping was not noticed")
		}
		if took := w.net.Now().Sub(woke); took > 2*delay {
			t.Errorf("noticed after %v", took)
		}
		was := len(a.got)
		a.say(hostAddr, "ping")
		if !w.net.RunUntil(time.Second, func() bool { return len(a.got) > was }) {
			t.Error("the host is not reached")
		}
	})
}

// Peers do not stay proved over a sleep.
func TestResumedAgesPeers(t *testing.T) {
	b := newQualified(t, watchful)
	b.udp(peerMapping, data(peerAddr, b.address(), "hello"))
	b.want("before", b.ip(data(b.address(), peerAddr, "one")), "to peer: one")
	b.out.Reset()
	b.c.Resumed(time.Hour, b.now, &b.out)
	b.want("resumed", b.show(), "to primary: solicitation")
	b.want("same mapping", b.udp(primaryPort, b.answer(mapping)), "event: confirmed, for 198.51.100.10:40000")
	if got := b.ip(data(b.address(), peerAddr, "two")); len(got) != 2 || got[0] != "to peer: bubble" {
		t.Errorf("after: %q", got)
	}
}

// Off-line hosts ask at once when they wake.
func TestResumedOffLine(t *testing.T) {
	b := newBench(t, watchful)
	b.begin(client.Server{Primary: primary})
	for b.c.Snapshot().State != client.OffLine {
		b.tick()
	}
	b.out.Reset()
	b.c.Resumed(time.Hour, b.now, &b.out)
	b.want("resumed", b.show(), "to primary: solicitation")
}

// Reach proves a way without a packet, and again before the proof expires.
func TestReach(t *testing.T) {
	w := newWorld(t)
	a := w.qualified(nattest.NewNAT(nattest.PortRestricted, natA), watchful)
	reach := func() { a.do(func(now time.Time, out *client.Out) { a.engine.Reach(hostAddr, now, out) }) }
	reach()
	w.net.Run(time.Second)
	for range 12 {
		if a.engine.Snapshot().Trusted != 1 {
			t.Fatal("the way is not proved")
		}
		w.net.Run(10 * time.Second)
		reach()
		w.net.Run(time.Second)
	}
	if n := a.engine.Stats().EchoTests; n < 5 || n > 8 {
		t.Errorf("%d echo tests in two minutes", n)
	}
	tests := a.engine.Stats().EchoTests
	a.say(hostAddr, "ping")
	if n := a.engine.Stats().EchoTests; n != tests || !w.net.RunUntil(time.Second, func() bool { return len(a.got) == 1 }) {
		t.Errorf("the packet waited: %d tests more, got %q", n-tests, a.got)
	}
}

// A client is kept in reach for as long as it answers: such bubbles have no limit (RFC
// 4380 section 5.2.6).
func TestReachClient(t *testing.T) {
	w := newWorld(t)
	a := w.qualified(nattest.NewNAT(nattest.PortRestricted, natA))
	b := w.qualified(nattest.NewNAT(nattest.PortRestricted, natB))
	for range 36 {
		a.do(func(now time.Time, out *client.Out) { a.engine.Reach(b.address(), now, out) })
		w.net.Run(10 * time.Second)
		a.engine.Peers(1, func(p client.Peer) {
			if silent := w.net.Now().Sub(p.Received); !p.Trusted || silent >= 30*time.Second {
				t.Fatalf("the way is not proved, or not for %v", silent)
			}
		})
	}
	bubbles := a.engine.Stats().DirectBubbles
	a.say(b.address(), "ping")
	if n := a.engine.Stats().DirectBubbles; n != bubbles || !w.net.RunUntil(time.Second, func() bool { return len(a.got) == 1 }) {
		t.Errorf("the packet waited: %d bubbles more, got %q", n-bubbles, a.got)
	}
}
