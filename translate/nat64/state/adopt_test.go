// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// listing is all that a table holds.
type listing struct {
	Sessions    []Session
	Bindings    []Binding
	Subscribers []Subscriber
	Blocks      [][]Block
	Counts      Counts
}

func (t *Table) list() (l listing) {
	t.WalkSessions(0, len(t.sessions), func(s *Session) { l.Sessions = append(l.Sessions, *s) })
	t.WalkBindings(0, len(t.bindings), func(b *Binding) { l.Bindings = append(l.Bindings, *b) })
	t.WalkSubscribers(0, len(t.subscribers), func(s *Subscriber) {
		l.Subscribers, l.Blocks = append(l.Subscribers, *s), append(l.Blocks, t.Blocks(s, nil))
	})
	l.Counts = t.Counts()
	return l
}

// populated returns a table with something of everything.
func populated(t testing.TB) (*Table, Memory) {
	table, m := open(t, small)
	for c := range uint32(3) {
		s := table.subscribe(t, c, first4, 50)
		for host := range uint32(4) {
			b := table.bind(t, &s, host, 2000)
			for port := range uint16(3) {
				table.meet(t, &b, peer4, port)
			}
		}
	}
	var b Binding
	if o := table.NewStatic(Inside{client(9, 9), 80, TCP}, Outside{next4, 80, TCP}, &b); o != Made {
		t.Fatal(o)
	}
	table.meet(t, &b, peer4, 1)
	return table, m
}

func TestAdopt(t *testing.T) {
	table, m := populated(t)
	var last Subscriber
	table.ViewSubscriber(2, &last)
	for i := range uint64(MaxBlocks - 1) {
		if o := table.Lease(&last, UDP, MaxBlocks, i<<28, &Block{}); o != Made {
			t.Fatal(o)
		}
	}
	want := table.list()
	// An earlier daemon ended at the worst moments.
	table.bindings[0].lock, table.subscribers[0].lock = 1, 1
	table.bindings[1].sessions, table.sessions[3].next = 77, 99
	table.subscribers[1].sessions = 1000
	for i := range table.sessions6.buckets {
		table.sessions6.buckets[i] = bucket{spilled: 3}
		table.bindings4.buckets[i].slot[2] = 1<<32 | 5
	}
	table.sessionsUsed.words[3] = ^uint64(0)
	clear(table.ports.words)
	again := reopen(t, small, m)
	again.check(t)
	if diff := cmp.Diff(want, again.list()); diff != "" {
		t.Errorf("after adoption (-before +after):\n%s", diff)
	}
	if again.Seed() != seed {
		t.Error("the seed has changed")
	}
	s := want.Subscribers[0]
	b := again.bind(t, &s, 77, 2000)
	again.meet(t, &b, peer4, 1)
	again.subscribe(t, 7, first4, 0)
	again.check(t)
}

