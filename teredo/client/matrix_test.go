// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo/nattest"
)

// reachable is the table of RFC 6081 figure 1 without UPnP: rows initiate, columns
// are in the order of nattest.AllKinds.
var reachable = map[string][]bool{
	nattest.FullCone.Name:                      {true, true, true, true, true, true, true},
	nattest.AddressRestricted.Name:             {true, true, true, true, true, true, true},
	nattest.PortRestricted.Name:                {true, true, true, false, true, true, true},
	nattest.SymmetricRandom.Name:               {true, true, false, false, false, false, false},
	nattest.SymmetricSequential.Name:           {true, true, true, false, false, false, false},
	nattest.SymmetricPreserving.Name:           {true, true, true, false, true, true, true},
	nattest.SymmetricPreservingSequential.Name: {true, true, true, false, true, true, true},
}

const pings = 9

// pingPair sends pings from a to b, one a second, and returns how many were
// answered, in order.
func pingPair(w *world, a, b *clientNode) int {
	for i := range pings {
		a.say(b.address(), fmt.Sprintf("ping %d", i))
		w.net.Run(time.Second)
	}
	w.net.Run(10 * time.Second)
	n := 0
	for _, s := range a.got {
		if s == fmt.Sprintf("pong %d", n) {
			n++
		}
	}
	return n
}

// Client to client behind every pair of NATs, cold: all packets arrive, the
// first included, or none where the RFC has no way.
func TestMatrix(t *testing.T) {
	eachPath(t, func(t *testing.T, all ...option) {
		worked, ofFive := 0, 0
		for i, from := range nattest.AllKinds {
			for j, to := range nattest.AllKinds {
				t.Run(from.Name+" to "+to.Name, func(t *testing.T) {
					w := newWorld(t, all...)
					a := w.qualified(nattest.NewNAT(from, natA))
					b := w.qualified(nattest.NewNAT(to, natB))
					got, want := pingPair(w, a, b), 0
					if reachable[from.Name][j] {
						want = pings
						worked++
						if i < len(nattest.Kinds) && j < len(nattest.Kinds) {
							ofFive++
						}
					}
					if got != want {
						t.Errorf("%d of %d answered, want %d; dropped %q and %q", got, pings, want, a.dropped(), b.dropped())
					}
					if want == 0 && a.errors == 0 {
						t.Error("the host was not told that the peer is unreachable")
					}
				})
			}
		}
		if ofFive != 19 || worked != 37 {
			t.Errorf("%d of the 25 pairs of five kinds work and %d of all, want 19 and 37", ofFive, worked)
		}
	})
}

// The same with delays that differ from packet to packet, so that answers overtake
// each other: both ends must still agree on the way, at once.
func TestMatrixWithJitter(t *testing.T) {
	const seeds = 25
	for _, from := range nattest.AllKinds {
		for j, to := range nattest.AllKinds {
			if !reachable[from.Name][j] {
				continue
			}
			t.Run(from.Name+" to "+to.Name, func(t *testing.T) {
				for seed := range uint64(seeds) {
					w := newWorld(t)
					w.net.Jitter = 5 * delay
					w.net.Seed(seed)
					a := w.qualified(nattest.NewNAT(from, natA))
					b := w.qualified(nattest.NewNAT(to, natB))
					w.net.Run(20 * delay)
					if got := pingPair(w, a, b); got != pings {
						t.Errorf("seed %d: %d of %d answered; dropped %q and %q", seed, got, pings, a.dropped(), b.dropped())
					}
				}
			})
		}
	}
}

// The way is open within the round trips of RFC 6081 section 6.1, without
// waiting for a retry timer.
func TestMatrixFirstAnswer(t *testing.T) {
	for _, from := range nattest.AllKinds {
		for j, to := range nattest.AllKinds {
			if !reachable[from.Name][j] {
				continue
			}
			t.Run(from.Name+" to "+to.Name, func(t *testing.T) {
				w := newWorld(t)
				a := w.qualified(nattest.NewNAT(from, natA))
				b := w.qualified(nattest.NewNAT(to, natB))
				a.say(b.address(), "ping")
				since := w.net.Now()
				if !w.net.RunUntil(time.Second, func() bool { return len(a.got) > 0 }) {
					t.Fatal("no answer within a second")
				}
				// Indirect there (2), indirect back (2), direct there, direct
				// back, then the packet and its answer. Each end whose NAT is
				// symmetric asks its server for the port first (2).
				limit := 8 * delay
				for _, kind := range []nattest.Kind{from, to} {
					if kind.Mapping != nattest.EndpointIndependent && !kind.Preserving {
						limit += 2 * delay
					}
				}
				if took := w.net.Now().Sub(since); took > limit {
					t.Errorf("the answer took %v, more than %v", took, limit)
				}
			})
		}
	}
}

// To and from an IPv6 host by the relay: no packet is lost behind any NAT.
func TestRelay(t *testing.T) {
	eachPath(t, func(t *testing.T, all ...option) {
		for _, kind := range nattest.AllKinds {
			t.Run(kind.Name+" outbound", func(t *testing.T) {
				w := newWorld(t, all...)
				a := w.qualified(nattest.NewNAT(kind, natA), established)
				a.say(hostAddr, "ping 0")
				since := w.net.Now()
				w.net.RunUntil(time.Second, func() bool { return len(a.got) == 1 })
				// Test to the server, the relay's copy to it and on: 3 delays; then
				// the packet and its answer. The RFC's own way takes more.
				if took := w.net.Now().Sub(since); took > 6*delay {
					t.Errorf("the first answer took %v", took)
				}
				for i := 1; i < pings; i++ {
					a.say(hostAddr, fmt.Sprintf("ping %d", i))
					w.net.Run(20 * time.Second)
				}
				wantPongs(t, a)
			})
			t.Run(kind.Name+" inbound", func(t *testing.T) {
				w := newWorld(t, all...)
				a := w.qualified(nattest.NewNAT(kind, natA))
				for i := range pings {
					w.native(data(hostAddr, a.address(), fmt.Sprintf("ping %d", i)))
					w.net.Run(40 * time.Second) // both ends forget each other in between
				}
				if len(w.relay.host) != pings || w.relay.host[0] != "pong 0" {
					t.Errorf("the host got %q; dropped %s", w.relay.host, a.dropped())
				}
			})
		}
	})
}

func wantPongs(t *testing.T, a *clientNode) {
	t.Helper()
	if len(a.got) != pings {
		t.Fatalf("%d of %d answered: %q; dropped %s", len(a.got), pings, a.got, a.dropped())
	}
	for i, s := range a.got {
		if s != fmt.Sprintf("pong %d", i) {
			t.Errorf("answer %d is %q", i, s)
		}
	}
}
