// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	seed = [Seeds]uint64{
		0x4164d8399f767c45, 0x5bc8fbbcbde5c099, 0xb0c11fdecb91ce37, 0xd76d4330f1446bea,
		0xa6eb8c9ebd69fe29, 0x87b0b125ec1d7da0, 0xd7210dff076ce2ef, 0xc6a5387777330bdb,
	}
	// With weakSeed all keys have one hash, as those that an attacker might search for: only
	// the keys themselves tell records apart, and an index has room for two buckets.
	weakSeed = [Seeds]uint64{seed[0]}
	first4   = [4]byte{192, 0, 2, 1}
	next4    = [4]byte{192, 0, 2, 2}
	peer4    = [4]byte{198, 51, 100, 7}
	small    = Sizes{Sessions: 256, Subscribers: 8, Addresses: 4, BlockWords: 4, SubscriberLength: 64}
)

// client returns the address of host n of client c.
func client(c, n uint32) (a [16]byte) {
	copy(a[:], []byte{0x20, 1, 0xd, 0xb8})
	binary.BigEndian.PutUint32(a[4:], c)
	binary.BigEndian.PutUint32(a[12:], n)
	return a
}

func ports(address [4]byte, first, last uint16) PoolAddress {
	p := PoolAddress{Address: address}
	for transport := range Transports {
		p.Ports = append(p.Ports, PortRange{transport, first, last})
	}
	return p
}

// open returns a table in fresh memory with a pool of two addresses.
func open(t testing.TB, z Sizes) (*Table, Memory) {
	t.Helper()
	return openSeeded(t, z, seed)
}

// eachSeed runs a test with keys that seldom meet, and with keys that all do.
func eachSeed(t *testing.T, test func(t *testing.T, table *Table)) {
	for name, seed := range map[string][Seeds]uint64{"secret seed": seed, "keys of one hash": weakSeed} {
		t.Run(name, func(t *testing.T) {
			table, _ := openSeeded(t, small, seed)
			test(t, table)
		})
	}
}

func openSeeded(t testing.TB, z Sizes, seed [Seeds]uint64) (*Table, Memory) {
	t.Helper()
	m := HeapMemory(z)
	table, adopted, err := Open(z, m, seed)
	if err != nil || adopted {
		t.Fatalf("Open of fresh memory: adopted %v, error %v", adopted, err)
	}
	if err := table.SetPool([]PoolAddress{ports(first4, 1024, 65535), ports(next4, 1, 65535)}); err != nil {
		t.Fatal(err)
	}
	return table, m
}

// reopen adopts the memory of a table.
func reopen(t testing.TB, z Sizes, m Memory) *Table {
	t.Helper()
	table, adopted, err := Open(z, m, [Seeds]uint64{})
	if err != nil || !adopted {
		t.Fatalf("Open of used memory: adopted %v, error %v", adopted, err)
	}
	if err := table.SetPool([]PoolAddress{ports(first4, 1024, 65535), ports(next4, 1, 65535)}); err != nil {
		t.Fatal(err)
	}
	return table
}

// subscribe makes client c with a first block of an address.
func (t *Table) subscribe(tb testing.TB, c uint32, pool [4]byte, limit uint32) (s Subscriber) {
	tb.Helper()
	a := client(c, 0)
	if o := t.MakeSubscriber(&a, pool, limit, &s); o != Made {
		tb.Fatalf("MakeSubscriber: %s", o)
	}
	var b Block
	if o := t.Lease(&s, UDP, MaxBlocks, uint64(c)<<24, &b); o != Made {
		tb.Fatalf("Lease: %s", o)
	}
	return s
}

// bind makes a UDP binding.
func (t *Table) bind(tb testing.TB, s *Subscriber, host uint32, port uint16) (b Binding) {
	tb.Helper()
	c := client(binary.BigEndian.Uint32(s.Prefix[4:]), host)
	if o := t.NewBinding(s, Inside{c, port, UDP}, Wish{}, rand.Uint64(), &b); o != Made {
		tb.Fatalf("NewBinding: %s", o)
	}
	return b
}

