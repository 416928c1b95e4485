// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPortWishes(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, next4, 0) // whose system ports are in the pool
	block := table.Blocks(&s, nil)[0]
	for name, row := range map[string]struct {
		wish Wish
		want func(port uint16) bool
	}{
		"any":    {Wish{}, func(p uint16) bool { return p >= block.First && p <= block.Last }},
		"even":   {Wish{Port: 40, Parity: true}, func(p uint16) bool { return p%2 == 0 && p >= block.First }},
		"odd":    {Wish{Port: 41, Parity: true}, func(p uint16) bool { return p%2 == 1 && p >= block.First }},
		"system": {Wish{System: true}, func(p uint16) bool { return p > 0 && p < 1024 }},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range uint32(20) {
				var b Binding
				in := Inside{client(1, i), 7, UDP}
				if o := table.NewBinding(&s, in, row.wish, rand.Uint64(), &b); o != Made {
					t.Fatal(o)
				}
				if !row.want(b.PoolPort) {
					t.Errorf("port %d", b.PoolPort)
				}
				if o := table.Reap(&b); o != Made {
					t.Fatal(o)
				}
			}
		})
	}
	table.check(t)
}

// TestWishesInVain asks for ports that there are no more.
func TestWishesInVain(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 0)
	var b Binding
	if o := table.NewBinding(&s, Inside{client(1, 1), 53, UDP}, Wish{System: true}, 1, &b); o != Made || b.PoolPort < 1024 {
		t.Errorf("system port of an address without: %s, %d", o, b.PoolPort)
	}
	table.Reap(&b)
	for i := range uint32(128) {
		if o := table.NewBinding(&s, Inside{client(1, i), 2, UDP}, Wish{Port: 2, Parity: true}, rand.Uint64(), &b); o != Made || b.PoolPort%2 != 0 {
			t.Fatalf("even port: %s, %d", o, b.PoolPort)
		}
	}
	if o := table.NewBinding(&s, Inside{client(1, 200), 2, UDP}, Wish{Port: 2, Parity: true}, rand.Uint64(), &b); o != Made || b.PoolPort%2 != 1 {
		t.Errorf("even port when all are taken: %s, %d", o, b.PoolPort)
	}
	table.check(t)
}

// TestNoPort takes all ports of a block, each once, and then another block.
func TestNoPort(t *testing.T) {
	z := small
	z.Sessions = 1024
	table, _ := open(t, z)
	s := table.subscribe(t, 1, first4, 0)
	seen, random := make(map[uint16]bool), rand.New(rand.NewPCG(1, 2))
	take := func(host uint32, transport Transport) Outcome {
		var b Binding
		o := table.NewBinding(&s, Inside{client(1, host), 9, transport}, Wish{}, random.Uint64(), &b)
		if o == Made && transport == TCP {
			if seen[b.PoolPort] {
				t.Fatalf("port %d is taken twice", b.PoolPort)
			}
			seen[b.PoolPort] = true
		}
		return o
	}
	for i := range uint32(256) {
		if o := take(i, TCP); o != Made {
			t.Fatalf("port %d: %s", i, o)
		}
	}
	if o := take(256, TCP); o != NoPort {
		t.Errorf("beyond the block: %s", o)
	}
	if o := take(256, UDP); o != Made {
		t.Errorf("another transport: %s", o)
	}
	var block Block
	if o := table.Lease(&s, TCP, MaxBlocks, random.Uint64(), &block); o != Made {
		t.Fatal(o)
	}
	if o := take(256, TCP); o != Made {
		t.Errorf("of the second block: %s", o)
	}
	table.check(t)
}

