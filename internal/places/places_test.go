// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package places

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// divided is a Places with the places that its clients hold, by names like "a1".
type divided struct {
	*Places
	t      *testing.T
	now    time.Time
	places map[string]*Place
	ended  []string
}

// Of sixteen places a client may have two, and so on.
const (
	shareOfClient = 8
	leastStay     = time.Second
)

var (
	start       = time.Unix(1_700_000_000, 0)
	reasonNames = [...]string{None: "none", Full: "full", Share: "share"}
)

func makePlaces(limit int) *Places { return New(limit, max(limit/shareOfClient, 1), leastStay) }

func divide(t *testing.T, limit int) *divided {
	return &divided{Places: makePlaces(limit), t: t, now: start, places: map[string]*Place{}}
}

// enter has places taken, whose first letter is the client, and looks what is said.
func (d *divided) enter(names []string, want Reason, ended ...string) {
	d.t.Helper()
	d.ended = nil
	for _, name := range names {
		place, reason := d.Enter(network(int(name[0])), d.now, func(r Reason) {
			d.ended = append(d.ended, name+" "+reasonNames[r])
		})
		if reason != want || (place == nil) != (want != None) {
			d.t.Errorf("%s: place %v, reason %d; want %d", name, place != nil, reason, want)
		}
		d.places[name] = place
	}
	if !slices.Equal(d.ended, ended) {
		d.t.Errorf("after %s, ended %v, want %v", names, d.ended, ended)
	}
}

func named(names ...string) []string { return names }

// network is one of many clients.
func network(n int) netip.Addr {
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(n >> 8), byte(n)})
}

func TestPlaces(t *testing.T) {
	t.Run("one client has an eighth", func(t *testing.T) {
		d := divide(t, 16)
		d.enter(named("a1", "a2"), None)
		d.now = d.now.Add(leastStay - 1)
		d.enter(named("a3"), Share)
		d.enter(named("b1"), None)
		d.now = d.now.Add(1)
		d.enter(named("a4"), None, "a1 share")
		d.enter(named("a5"), None, "a2 share")
		d.enter(named("a6"), Share)
	})
	t.Run("what is used stays", func(t *testing.T) {
		d := divide(t, 16)
		d.enter(named("a1", "a2"), None)
		d.now = d.now.Add(leastStay)
		d.Use(d.places["a1"], d.now)
		d.enter(named("a3"), None, "a2 share")
		d.enter(named("a4"), Share)
		d.Use(d.places["a2"], d.now) // it hears of its end later
	})
	t.Run("all are taken: who has most gives to who has fewer", func(t *testing.T) {
		d := divide(t, 16)
		for _, c := range "abcdefgh" {
			d.enter(named(string(c)+"1", string(c)+"2"), None)
		}
		d.enter(named("a3"), Full)            // as many as anybody, and young
		d.enter(named("v1"), None, "a1 full") // a has had most longest
		d.enter(named("v2"), None, "b1 full") // still fewer
		d.enter(named("v3"), Full)            // no more
		d.enter(named("w1"), None, "c1 full")
		d.enter(named("a4"), None, "d1 full")
		d.now = d.now.Add(leastStay)
		d.enter(named("v4"), None, "v1 full")                  // its own oldest
		d.enter(named("x1", "y1"), None, "e1 full", "f1 full") // whoever waits not so long yet
	})
	t.Run("a place that is given back is free, once", func(t *testing.T) {
		d := divide(t, 16)
		d.enter(named("a1", "a2"), None)
		d.Leave(d.places["a1"])
		d.Leave(d.places["a1"])
		if d.Len() != 1 {
			t.Errorf("%d places are taken", d.Len())
		}
		d.enter(named("a3"), None)
		d.enter(named("a4"), Share)
		for _, name := range named("a2", "a3") {
			d.Leave(d.places[name])
		}
		if d.Len() != 0 || len(d.clients) != 0 || d.most != 0 {
			t.Errorf("something is left: %d places, %d clients, at most %d", d.Len(), len(d.clients), d.most)
		}
	})
	t.Run("fewer than eight places: one for each client", func(t *testing.T) {
		d := divide(t, 2)
		d.enter(named("a1"), None)
		d.enter(named("a2"), Share)
		d.enter(named("b1"), None)
		d.enter(named("c1"), None, "a1 full")
	})
	t.Run("another limit", func(t *testing.T) {
		d := divide(t, 32)
		d.enter(named("a1", "a2", "a3", "a4", "b1"), None)
		d.ended = nil
		d.SetLimit(16, 2)
		d.Shrink()
		if !slices.Equal(d.ended, named("a1 share", "a2 share")) {
			t.Errorf("ended %v", d.ended)
		}
		d.SetLimit(1, 1)
		d.Shrink()
		if !slices.Equal(d.ended[2:], named("a3 full", "b1 full")) || d.Len() != 1 {
			t.Errorf("ended %v, %d left", d.ended, d.Len())
		}
		d.SetLimit(64, 8)
		d.enter(named("a5", "a6", "a7", "a8", "a9", "a0", "aa"), None)
		d.enter(named("ab"), Share)
	})
}

// TestPlacesHold has a crowd of clients come and go at random: the limits hold, and one of
// them that asks for its part of all places and no more always has it.
func TestPlacesHold(t *testing.T) {
	const limit, clients, part = 100, 30, 100 / 30
	random := rand.New(rand.NewPCG(1, 2))
	s := makePlaces(limit)
	held := make([][]*Place, clients)
	now := start
	enter := func(c int) bool {
		var p *Place
		p, _ = s.Enter(network(c), now, func(Reason) {
			for i := range held {
				if at := slices.IndexFunc(held[i], func(q *Place) bool { return q.holder == nil }); at >= 0 {
					held[i] = slices.Delete(held[i], at, at+1)
				}
			}
		})
		if p != nil {
			held[c] = append(held[c], p)
		}
		return p != nil
	}
	leave := func(c int) {
		if n := len(held[c]); n > 0 {
			at := random.IntN(n)
			s.Leave(held[c][at])
			held[c] = slices.Delete(held[c], at, at+1)
		}
	}
	full := 0
	for range 50_000 {
		now = now.Add(time.Duration(random.IntN(int(leastStay / 20))))
		c := 1 + random.IntN(clients-1)
		if random.IntN(4) == 0 {
			leave(c)
		} else {
			enter(c)
		}
		before := len(held[0])
		if before < part && !enter(0) {
			t.Fatalf("who holds %d of its %d places finds none", before, part)
		}
		if len(held[0]) < min(before+1, part) {
			t.Fatal("who holds its part has lost a place")
		}
		if random.IntN(3) == 0 {
			leave(0)
		}
		total, most := 0, 0
		for _, places := range held {
			total, most = total+len(places), max(most, len(places))
		}
		if total != s.Len() || total > limit || most != s.most || most > limit/shareOfClient {
			t.Fatalf("%d places taken, %d by one; it says %d and %d", total, most, s.Len(), s.most)
		}
		if total == limit {
			full++
		}
	}
	if full < 10_000 {
		t.Errorf("all places were taken %d times only", full)
	}
}
