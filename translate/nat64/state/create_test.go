// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "testing"

func TestNewBinding(t *testing.T) { eachSeed(t, testNewBinding) }

func testNewBinding(t *testing.T, table *Table) {
	s := table.subscribe(t, 1, first4, 0)
	in := Inside{client(1, 5), 4242, UDP}
	var made, again Binding
	if o := table.NewBinding(&s, in, Wish{Port: 4242, Parity: true}, 99, &made); o != Made {
		t.Fatalf("outcome %s", o)
	}
	if made.Inside() != in || made.Pool != first4 || made.PoolPort%2 != 0 || made.Static || made.Subscriber != s.Index+1 {
		t.Errorf("binding %+v", made)
	}
	if o := table.NewBinding(&s, in, Wish{}, 7, &again); o != Found || again != made {
		t.Errorf("made again: %s, %+v; want found, %+v", o, again, made)
	}
	for name, k := range map[string]Inside{
		"other host":      {client(1, 6), 4242, UDP},
		"other network":   {client(2, 5), 4242, UDP},
		"other port":      {client(1, 5), 4243, UDP},
		"other transport": {client(1, 5), 4242, TCP},
	} {
		if table.FindBinding6(&k, &again) {
			t.Errorf("%s is found", name)
		}
	}
	for name, k := range map[string]Outside{
		"other address":   {next4, made.PoolPort, UDP},
		"other port":      {first4, made.PoolPort ^ 1, UDP},
		"other transport": {first4, made.PoolPort, ICMP},
	} {
		if table.FindBinding4(&k, &again) {
			t.Errorf("%s is found", name)
		}
	}
	table.check(t)
}

func TestNewBindingOfOneWhoHasEnded(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 0)
	if o := table.EndSubscriber(&s); o != Made {
		t.Fatalf("EndSubscriber: %s", o)
	}
	var b Binding
	if o := table.NewBinding(&s, Inside{client(1, 1), 1, UDP}, Wish{}, 0, &b); o != Gone {
		t.Errorf("outcome %s, want gone", o)
	}
	if c := table.Counts(); c != (Counts{}) {
		t.Errorf("counts %+v", c)
	}
}

func TestNewSession(t *testing.T) { eachSeed(t, testNewSession) }

func testNewSession(t *testing.T, table *Table) {
	s := table.subscribe(t, 1, first4, 0)
	b := table.bind(t, &s, 5, 4242)
	made := table.meet(t, &b, peer4, 53)
	want := Session{
		Word: made.Word, Client: client(1, 5), Pool: first4, Peer: peer4, ClientPort: 4242,
		PoolPort: b.PoolPort, PeerPort: 53, Transport: UDP, Index: made.Index, Binding: b.Index,
	}
	if made != want || made.Word.Status() != Opened || made.Word.Stamp() != 100 || made.Word.Flags() != 0 {
		t.Errorf("session %+v, want %+v", made, want)
	}
	var again Session
	if o := table.NewSession(&b, Fresh{Peer: peer4, PeerPort: 53, Status: Opened, Stamp: 7}, &again); o != Found || again != made {
		t.Errorf("made again: %s, %+v", o, again)
	}
	if o := table.NewSession(&b, Fresh{Peer: peer4, PeerPort: 53, Prefix: 1, Status: Opened}, &again); o != OtherPrefix {
		t.Errorf("by another prefix: %s", o)
	}
	for name, change := range map[string]func(*Key6){
		"other host":      func(k *Key6) { k.Client = client(1, 6) },
		"other network":   func(k *Key6) { k.Client = client(2, 5) },
		"other peer":      func(k *Key6) { k.Peer[0]++ },
		"other port":      func(k *Key6) { k.ClientPort++ },
		"other peer port": func(k *Key6) { k.PeerPort++ },
		"other transport": func(k *Key6) { k.Transport = TCP },
		"other prefix":    func(k *Key6) { k.Prefix++ },
	} {
		k := made.Key6()
		if change(&k); table.Find6(&k, &again) {
			t.Errorf("by IPv6, %s is found", name)
		}
	}
	for name, change := range map[string]func(*Key4){
		"other pool address": func(k *Key4) { k.Pool = next4 },
		"other peer":         func(k *Key4) { k.Peer[0]++ },
		"other port":         func(k *Key4) { k.PoolPort++ },
		"other peer port":    func(k *Key4) { k.PeerPort++ },
		"other transport":    func(k *Key4) { k.Transport = TCP },
	} {
		k := made.Key4()
		if change(&k); table.Find4(&k, &again) {
			t.Errorf("by IPv4, %s is found", name)
		}
	}
	table.check(t)
}

