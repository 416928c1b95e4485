// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// program returns a table as another core has it: the same memory, its own hints.
func (t *Table) program() *Table {
	p := *t
	return &p
}

// flow does what a packet from IPv6 does, until its session is there.
func (t *Table) flow(client [16]byte, port uint16, peer [4]byte, stamp uint32, random *rand.Rand, s *Session) Outcome {
	k := Key6{Client: client, Peer: peer, ClientPort: port, PeerPort: 53, Transport: UDP}
	if t.Find6(&k, s) {
		t.Touch(s, stamp)
		return Found
	}
	in := k.Inside()
	var b Binding
	if !t.FindBinding6(&in, &b) {
		var c Subscriber
		if !t.FindSubscriber(&client, &c) {
			return Gone
		}
		if o := t.NewBinding(&c, in, Wish{Port: port, Parity: true}, random.Uint64(), &b); !o.OK() {
			return o
		}
	}
	return t.NewSession(&b, Fresh{Peer: peer, PeerPort: 53, Status: Opened, Stamp: stamp}, s)
}

// TestManyMakersOfOne lets all cores meet the same new flows at the same time.
func TestManyMakersOfOne(t *testing.T) {
	z := small
	z.Sessions = 1 << 14
	table, _ := open(t, z)
	table.subscribe(t, 1, first4, 0)
	const cores, flows = 4, 200
	var made atomic.Int32
	var all sync.WaitGroup
	for core := range uint64(cores) {
		all.Add(1)
		p, random := table.program(), rand.New(rand.NewPCG(1, core))
		go func() {
			defer all.Done()
			for i := range uint32(flows) {
				var s Session
				o := Busy
				for o == Busy {
					// Two sessions of each binding.
					o = p.flow(client(1, i/2), 2000, [4]byte{198, 51, 100, byte(i % 2)}, 1, random, &s)
				}
				if !o.OK() {
					t.Errorf("flow %d: %s", i, o)
				}
				if o == Made {
					made.Add(1)
				}
			}
		}()
	}
	all.Wait()
	if made.Load() < flows {
		t.Errorf("%d sessions were made", made.Load())
	}
	if c := table.Counts(); c.Sessions != flows || c.Bindings != flows/2 {
		t.Errorf("%d sessions and %d bindings, want %d and %d", c.Sessions, c.Bindings, flows, flows/2)
	}
	table.check(t)
}

// TestChurn lets programs make sessions and touch them while the daemon ends them, reaps
// bindings, moves clients about and follows the feed. What a program finds must be what it
// looked for.
func TestChurn(t *testing.T) {
	z := small
	z.Sessions = 1 << 14
	table, _ := open(t, z)
	for c := range uint32(4) {
		table.subscribe(t, c, first4, 100)
	}
	const cores, rounds = 3, 4000
	var running atomic.Int32
	var all sync.WaitGroup
	for core := range uint64(cores) {
		running.Add(1)
		all.Add(1)
		p, random := table.program(), rand.New(rand.NewPCG(2, core))
		go func() {
			defer all.Done()
			defer running.Add(-1)
			for i := range uint32(rounds) {
				a, peer := client(random.Uint32N(4), random.Uint32N(8)), [4]byte{198, 51, 100, byte(random.Uint32N(4))}
				var s Session
				if o := p.flow(a, 2000, peer, i, random, &s); o.OK() && (s.Client != a || s.Peer != peer || s.ClientPort != 2000) {
					t.Errorf("looked for %x to %v, found %+v", a, peer, s)
				} else if o == TableFull || o == OtherPrefix {
					t.Errorf("flow of %x: %s", a, o)
				}
				if i%3 == 0 {
					p.Step(&s, Established, 0, i)
				}
			}
		}()
	}
	random, kept := rand.New(rand.NewPCG(3, 3)), make(map[uint32]Session)
	for running.Load() > 0 {
		table.WalkSessions(0, z.Sessions, func(s *Session) {
			if random.Uint32N(2) == 0 {
				table.End(s)
			}
		})
		table.WalkBindings(0, z.Sessions, func(b *Binding) {
			switch random.Uint32N(4) {
			case 0:
				table.Reap(b)
			case 1:
				table.EndBinding(b)
			}
		})
		table.WalkSubscribers(0, z.Subscribers, func(s *Subscriber) { churn(table, s, random) })
		follow(t, table.Feed(), kept)
	}
	all.Wait()
	table.check(t)
	// The feed's reader has it all, but for stamps.
	follow(t, table.Feed(), kept)
	want := table.all()
	for _, sessions := range []map[uint32]Session{kept, want} {
		for i, s := range sessions {
			s.Word = wordOf(s.Word.Generation(), s.Word.Status(), s.Word.Flags(), 0)
			sessions[i] = s
		}
	}
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("what the feed told (-want +got):\n%s", diff)
	}
}

// churn moves a client to the other address, or ends it and makes it again.
func churn(t *Table, s *Subscriber, random *rand.Rand) {
	pool := [...][4]byte{first4, next4}[random.IntN(2)]
	var b Block
	switch random.IntN(8) {
	case 0:
		if t.Rehome(s, pool) == Made {
			t.Lease(s, UDP, MaxBlocks, random.Uint64(), &b)
		}
	case 1:
		if t.EndSubscriber(s) == Made {
			t.MakeSubscriber(&s.Prefix, pool, 100, s)
			t.Lease(s, UDP, MaxBlocks, random.Uint64(), &b)
		}
	case 2:
		t.Lease(s, UDP, 3, random.Uint64(), &b)
	}
}

// TestMovesHideNothing moves entries of an index, and enters others, while a reader looks
// for one that is there all the time.
func TestMovesHideNothing(t *testing.T) {
	x := index{make([]bucket, 64)}
	hashes := rand.New(rand.NewPCG(7, 7))
	var fixed []uint64
	for i := range uint32(200) {
		fixed = append(fixed, hashes.Uint64())
		x.insert(fixed[i], i)
	}
	var stop atomic.Bool
	var all sync.WaitGroup
	for core := range uint64(2) {
		all.Add(1)
		go func() { // a program that enters its own and takes them back
			defer all.Done()
			random := rand.New(rand.NewPCG(8, core))
			for record := uint32(1000 * (core + 1)); !stop.Load(); record++ {
				h := random.Uint64()
				home, other := x.place(h)
				if s := slotOf(h, record); x.put(home, s) || x.spill(home, other, s) {
					if !x.finds(h, record) || !x.remove(h, record) {
						t.Error("an entry is lost")
					}
				}
			}
		}()
	}
	all.Add(1)
	go func() { // a reader
		defer all.Done()
		for i := uint32(0); !stop.Load(); i = (i + 1) % 200 {
			if !x.finds(fixed[i], i) {
				t.Errorf("entry %d is not found", i)
			}
		}
	}()
	random := rand.New(rand.NewPCG(9, 9))
	for range 20000 {
		x.makeRoom(random.Uint32N(64))
	}
	stop.Store(true)
	all.Wait()
	if n := x.entries(); n != 200 {
		t.Errorf("%d entries are left, want 200", n)
	}
}