func TestBlocks(t *testing.T) {
	table, _ := open(t, small)
	one, two := table.subscribe(t, 1, first4, 0), table.subscribe(t, 2, first4, 0)
	var block Block
	if o := table.LeaseAt(&one, 5000, &block); o != Made {
		t.Fatal(o)
	}
	if want := (Block{first4, 4864, 5119}); block != want {
		t.Errorf("block %v, want %v", block, want)
	}
	var none Block
	for name, row := range map[string]struct{ got, want Outcome }{
		"once more":   {table.LeaseAt(&one, 5119, &none), Found},
		"of another":  {table.LeaseAt(&two, 4864, &none), Taken},
		"beyond":      {table.Lease(&one, TCP, 2, 0, &none), BlockLimit},
		"not its own": {table.Return(&two, block), Gone},
	} {
		if row.got != row.want {
			t.Errorf("%s: %s, want %s", name, row.got, row.want)
		}
	}
	var owner Subscriber
	if !table.Owner(first4, 5000, &owner) || owner.Index != one.Index || table.Owner(first4, 4863, &owner) || table.Owner(peer4, 5000, &owner) {
		t.Error("the owner of a port is wrong")
	}
	var b Binding
	in := Inside{client(1, 1), 9, ICMP}
	if o := table.NewBinding(&one, in, Wish{}, 5001%64<<56|2<<32|1<<31, &b); o != Made || b.PoolPort != 5001 {
		t.Fatal(o)
	}
	if o := table.Return(&one, block); o != Found {
		t.Errorf("Return of a block in use: %s", o)
	}
	table.Reap(&b)
	if o := table.Return(&one, block); o != Made || one.Blocks != 1 || table.Owner(first4, 5000, &owner) {
		t.Errorf("Return: %s, %d blocks left", o, one.Blocks)
	}
	if o := table.EndSubscriber(&one); o != Made {
		t.Error(o)
	}
	if c := table.Counts(); c.Blocks != 1 || c.Subscribers != 1 {
		t.Errorf("counts %+v", c)
	}
}

// TestAllBlocks leases all of an address.
func TestAllBlocks(t *testing.T) {
	z := small
	z.BlockWords = 64 // 4096 ports: 16 blocks, the first of which has system ports too
	table, _ := open(t, z)
	s := table.subscribe(t, 1, first4, 0)
	var block Block
	for s.Blocks < MaxBlocks {
		if o := table.Lease(&s, UDP, MaxBlocks, rand.Uint64(), &block); o != Made {
			t.Fatalf("block %d: %s", s.Blocks, o)
		}
	}
	if table.HasBlock(first4, UDP, 0) || !table.HasBlock(next4, UDP, 0) || !table.HasBlock(next4, UDP, 61440) || table.HasBlock(next4, UDP, 65536) || table.HasBlock(peer4, UDP, 0) {
		t.Error("it is wrong which address has a block")
	}
	var firsts []int
	for _, b := range table.Blocks(&s, nil) {
		firsts = append(firsts, int(b.First)/4096)
	}
	slices.Sort(firsts)
	if diff := cmp.Diff([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, firsts); diff != "" {
		t.Error(diff)
	}
	other := client(2, 0)
	var o Subscriber
	table.MakeSubscriber(&other, first4, 0, &o)
	if got := table.Lease(&o, UDP, MaxBlocks, 0, &block); got != NoBlock {
		t.Errorf("no block left: %s", got)
	}
	if got := table.Lease(&s, UDP, MaxBlocks, 0, &block); got != NoBlock {
		t.Errorf("no block left: %s", got)
	}
}

// TestRandomPortsSkipSystemPorts takes all ports of a block that has some.
func TestRandomPortsSkipSystemPorts(t *testing.T) {
	z := small
	z.BlockWords, z.Sessions = 32, 2048
	table, _ := open(t, z)
	a := client(1, 0)
	var s Subscriber
	var block Block
	table.MakeSubscriber(&a, next4, 0, &s)
	if o := table.LeaseAt(&s, 5, &block); o != Made {
		t.Fatal(o)
	}
	for i := range uint32(1024) {
		var b Binding
		if o := table.NewBinding(&s, Inside{client(1, i), 2000, TCP}, Wish{}, rand.Uint64(), &b); o != Made || b.PoolPort < 1024 {
			t.Fatalf("binding %d: %s, port %d", i, o, b.PoolPort)
		}
	}
	var b Binding
	if o := table.NewBinding(&s, Inside{client(1, 2000), 2000, TCP}, Wish{}, 0, &b); o != NoPort {
		t.Errorf("beyond the block: %s, port %d", o, b.PoolPort)
	}
}
