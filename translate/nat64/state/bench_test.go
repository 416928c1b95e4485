// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// filled returns a table of so many sessions, each with a binding of its own, and the
// table's memory.
func filled(tb testing.TB, sessions int) (*Table, Memory, Sizes) {
	z := Sizes{Sessions: sessions, Subscribers: 1 << 10, Addresses: 64, BlockWords: 64, SubscriberLength: 64}
	m := HeapMemory(z)
	table, _, err := Open(z, m, seed)
	if err != nil {
		tb.Fatal(err)
	}
	var pool []PoolAddress
	for i := range byte(64) {
		pool = append(pool, ports([4]byte{203, 0, 113, i}, 1024, 65535))
	}
	if err := table.SetPool(pool); err != nil {
		tb.Fatal(err)
	}
	for i := range sessions {
		fill(tb, table, uint32(i))
	}
	return table, m, z
}

// fill makes session i: 1024 of each client, and so 16 clients on an address.
func fill(tb testing.TB, t *Table, i uint32) {
	var c Subscriber
	var block Block
	a := client(i/1024, i%1024)
	if t.MakeSubscriber(&a, [4]byte{203, 0, 113, byte(i / 1024 % 64)}, 0, &c) == Made {
		t.Lease(&c, UDP, MaxBlocks, uint64(i)<<20, &block)
	}
	var b Binding
	var s Session
	o := t.NewBinding(&c, Inside{a, 2000, UDP}, Wish{Port: 2000, Parity: true}, uint64(i)*0x9e3779b97f4a7c15, &b)
	if o != Made {
		tb.Fatalf("binding %d: %s", i, o)
	}
	if o := t.NewSession(&b, Fresh{Peer: peer4, PeerPort: 53, Status: Opened, Stamp: 1}, &s); o != Made {
		tb.Fatalf("session %d: %s", i, o)
	}
}

// TestMillion fills a table of a million sessions to the last, adopts it, and ends them.
func TestMillion(t *testing.T) {
	if testing.Short() || testutil.UnderRace {
		t.Skip("fills 170 MiB, and nothing runs beside")
	}
	table, m, z := filled(t, 1<<20)
	if c := table.Counts(); c.Sessions != 1<<20 || c.Bindings != 1<<20 || c.Subscribers != 1<<10 {
		t.Errorf("counts %+v", c)
	}
	table, adopted, err := Open(z, m, seed)
	if err != nil || !adopted {
		t.Fatalf("adopted %v, error %v", adopted, err)
	}
	if c := table.Counts(); c.Sessions != 1<<20 || c.Bindings != 1<<20 || c.Subscribers != 1<<10 {
		t.Errorf("counts after adoption %+v", c)
	}
	for i := range uint32(1 << 20) {
		var s Session
		k := keyOf(i)
		if !table.Find6(&k, &s) || table.End(&s) != Made {
			t.Fatalf("session %d is not found and ended", i)
		}
	}
	if c := table.Counts(); c.Sessions != 0 || c.Bindings != 0 {
		t.Errorf("counts after the end %+v", c)
	}
	for name, x := range map[string]*index{
		SlabSessions6: &table.sessions6, SlabSessions4: &table.sessions4,
		SlabBindings6: &table.bindings6, SlabBindings4: &table.bindings4,
	} {
		if entries, spills := x.entries(), x.spills(); entries != 0 || spills != 0 {
			t.Errorf("%s has %d entries and %d spilled ones", name, entries, spills)
		}
	}
}

// keyOf is the key of session i.
func keyOf(i uint32) Key6 {
	return Key6{Client: client(i/1024, i%1024), Peer: peer4, ClientPort: 2000, PeerPort: 53, Transport: UDP}
}

// TestNoAllocation does what packets cause.
func TestNoAllocation(t *testing.T) {
	table, _ := open(t, small)
	c := table.subscribe(t, 1, first4, 0)
	in := Inside{client(1, 5), 2000, UDP}
	k6 := Key6{Client: in.Client, Peer: peer4, ClientPort: 2000, PeerPort: 53, Transport: UDP}
	buf, live := make([]Change, 8), func(*Session) bool { return true }
	allocs := testing.AllocsPerRun(100, func() {
		var found Subscriber
		var b Binding
		var s Session
		if !table.FindSubscriber(&in.Client, &found) || found.Index != c.Index {
			t.Error("no client")
		}
		if table.NewBinding(&found, in, Wish{Port: 2000, Parity: true}, 77, &b) != Made || !table.FindBinding6(&in, &b) {
			t.Error("no binding")
		}
		if table.NewSession(&b, Fresh{Peer: peer4, PeerPort: 53, Status: Opened, Stamp: 1}, &s) != Made || !table.Find6(&k6, &s) {
			t.Error("no session")
		}
		k4, out := s.Key4(), b.Outside()
		if !table.Find4(&k4, &s) || !table.FindBinding4(&out, &b) {
			t.Error("not found by IPv4")
		}
		table.Touch(&s, 50)
		if !table.Step(&s, Established, 0, 60) || !table.HasPeer(&b, peer4, 10, live) || table.End(&s) != Made {
			t.Error("not ended")
		}
		table.Feed().Changes(buf)
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkFind6(b *testing.B) {
	for _, n := range []int{1 << 16, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table, _, _ := filled(b, n)
			keys, random := make([]Key6, 1<<16), rand.New(rand.NewPCG(1, 2))
			for i := range keys {
				keys[i] = keyOf(random.Uint32N(uint32(n)))
			}
			var s Session
			i := 0
			for b.Loop() {
				if !table.Find6(&keys[i&(1<<16-1)], &s) {
					b.Fatal("a session is not found")
				}
				i++
			}
		})
	}
}

// BenchmarkMakeAndEnd makes and ends a session and its binding, in a table that is half
// full.
func BenchmarkMakeAndEnd(b *testing.B) {
	for _, n := range []int{1 << 16, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table, _, _ := filled(b, n)
			for i := uint32(0); i < uint32(n); i += 2 {
				k := keyOf(i)
				var s Session
				if !table.Find6(&k, &s) || table.End(&s) != Made {
					b.Fatal("a session is not found and ended")
				}
			}
			random := rand.New(rand.NewPCG(1, 2))
			for b.Loop() {
				i := random.Uint32N(uint32(n)) &^ 1
				fill(b, table, i)
				k := keyOf(i)
				var s Session
				if !table.Find6(&k, &s) || table.End(&s) != Made {
					b.Fatal("a session is not found and ended")
				}
			}
		})
	}
}

func BenchmarkAdopt(b *testing.B) {
	_, m, z := filled(b, 1<<20)
	for b.Loop() {
		if _, adopted, err := Open(z, m, seed); err != nil || !adopted {
			b.Fatal(err)
		}
	}
}
