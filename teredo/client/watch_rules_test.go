// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/nattest"
)

// The wait for an answer is four round trips, once they are known.
func TestQuickPause(t *testing.T) {
	tests := []struct {
		name string
		trip time.Duration
		want time.Duration
	}{
		{"near server", 10 * time.Millisecond, 500 * time.Millisecond},
		{"far server", 300 * time.Millisecond, 1200 * time.Millisecond},
		{"no more than T", 2 * time.Second, 4 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, watchful)
			b.begin(client.Server{Primary: primary})
			b.now = b.now.Add(tt.trip)
			b.udp(primaryPort, b.answer(mapping))
			b.out.Reset()
			b.c.Examine(b.now, &b.out)
			if d := b.c.Next().Sub(b.now); d != tt.want {
				t.Errorf("waits %v, want %v", d, tt.want)
			}
		})
	}
}

// An answer behind a repeat does not tell the round trip.
func TestRoundTripOfRepeat(t *testing.T) {
	b := newBench(t, watchful)
	b.begin(client.Server{Primary: primary})
	b.tick()
	b.udp(primaryPort, b.answer(mapping))
	if r := b.c.Snapshot().Servers[0]; r.RTT != 0 || r.Silent {
		t.Errorf("ranked %+v", r)
	}
}

// An old answer of another server does not make it alive: when all fall silent,
// the way there is lost, and no address is taken that no one has confirmed.
func TestStaleScout(t *testing.T) {
	w := newWorld(t)
	a := w.qualified(nattest.NewNAT(nattest.FullCone, natA), watchful)
	other := w.spareServer("203.0.113.30", 0)
	a.servers(other)
	w.net.Run(time.Minute)
	w.server.deaf, other.deaf = true, true
	w.net.RunUntil(time.Minute, func() bool { return a.engine.Snapshot().State == client.OffLine })
	w.net.Run(time.Minute)
	for _, e := range a.events {
		if strings.HasPrefix(e, "address changed") {
			t.Errorf("events %q", a.events)
		}
	}
	// Whichever comes back first serves.
	other.deaf = false
	if !w.net.RunUntil(2*time.Minute, func() bool { return a.engine.Snapshot().Server == other.addr }) {
		t.Error("not qualified again")
	}
}

// The server that was left is ranked as silent.
func TestFailOverRanks(t *testing.T) {
	w := newWorld(t)
	a := w.qualified(nattest.NewNAT(nattest.FullCone, natA), watchful)
	other := w.spareServer("203.0.113.30", 0)
	a.servers(other)
	w.net.Run(time.Minute)
	w.server.deaf = true
	w.net.RunUntil(time.Minute, func() bool { return a.engine.Snapshot().Server == other.addr })
	ranks := a.engine.Snapshot().Servers
	if ranks[0].Server != other.addr || !ranks[0].InUse || ranks[1].Server != primary || !ranks[1].Silent {
		t.Errorf("ranking %+v", ranks)
	}
}

// Bubbles and echo tests without an answer make the server suspect, but not when
// it was heard just now.
func TestSuspicion(t *testing.T) {
	slow := func(c *client.Config) { c.Probe = time.Minute }
	for _, tt := range []struct {
		name  string
		dst   netip.Addr
		after time.Duration // since the server's last packet
		want  bool
	}{
		{"bubbles", peerAddr, 10 * time.Second, true},
		{"echo tests", hostAddr, 10 * time.Second, true},
		{"server heard within the test", hostAddr, -time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newQualified(t, slow)
			b.now = b.now.Add(max(tt.after, 0))
			b.ip(data(b.address(), tt.dst, "hello"))
			if tt.after < 0 {
				b.now = b.now.Add(time.Second)
				b.udp(primaryPort, throughServer(foreign, bubble(hostAddr.Next(), b.address(), 0)))
			}
			var got []string
			for began := b.now; b.now.Sub(began) < 2*time.Second; {
				_, lines := b.tick()
				got = append(got, lines...)
			}
			if asked := strings.Contains(strings.Join(got, "\n"), "primary: solicitation"); asked != tt.want {
				t.Errorf("asked %v, want %v: %q", asked, tt.want, got)
			}
		})
	}
}

// Each change tells its cause.
func TestCauses(t *testing.T) {
	last := func(b *bench) client.Cause {
		for _, e := range b.out.Events {
			if e.Kind == client.AddressChanged {
				return e.Cause
			}
		}
		return 0
	}
	b := newQualified(t, watchful)
	b.out.Reset()
	b.c.Examine(b.now, &b.out)
	b.udp(primaryPort, b.answer(foreign))
	if c := last(b); c != client.CauseMappingChanged {
		t.Errorf("another mapping: %v", c)
	}
	b.out.Reset()
	b.c.LocalChanged(netip.MustParseAddrPort("192.168.1.9:3551"), nil, b.now, &b.out)
	b.udp(primaryPort, b.answer(mapping))
	if c := last(b); c != client.CauseLocalChanged {
		t.Errorf("another local address: %v", c)
	}
	// The cause is of that change alone.
	b.out.Reset()
	b.c.Examine(b.now, &b.out)
	b.udp(primaryPort, b.answer(foreign))
	if c := last(b); c != client.CauseMappingChanged {
		t.Errorf("another mapping again: %v", c)
	}
}