// TestAdoptDropsWhatCannotBe damages one record, and what hangs on it goes.
func TestAdoptDropsWhatCannotBe(t *testing.T) {
	whole := Counts{Sessions: 37, Bindings: 13, Subscribers: 3, Blocks: 3}
	for name, row := range map[string]struct {
		damage func(*Table)
		want   Counts
	}{
		"nothing": {func(*Table) {}, whole},
		"state of a session": {
			func(t *Table) { t.sessions[4].word |= 0xff << wordStatus },
			Counts{36, 13, 3, 3},
		},
		"a state that is none": {
			func(t *Table) { t.sessions[4].word = uint64(wordOf(1, Statuses, 0, 0)) },
			Counts{36, 13, 3, 3},
		},
		"session of another host": {
			func(t *Table) { t.sessions[4].address6[3]++ },
			Counts{36, 13, 3, 3},
		},
		"session of another port of the host": {
			func(t *Table) { t.sessions[4].port6++ },
			Counts{36, 13, 3, 3},
		},
		"session of another address of the pool": {
			func(t *Table) { t.sessions[4].pool = wire32(next4) },
			Counts{36, 13, 3, 3},
		},
		"session of another port of the pool": {
			func(t *Table) { t.sessions[4].poolPort++ },
			Counts{36, 13, 3, 3},
		},
		"session of another transport": {
			func(t *Table) { t.sessions[4].transport = uint8(TCP) },
			Counts{36, 13, 3, 3},
		},
		"session of no binding": {
			func(t *Table) { t.sessions[4].binding = 255 },
			Counts{36, 13, 3, 3},
		},
		"session of a binding beyond": {
			func(t *Table) { t.sessions[4].binding = 1 << 31 },
			Counts{36, 13, 3, 3},
		},
		"session of another binding": {
			func(t *Table) { t.sessions[4].binding = 7 },
			Counts{36, 13, 3, 3},
		},
		"session that is there twice": {
			func(t *Table) { w := t.sessions[100].word; t.sessions[100] = t.sessions[4]; t.sessions[100].word |= w },
			whole,
		},
		"sessions of a binding": {
			func(t *Table) {
				for i := 3; i < 6; i++ {
					t.sessions[i].word = 0
				}
			},
			Counts{34, 12, 3, 3},
		},
		"binding that is there twice": {
			func(t *Table) { t.bindings[100] = t.bindings[4] },
			whole,
		},
		"state of a binding": {
			func(t *Table) { t.bindings[1].word |= 0xff },
			Counts{34, 12, 3, 3},
		},
		"state after the last of a binding": {
			func(t *Table) { t.bindings[1].word += bindingStatic },
			Counts{34, 12, 3, 3},
		},
		"transport of a static binding": {
			func(t *Table) { t.bindings[12].word += (uint32(Transports) - uint32(TCP)) << transportShift },
			Counts{36, 12, 3, 3},
		},
		"static binding to a strange address": {
			func(t *Table) { t.bindings[12].pool = wire32(peer4) },
			Counts{36, 12, 3, 3},
		},
		"second binding of one inside": {
			func(t *Table) { t.bindings[100] = t.bindings[12]; t.bindings[100].poolPort++ },
			whole,
		},
		"second binding of one outside": {
			func(t *Table) { t.bindings[100] = t.bindings[12]; t.bindings[100].port6++ },
			whole,
		},
		"transport of a binding": {
			func(t *Table) { t.bindings[1].word |= 0xff << transportShift },
			Counts{34, 12, 3, 3},
		},
		"binding of another client": {
			func(t *Table) { t.bindings[1].subscriber = 3 },
			Counts{34, 12, 3, 3},
		},
		"binding of a client beyond": {
			func(t *Table) { t.bindings[1].subscriber = 1 << 31 },
			Counts{34, 12, 3, 3},
		},
		"dynamic binding of nobody": {
			func(t *Table) { t.bindings[1].subscriber = 0 },
			Counts{34, 12, 3, 3},
		},
		"binding to a strange address": {
			func(t *Table) { t.bindings[1].pool = wire32(peer4) },
			Counts{34, 12, 3, 3},
		},
		"prefix of a client": {
			func(t *Table) { t.subscribers[0].prefix[3] = 1 },
			Counts{25, 9, 2, 2},
		},
		"client that is there twice": {
			func(t *Table) { t.subscribers[7] = t.subscribers[0]; t.subscribers[7].blocks = 0 },
			whole,
		},
		"too many blocks": {
			func(t *Table) { t.subscribers[0].blocks = 17 },
			Counts{25, 9, 2, 2},
		},
		"a block of two": {
			func(t *Table) { t.subscribers[1].first[0] = t.subscribers[0].first[0] },
			Counts{25, 9, 2, 2},
		},
		"a block that is there twice": {
			func(t *Table) { c := &t.subscribers[0]; c.first[1], c.blocks = c.first[0], 2 },
			Counts{25, 9, 2, 2},
		},
		"a block beyond": {
			func(t *Table) { t.subscribers[0].first[0] = 1 << 31 },
			Counts{25, 9, 2, 2},
		},
		"the first block of another transport": {
			func(t *Table) { t.subscribers[0].first[0] = portWords },
			Counts{25, 9, 2, 2},
		},
		"a block between blocks": {
			func(t *Table) { t.subscribers[0].first[0]++ },
			Counts{25, 9, 2, 2},
		},
		"a block of another address": {
			func(t *Table) { t.subscribers[0].first[0] += uint32(addressWords) },
			Counts{25, 9, 2, 2},
		},
		"a block of another transport": {
			func(t *Table) { t.subscribers[0].first[0] += portWords },
			Counts{25, 9, 2, 2},
		},
		"an address that is there twice": {
			func(t *Table) { t.addresses[3] = t.addresses[0] },
			whole,
		},
		"an address": {
			func(t *Table) { t.addresses[0].address = 0 },
			Counts{1, 1, 0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			table, m := populated(t)
			row.damage(table)
			again := reopen(t, small, m)
			again.check(t)
			if got := again.Counts(); got != row.want {
				t.Errorf("%+v, want %+v", got, row.want)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	_, m := populated(t)
	for name, change := range map[string]func(*Sizes){
		"more subscribers": func(z *Sizes) { z.Subscribers-- },
		"other blocks":     func(z *Sizes) { z.BlockWords *= 2 },
		"other clients":    func(z *Sizes) { z.SubscriberLength = 56 },
		"fewer sessions":   func(z *Sizes) { z.Sessions-- },
	} {
		z := small
		change(&z)
		if _, _, err := Open(z, m, seed); !errors.Is(err, ErrOther) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	z := small
	z.Sessions *= 2
	if _, _, err := Open(z, m, seed); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("too little memory: error %v", err)
	}
	head := m[SlabHead]
	head[0]++
	if _, _, err := Open(small, m, seed); !errors.Is(err, ErrOther) {
		t.Errorf("another version: error %v", err)
	}
	m[SlabHead] = aligned(len(head) + 8)[8:]
	if _, _, err := Open(small, m, seed); err == nil || !strings.Contains(err.Error(), "cache line") {
		t.Errorf("memory that is not aligned: error %v", err)
	}
}

// TestDivide keeps a table in one piece of memory.
func TestDivide(t *testing.T) {
	b := aligned(small.Bytes())
	m, err := Divide(small, b)
	if err != nil {
		t.Fatal(err)
	}
	for name, slab := range m {
		for i := range slab {
			if slab[i] != 0 {
				t.Fatalf("byte %d of %s is another's too", i, name)
			}
			slab[i] = 1
		}
	}
	clear(b)
	table, _, err := Open(small, m, seed)
	if err != nil {
		t.Fatal(err)
	}
	if err := table.SetPool([]PoolAddress{ports(first4, 1024, 65535)}); err != nil {
		t.Fatal(err)
	}
	s := table.subscribe(t, 1, first4, 0)
	binding := table.bind(t, &s, 1, 2000)
	want := table.meet(t, &binding, peer4, 1)
	if m, err = Divide(small, b); err != nil {
		t.Fatal(err)
	}
	again := reopen(t, small, m)
	var got Session
	if k := want.Key6(); !again.Find6(&k, &got) || got != want {
		t.Errorf("session %+v, want %+v", got, want)
	}
	if _, err := Divide(small, b[:len(b)-64]); err == nil || !strings.Contains(err.Error(), "other sizes") {
		t.Errorf("too little memory: error %v", err)
	}
}