// meet makes a session of a binding.
func (t *Table) meet(tb testing.TB, b *Binding, peer [4]byte, port uint16) (s Session) {
	tb.Helper()
	if o := t.NewSession(b, Fresh{Peer: peer, PeerPort: port, Status: Opened, Stamp: 100}, &s); o != Made {
		tb.Fatalf("NewSession: %s", o)
	}
	return s
}

// check compares everything that can be told from the records with what is kept beside.
func (t *Table) check(tb testing.TB) {
	tb.Helper()
	sessions, bindings := make([]uint32, len(t.subscribers)), make([]uint32, len(t.subscribers))
	chained, held := 0, 0 // held: ports of the pool
	t.WalkBindings(0, len(t.bindings), func(b *Binding) {
		in, out := b.Inside(), b.Outside()
		var found Binding
		if !t.FindBinding6(&in, &found) || found != *b {
			tb.Errorf("binding %d is not found by %v", b.Index, in)
		}
		if !t.FindBinding4(&out, &found) || found != *b {
			tb.Errorf("binding %d is not found by %v", b.Index, out)
		}
		n, ok := t.numberOf(out.Pool)
		if !ok || !t.ports.has(t.portBit(n, &out)) {
			tb.Errorf("port %v is bound and free", out)
		}
		if t.InPool(out) {
			held++
		}
		if b.Subscriber != 0 {
			bindings[b.Subscriber-1]++
		}
		before := uint32(0)
		t.WalkChain(b, len(t.sessions), func(s *Session) bool {
			if t.sessions[s.Index].previous != before {
				tb.Errorf("session %d stands behind %d, and says %d", s.Index, before, t.sessions[s.Index].previous)
			}
			before = s.Index + 1
			chained++
			if b.Subscriber != 0 {
				sessions[b.Subscriber-1]++
			}
			return true
		})
	})
	count := 0
	t.WalkSessions(0, len(t.sessions), func(s *Session) {
		count++
		k6, k4 := s.Key6(), s.Key4()
		var found Session
		if !t.Find6(&k6, &found) || found != *s {
			tb.Errorf("session %d is not found by %v", s.Index, k6)
		}
		if !t.Find4(&k4, &found) || found != *s {
			tb.Errorf("session %d is not found by %v", s.Index, k4)
		}
	})
	taken := 0
	for n, ranges := range t.pool {
		for i := range uint32(addressWords) {
			mask := portMask(ranges, Transport(i/portWords), i%portWords)
			word := t.ports.words[n*addressWords+int(i)]
			taken += bits.OnesCount64(word & mask)
			if word|mask != ^uint64(0) {
				tb.Fatalf("ports outside of the pool are free in word %d of address %d", i, n)
			}
		}
	}
	if taken != held {
		tb.Errorf("%d ports of the pool are taken, bindings hold %d", taken, held)
	}
	if chained != count {
		tb.Errorf("%d sessions are in chains, and there are %d", chained, count)
	}
	for i := range t.subscribers {
		var s Subscriber
		if t.ViewSubscriber(uint32(i), &s) && (s.Sessions != sessions[i] || s.Bindings != bindings[i]) {
			tb.Errorf("client %d counts %d bindings, %d sessions; it has %d, %d", i, s.Bindings, s.Sessions, bindings[i], sessions[i])
		}
	}
	if c := t.Counts(); c.Sessions != count {
		tb.Errorf("the bitmap has %d sessions, there are %d", c.Sessions, count)
	}
	for name, x := range map[string]struct {
		index   *index
		entries int
	}{
		SlabSessions6: {&t.sessions6, count}, SlabSessions4: {&t.sessions4, count},
		SlabBindings6: {&t.bindings6, t.Counts().Bindings}, SlabBindings4: {&t.bindings4, t.Counts().Bindings},
	} {
		if n := x.index.entries(); n != x.entries {
			tb.Errorf("%s has %d entries, want %d", name, n, x.entries)
		}
	}
}

// entries counts the entries of an index.
func (x *index) entries() (n int) {
	for i := range x.buckets {
		for _, s := range x.buckets[i].slot {
			if s != 0 {
				n++
			}
		}
	}
	return n
}

// spills counts what buckets say of entries elsewhere.
func (x *index) spills() (n int) {
	for i := range x.buckets {
		n += int(x.buckets[i].spilled)
	}
	return n
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