func TestSessionLimit(t *testing.T) {
	table, _ := open(t, small)
	s, other := table.subscribe(t, 1, first4, 2), table.subscribe(t, 2, first4, 2)
	b := table.bind(t, &s, 1, 2000)
	table.meet(t, &b, peer4, 1)
	kept := table.meet(t, &b, peer4, 2)
	var x Session
	if o := table.NewSession(&b, Fresh{Peer: peer4, PeerPort: 3, Status: Opened}, &x); o != SessionLimit {
		t.Errorf("beyond the limit: %s", o)
	}
	theirs := table.bind(t, &other, 1, 2000)
	table.meet(t, &theirs, peer4, 1)
	if o := table.End(&kept); o != Made {
		t.Fatalf("End: %s", o)
	}
	table.meet(t, &b, peer4, 3)
	table.SetSessionLimit(&s, 0)
	table.meet(t, &b, peer4, 4)
	table.check(t)
}

// TestSessionsOfTheIPv4Side: half of a client's sessions and a quarter of the table are for
// those that clients open.
func TestSessionsOfTheIPv4Side(t *testing.T) {
	z := small
	z.Sessions = 100
	table, _ := open(t, z)
	s := table.subscribe(t, 1, first4, 5)
	b := table.bind(t, &s, 1, 2000)
	port := uint16(0)
	fill := func(fromIPv4 bool, want int, refused Outcome) {
		t.Helper()
		for n := 0; ; n++ {
			port++
			var made Session
			fresh := Fresh{Peer: peer4, PeerPort: port, Status: Opened, FromIPv4: fromIPv4}
			switch o := table.NewSession(&b, fresh, &made); {
			case o != Made && (o != refused || n != want):
				t.Fatalf("from IPv4 %v: %s after %d sessions; want %s after %d", fromIPv4, o, n, refused, want)
			case o != Made:
				return
			}
		}
	}
	fill(true, 3, SessionLimit)
	fill(false, 2, SessionLimit)
	table.SetSessionLimit(&s, 0)
	fill(true, 70, TableFull)
	fill(true, 0, TableFull)
	fill(false, 25, TableFull)
	table.check(t)
	var last Session
	if !table.View(0, &last) || table.End(&last) != Made {
		t.Fatal("no session ends")
	}
	fill(true, 1, TableFull)
}

// TestFullTable uses up all records, and gives what it could not use back.
func TestFullTable(t *testing.T) {
	z := small
	z.Sessions = 64
	table, _ := open(t, z)
	s := table.subscribe(t, 1, first4, 0)
	b := table.bind(t, &s, 1, 2000)
	for i := range uint16(64) {
		table.meet(t, &b, peer4, i)
	}
	var x Session
	if o := table.NewSession(&b, Fresh{Peer: peer4, PeerPort: 64, Status: Opened}, &x); o != TableFull {
		t.Errorf("session beyond the table: %s", o)
	}
	for i := range uint32(63) {
		table.bind(t, &s, 2+i, 2000)
	}
	var y Binding
	if o := table.NewBinding(&s, Inside{client(1, 99), 2000, UDP}, Wish{}, 0, &y); o != TableFull {
		t.Errorf("binding beyond the table: %s", o)
	}
	if !table.free6.none || !table.noBinding {
		t.Error("the next packet looks for a free record again")
	}
	table.check(t)
	for i := range uint32(z.Subscribers - 1) {
		table.subscribe(t, 2+i, first4, 0)
	}
	a, none := client(100, 0), Subscriber{}
	if o := table.MakeSubscriber(&a, first4, 0, &none); o != TableFull {
		t.Errorf("client beyond the table: %s", o)
	}
}

