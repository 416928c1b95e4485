// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"net/netip"
	"testing"
)

func TestPrefixOf(t *testing.T) {
	address := netip.MustParseAddr("2001:db8:1234:56ff:ffff:ffff:ffff:ffff").As16()
	for length, want := range map[int]string{
		1: "::", 32: "2001:db8::", 56: "2001:db8:1234:5600::", 60: "2001:db8:1234:56f0::",
		64: "2001:db8:1234:56ff::", 127: "2001:db8:1234:56ff:ffff:ffff:ffff:fffe", 128: "2001:db8:1234:56ff:ffff:ffff:ffff:ffff",
	} {
		table := Table{sizes: Sizes{SubscriberLength: length}}
		if got := netip.AddrFrom16(table.prefixOf(&address)); got != netip.MustParseAddr(want) {
			t.Errorf("%d bits: %s, want %s", length, got, want)
		}
	}
}

func TestSubscribers(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 9)
	var again Subscriber
	for name, row := range map[string]struct {
		address [16]byte
		want    bool
	}{
		"another host":   {client(1, 0xffffffff), true},
		"another client": {client(2, 0), false},
	} {
		if got := table.FindSubscriber(&row.address, &again); got != row.want || got && again != s {
			t.Errorf("%s: found %v, %+v", name, got, again)
		}
	}
	a := client(1, 77)
	if o := table.MakeSubscriber(&a, next4, 0, &again); o != Found || again != s {
		t.Errorf("made again: %s, %+v", o, again)
	}
	table.SetIdle(&s, 55)
	if table.ViewSubscriber(s.Index, &again); again.IdleSince != 55 || again.SessionLimit != 9 {
		t.Errorf("client %+v", again)
	}
	b := table.bind(t, &s, 1, 2000)
	if o := table.EndSubscriber(&s); o != Found {
		t.Errorf("EndSubscriber with a binding: %s", o)
	}
	table.Reap(&b)
	if o := table.EndSubscriber(&s); o != Made || table.ViewSubscriber(s.Index, &again) || table.Counts().Blocks != 0 {
		t.Errorf("EndSubscriber: %s", o)
	}
	if o := table.EndSubscriber(&s); o != Gone {
		t.Errorf("EndSubscriber once more: %s", o)
	}
	next := table.subscribe(t, 2, first4, 0)
	if next.Index != s.Index || next.Generation == s.Generation || next.IdleSince != 0 {
		t.Errorf("the next use of the record is %+v", next)
	}
}

// TestReturn takes a block from a client that has three: it is another's then, and the
// others stay. No block goes while the client has a binding there.
func TestReturn(t *testing.T) {
	table, _ := open(t, small)
	s, other := table.subscribe(t, 1, first4, 0), table.subscribe(t, 2, first4, 0)
	var more Block
	for i := range uint64(2) {
		if o := table.Lease(&s, UDP, MaxBlocks, 1<<31+i<<28, &more); o != Made {
			t.Fatal(o)
		}
	}
	blocks := table.Blocks(&s, nil)
	bind := func(in Inside, port uint16) (b Binding) {
		t.Helper()
		if o := table.NewStatic(in, Outside{first4, port, in.Transport}, &b); o != Made {
			t.Fatal(o)
		}
		return b
	}
	foreign := bind(Inside{client(2, 1), 80, TCP}, blocks[0].First)
	last := bind(Inside{client(1, 1), 80, ICMP}, blocks[0].Last)
	bind(Inside{client(1, 1), 80, TCP}, blocks[1].First)
	if o := table.Return(&s, blocks[0]); o != Found {
		t.Errorf("with a binding of the last port: %s", o)
	}
	table.EndBinding(&last)
	if o := table.Return(&s, blocks[0]); o != Made || s.Blocks != 2 {
		t.Errorf("with a binding of somebody else: %s, %d blocks", o, s.Blocks)
	}
	if got := table.Blocks(&s, nil); len(got) != 2 || got[0] != blocks[2] || got[1] != blocks[1] {
		t.Errorf("blocks %v, want %v", got, []Block{blocks[2], blocks[1]})
	}
	table.EndBinding(&foreign)
	if o := table.LeaseAt(&other, blocks[0].First, &more); o != Made || more != blocks[0] {
		t.Errorf("LeaseAt of what was returned: %s, %v, want %v", o, more, blocks[0])
	}
	var owner Subscriber
	for _, b := range blocks {
		want := s.Index
		if b == blocks[0] {
			want = other.Index
		}
		if !table.Owner(first4, b.Last, &owner) || owner.Index != want {
			t.Errorf("%v belongs to client %d, want %d", b, owner.Index, want)
		}
	}
	table.check(t)
}

// TestOldCopyOfSubscriber acts on a client that has another address since.
func TestOldCopyOfSubscriber(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 0)
	old := s
	table.Rehome(&s, next4)
	var b Binding
	var block Block
	if o := table.LeaseAt(&s, 4096, &block); o != Made {
		t.Fatal(o)
	}
	for name, o := range map[string]Outcome{
		"NewBinding":    table.NewBinding(&old, Inside{client(1, 1), 2000, UDP}, Wish{}, 0, &b),
		"Lease":         table.Lease(&old, UDP, MaxBlocks, 0, &block),
		"Return":        table.Return(&old, Block{first4, 4096, 4351}),
		"Rehome":        table.Rehome(&old, first4),
		"EndSubscriber": table.EndSubscriber(&old),
	} {
		if o != Gone {
			t.Errorf("%s: %s, want gone", name, o)
		}
	}
	if c := table.Counts(); c.Bindings != 0 || c.Subscribers != 1 || c.Blocks != 1 {
		t.Errorf("counts %+v", c)
	}
}

// TestWords holds the words of operators and counters.
func TestWords(t *testing.T) {
	for o, want := range map[Outcome]string{
		Made: "made", Found: "found", Busy: "busy", TableFull: "table_full", NoPort: "no_port", NoBlock: "no_block",
		BlockLimit: "block_limit", SessionLimit: "session_limit", Gone: "gone", OtherPrefix: "other_prefix",
		Taken: "taken", NotInPool: "not_in_pool", 99: "unknown",
	} {
		if o.String() != want {
			t.Errorf("outcome %d is %s, want %s", o, o, want)
		}
	}
	for s, want := range map[Status]string{
		Free: "free", Opened: "open", V4Init: "v4_init", V6Init: "v6_init", Established: "established",
		V4Fin: "v4_fin", V6Fin: "v6_fin", BothFin: "both_fin", Trans: "trans", Statuses: "unknown",
	} {
		if s.String() != want {
			t.Errorf("state %d is %s, want %s", s, s, want)
		}
	}
	for s, want := range map[Transport]string{TCP: "tcp", UDP: "udp", ICMP: "icmp", Transports: "unknown"} {
		if s.String() != want {
			t.Errorf("transport %d is %s, want %s", s, s, want)
		}
	}
}
