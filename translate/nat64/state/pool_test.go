// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"strings"
	"testing"
)

func TestPortMask(t *testing.T) {
	for name, row := range map[string]struct {
		ranges []PortRange
		word   uint32
		want   uint64
	}{
		"none":            {nil, 5, 0},
		"all":             {[]PortRange{{UDP, 0, 65535}}, 5, ^uint64(0)},
		"port 0":          {[]PortRange{{UDP, 0, 65535}}, 0, ^uint64(1)},
		"last word":       {[]PortRange{{UDP, 65534, 65535}}, 1023, 3 << 62},
		"inside":          {[]PortRange{{UDP, 66, 67}}, 1, 3 << 2},
		"across":          {[]PortRange{{UDP, 10, 70}}, 1, 1<<7 - 1},
		"two":             {[]PortRange{{UDP, 64, 64}, {UDP, 127, 127}}, 1, 1<<63 | 1},
		"other transport": {[]PortRange{{TCP, 0, 65535}}, 1, 0},
		"before":          {[]PortRange{{UDP, 0, 63}}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := portMask(row.ranges, UDP, row.word); got != row.want {
				t.Errorf("mask %x, want %x", got, row.want)
			}
		})
	}
	if got := portMask([]PortRange{{ICMP, 0, 1}}, ICMP, 0); got != 3 {
		t.Errorf("identifier 0 is not in the pool: %x", got)
	}
}

func TestInPool(t *testing.T) {
	table, _ := open(t, small)
	for name, row := range map[string]struct {
		o    Outside
		want bool
	}{
		"inside":        {Outside{first4, 1024, TCP}, true},
		"before":        {Outside{first4, 1023, TCP}, false},
		"other address": {Outside{peer4, 1024, TCP}, false},
		"port 0":        {Outside{next4, 0, TCP}, false},
	} {
		if got := table.InPool(row.o); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

// TestPoolChanges takes an address out of the pool and brings it back, while bindings are
// on it.
func TestPoolChanges(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 0)
	kept, ended := table.bind(t, &s, 1, 9), table.bind(t, &s, 2, 9)
	x := table.meet(t, &kept, peer4, 1)
	third, fourth := [4]byte{203, 0, 113, 1}, [4]byte{203, 0, 113, 2}
	set := func(pool ...PoolAddress) error { return table.SetPool(pool) }
	if err := set(ports(third, 1024, 65535), ports(fourth, 1024, 65535)); err != nil {
		t.Fatal(err)
	}
	table.check(t)
	var b Binding
	if o := table.NewBinding(&s, Inside{client(1, 3), 9, UDP}, Wish{}, 0, &b); o != NoPort {
		t.Errorf("port of an address outside of the pool: %s", o)
	}
	k := x.Key4()
	if !table.Find4(&k, &x) {
		t.Error("the session is lost")
	}
	// Four addresses, one of them in use and not in the pool: one more has room, if next4,
	// which nothing uses, leaves its number.
	fifth, sixth := [4]byte{203, 0, 113, 3}, [4]byte{203, 0, 113, 4}
	if err := set(ports(third, 1, 9), ports(fourth, 1, 9), ports(fifth, 1, 9)); err != nil {
		t.Error(err)
	}
	if err := set(ports(third, 1, 9), ports(fourth, 1, 9), ports(fifth, 1, 9), ports(sixth, 1, 9)); err == nil || !strings.Contains(err.Error(), "room for 4") {
		t.Errorf("error %v", err)
	}
	if err := set(ports(third, 1, 9), ports(third, 10, 19)); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("error %v", err)
	}
	out := ended.Outside()
	table.Reap(&ended)
	n, _ := table.numberOf(first4)
	if !table.ports.has(table.portBit(n, &out)) {
		t.Error("a port outside of the pool is free")
	}
	if err := set(ports(first4, 1024, 65535)); err != nil {
		t.Fatal(err)
	}
	table.check(t) // kept's port is not free
	if table.ports.has(table.portBit(n, &out)) {
		t.Error("a port that has come back into the pool is not free")
	}
	table.bind(t, &s, 3, 9)
	table.check(t)
}

// TestSmallerPool keeps a binding on a port that has left the pool.
func TestSmallerPool(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 0)
	b := table.bind(t, &s, 1, 9)
	for _, pool := range []PoolAddress{ports(first4, 1, 9), ports(first4, 1, 65535)} {
		if err := table.SetPool([]PoolAddress{pool}); err != nil {
			t.Fatal(err)
		}
		table.check(t)
	}
	out := b.Outside()
	table.Reap(&b)
	if table.ports.has(table.portBit(0, &out)) {
		t.Error("the port is not free after its binding has ended")
	}
}

func TestRehome(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 0)
	old := table.bind(t, &s, 1, 9)
	table.meet(t, &old, peer4, 1)
	if o := table.Rehome(&s, next4); o != Made {
		t.Fatal(o)
	}
	var block Block
	if o := table.Lease(&s, UDP, 1, 0, &block); o != Made || block.Pool != next4 {
		t.Errorf("%s, block %v", o, block)
	}
	if b := table.bind(t, &s, 2, 9); b.Pool != next4 {
		t.Errorf("binding %+v", b)
	}
	table.check(t)
	if o := table.EndBinding(&old); o != Made {
		t.Error(o)
	}
	table.check(t)
}