// TestFullIndex makes what the indexes have no room for though there are records: it
// leaves nothing behind, no port, record or quota.
func TestFullIndex(t *testing.T) {
	table, _ := openSeeded(t, small, weakSeed)
	s := table.subscribe(t, 1, first4, 0)
	var b, refused Binding
	bindings := uint32(0)
	for o := Made; o == Made; bindings++ {
		o = table.NewBinding(&s, Inside{client(1, bindings), 2000, UDP}, Wish{}, 0, &b)
		if o != Made && o != TableFull {
			t.Fatal(o)
		}
	}
	bindings--
	if o := table.NewStatic(Inside{client(9, 9), 80, TCP}, Outside{next4, 80, TCP}, &refused); o != TableFull {
		t.Errorf("static binding: %s", o)
	}
	var x Session
	sessions := uint16(0)
	for ; table.NewSession(&b, Fresh{Peer: peer4, PeerPort: sessions, Status: Opened}, &x) == Made; sessions++ {
	}
	if o := table.NewSession(&b, Fresh{Peer: peer4, PeerPort: sessions, Status: Opened}, &Session{}); o != TableFull {
		t.Errorf("session: %s", o)
	}
	if bindings < indexSlots || sessions < indexSlots {
		t.Errorf("room for %d bindings, %d sessions", bindings, sessions)
	}
	if c := table.Counts(); c.Bindings != int(bindings) || c.Sessions != int(sessions) {
		t.Errorf("%d bindings and %d sessions were made; counts %+v", bindings, sessions, c)
	}
	table.check(t)
	if o := table.End(&x); o != Made {
		t.Fatal(o)
	}
	table.meet(t, &b, peer4, sessions)
	table.check(t)
}

func TestHeldLocks(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 0)
	b := table.bind(t, &s, 1, 2000)
	x := table.meet(t, &b, peer4, 1)
	var block Block
	table.subscribers[s.Index].lock, table.bindings[b.Index].lock = 1, 1
	for name, o := range map[string]Outcome{
		"NewBinding":    table.NewBinding(&s, Inside{client(1, 2), 1, UDP}, Wish{}, 0, &Binding{}),
		"NewSession":    table.NewSession(&b, Fresh{Peer: peer4, Status: Opened}, &Session{}),
		"NewStatic":     table.NewStatic(Inside{client(1, 2), 1, UDP}, Outside{first4, 5000, UDP}, &Binding{}),
		"Lease":         table.Lease(&s, UDP, MaxBlocks, 0, &block),
		"Return":        table.Return(&s, block),
		"Rehome":        table.Rehome(&s, next4),
		"EndSubscriber": table.EndSubscriber(&s),
		"End":           table.End(&x),
		"EndBinding":    table.EndBinding(&b),
		"Reap":          table.Reap(&b),
	} {
		if o != Busy {
			t.Errorf("%s with a lock held: %s", name, o)
		}
	}
	table.subscribers[s.Index].lock, table.bindings[b.Index].lock = 0, 0
	// The lock of a free record may be held by whoever held it in its last use.
	table.bindings[b.Index+1].lock = 1
	if o := table.NewBinding(&s, Inside{client(1, 2), 1, UDP}, Wish{}, 0, &Binding{}); o != Busy {
		t.Errorf("NewBinding with the lock of its record held: %s", o)
	}
	table.bindings[b.Index+1].lock = 0
	table.check(t)
}

// TestFullTableHasRoomAgain ends one of all sessions.
func TestFullTableHasRoomAgain(t *testing.T) {
	z := small
	z.Sessions = 64
	table, _ := open(t, z)
	s := table.subscribe(t, 1, first4, 0)
	var last Session
	for i := range uint32(64) {
		b := table.bind(t, &s, i, 2000)
		last = table.meet(t, &b, peer4, 1)
	}
	var b Binding
	for range 2 {
		if o := table.NewBinding(&s, Inside{client(1, 99), 2000, UDP}, Wish{}, 0, &b); o != TableFull {
			t.Errorf("binding beyond the table: %s", o)
		}
		table.ViewBinding(last.Binding, &b)
		if o := table.NewSession(&b, Fresh{Peer: peer4, PeerPort: 2, Status: Opened}, &Session{}); o != TableFull {
			t.Errorf("session beyond the table: %s", o)
		}
	}
	if o := table.End(&last); o != Made {
		t.Fatal(o)
	}
	b = table.bind(t, &s, 99, 2000)
	table.meet(t, &b, peer4, 1)
	table.check(t)
}

// TestNewBindingElsewhere: a client's binding on an address that is not its own has a port that no
// client holds, and goes like any other.
func TestNewBindingElsewhere(t *testing.T) {
	table, memory := open(t, small)
	s, other := table.subscribe(t, 1, first4, 2), table.subscribe(t, 2, next4, 0)
	const first = 65000
	seen := make(map[uint16]bool)
	var made Binding
	for i := range uint16(65536 - 65024) {
		o := table.NewBinding(&s, Inside{client(1, 5), 3000 + i, TCP}, Wish{On: next4, First: first}, uint64(i)<<33, &made)
		var owner Subscriber
		switch {
		case o == TableFull && i == uint16(small.Sessions):
		case o != Made || seen[made.PoolPort] || made.PoolPort < first || made.Pool != next4 || made.Subscriber != s.Index+1:
			t.Fatalf("binding %d: %s, %+v", i, o, made)
		case table.Owner(next4, made.PoolPort, &owner):
			t.Fatalf("port %d is of client %d", made.PoolPort, owner.Index)
		}
		if o == TableFull {
			break
		}
		seen[made.PoolPort] = true
	}
	if len(seen) != small.Sessions {
		t.Errorf("%d bindings", len(seen))
	}
	var again Binding
	if o := table.NewBinding(&s, made.Inside(), Wish{On: next4}, 9, &again); o != Found || again != made {
		t.Errorf("made again: %s, %+v", o, again)
	}
	one := table.meet(t, &made, peer4, 53)
	if table.InBlock(&one) {
		t.Error("the port is of a block")
	}
	table.check(t)
	table = reopen(t, small, memory)
	if c := table.Counts(); c.Bindings != 1 || c.Sessions != 1 || !table.ViewBinding(made.Index, &again) || again.Outside() != made.Outside() {
		t.Errorf("counts %+v after a restart, binding %+v", c, again)
	}
	if o := table.End(&one); o != Made {
		t.Fatal(o)
	}
	if c := table.Counts(); c.Bindings != 0 {
		t.Errorf("counts %+v when it is over", c)
	}
	table.FindSubscriber(&other.Prefix, &other)
	b := table.bind(t, &other, 5, 4242)
	if s := table.meet(t, &b, peer4, 53); !table.InBlock(&s) {
		t.Error("a port of the client's is of no block of it")
	}
	if o := table.NewBinding(&other, Inside{client(2, 5), 1, TCP}, Wish{On: [4]byte{192, 0, 2, 77}}, 9, &again); o != NoPort {
		t.Errorf("on an address that is not in the pool: %s", o)
	}
	if o := table.NewBinding(&other, Inside{client(2, 5), 1, TCP}, Wish{On: next4, First: 65535}, 9, &again); o != NoPort {
		t.Errorf("beyond the last port: %s", o)
	}
	table.check(t)
}
