// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "testing"

func TestEnd(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 0)
	b := table.bind(t, &s, 1, 2000)
	var all [5]Session
	for i := range all {
		all[i] = table.meet(t, &b, peer4, uint16(i))
	}
	// The middle, the oldest, the newest, and what is left.
	for _, i := range []int{2, 0, 4, 1} {
		if o := table.End(&all[i]); o != Made {
			t.Fatalf("End of session %d: %s", i, o)
		}
		table.check(t)
		if o := table.End(&all[i]); o != Gone {
			t.Errorf("End of session %d once more: %s", i, o)
		}
	}
	if !table.HasSessions(&b) {
		t.Error("the binding has no session")
	}
	if o := table.End(&all[3]); o != Made {
		t.Fatal(o)
	}
	in := b.Inside()
	if table.FindBinding6(&in, &Binding{}) || table.HasSessions(&b) {
		t.Error("the binding has outlived its last session")
	}
	if c := table.Counts(); c.Sessions != 0 || c.Bindings != 0 || c.Subscribers != 1 {
		t.Errorf("counts %+v", c)
	}
	var x Session
	if o := table.NewSession(&b, Fresh{Peer: peer4, Status: Opened}, &x); o != Gone {
		t.Errorf("session of a binding that has ended: %s", o)
	}
	table.check(t)
}

// TestEndAfterPacket ends a session that a packet has renewed since it was seen.
func TestEndAfterPacket(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 0)
	b := table.bind(t, &s, 1, 2000)
	seen := table.meet(t, &b, peer4, 1)
	packet := seen
	table.Touch(&packet, seen.Word.Stamp()+StampEvery)
	if o := table.End(&seen); o != Gone {
		t.Errorf("End of a session that a packet has renewed: %s", o)
	}
	if o := table.End(&packet); o != Made {
		t.Errorf("End: %s", o)
	}
	table.check(t)
}

// TestReuse holds what was seen of a record against its next use.
func TestReuse(t *testing.T) {
	z := small
	z.Sessions = 1
	table, _ := open(t, z)
	s := table.subscribe(t, 1, first4, 0)
	b := table.bind(t, &s, 1, 2000)
	old := table.meet(t, &b, peer4, 1)
	table.End(&old)
	again := table.bind(t, &s, 1, 2000)
	x := table.meet(t, &again, peer4, 1)
	if x.Index != old.Index || again.Index != b.Index {
		t.Fatal("the records were not used again")
	}
	if table.Step(&old, Opened, 0, 5) || table.End(&old) != Gone || table.EndBinding(&b) != Gone || table.Reap(&b) != Gone {
		t.Error("what was seen of a record changed its next use")
	}
	if table.HasSessions(&b) || !table.HasSessions(&again) {
		t.Error("the two uses of a binding's record are taken for each other")
	}
	table.check(t)
}

// TestEndedIsNotFound looks for what has ended and is in the indexes still, as it is for a
// moment.
func TestEndedIsNotFound(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 0)
	b := table.bind(t, &s, 1, 2000)
	x := table.meet(t, &b, peer4, 1)
	table.sessions[x.Index].word &^= stateMask << wordStatus
	table.bindings[b.Index].word &^= stateMask
	in, out, k6, k4 := b.Inside(), b.Outside(), x.Key6(), x.Key4()
	if table.Find6(&k6, &x) || table.Find4(&k4, &x) || table.FindBinding6(&in, &b) || table.FindBinding4(&out, &b) {
		t.Error("what has ended is found")
	}
}

func TestEndBinding(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 0)
	b, other := table.bind(t, &s, 1, 2000), table.bind(t, &s, 2, 2000)
	for i := range uint16(20) {
		table.meet(t, &b, peer4, i)
	}
	table.meet(t, &other, peer4, 1)
	if o := table.EndBinding(&b); o != Made {
		t.Fatal(o)
	}
	if c := table.Counts(); c.Sessions != 1 || c.Bindings != 1 {
		t.Errorf("counts %+v", c)
	}
	table.check(t)
}

func TestReap(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 0)
	bare, busy := table.bind(t, &s, 1, 2000), table.bind(t, &s, 2, 2000)
	table.meet(t, &busy, peer4, 1)
	if o := table.Reap(&busy); o != Found {
		t.Errorf("with a session: %s", o)
	}
	if o := table.Reap(&bare); o != Made {
		t.Errorf("without: %s", o)
	}
	var fixed Binding
	if o := table.NewStatic(Inside{client(9, 9), 80, TCP}, Outside{next4, 80, TCP}, &fixed); o != Made {
		t.Fatal(o)
	}
	if o := table.Reap(&fixed); o != Found {
		t.Errorf("static: %s", o)
	}
	table.check(t)
}

func TestStep(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 0)
	b := table.bind(t, &s, 1, 2000)
	x := table.meet(t, &b, peer4, 1)
	stale := x
	if !table.Step(&x, Established, Slow, 200) {
		t.Fatal("Step failed")
	}
	if w := x.Word; w.Status() != Established || w.Flags() != Slow || w.Stamp() != 200 || w.Generation() != stale.Word.Generation() {
		t.Errorf("word %x", w)
	}
	if table.Step(&stale, Trans, 0, 201) {
		t.Error("Step by an old copy succeeded")
	}
	var now Session
	if !table.View(x.Index, &now) || now != x {
		t.Errorf("session %+v, want %+v", now, x)
	}
	table.Touch(&x, 200+StampEvery-1)
	if x.Word.Stamp() != 200 {
		t.Error("a young stamp was renewed")
	}
	table.Touch(&x, 200+StampEvery)
	if table.View(x.Index, &now); x.Word.Stamp() != 200+StampEvery || now != x {
		t.Errorf("stamp %d, want %d", now.Word.Stamp(), 200+StampEvery)
	}
}

func TestWordAge(t *testing.T) {
	for name, row := range map[string]struct{ stamp, now, want uint32 }{
		"the same":          {100, 100, 0},
		"later":             {100, 130, 30},
		"clock behind":      {100, 99, 0},
		"stamp has wrapped": {1<<32 - 10, 5, 15},
	} {
		t.Run(name, func(t *testing.T) {
			if age := wordOf(3, Trans, Expected, row.stamp).Age(row.now); age != row.want {
				t.Errorf("age %d, want %d", age, row.want)
			}
		})
	}
}

func TestUnits(t *testing.T) {
	for d, want := range map[string]uint32{"0s": 0, "1ns": 1, "268435456ns": 1, "268435457ns": 2, "2h": 26823} {
		if got := Units(duration(t, d)); got != want {
			t.Errorf("Units(%s) = %d, want %d", d, got, want)
		}
	}
	if Units(-1) != 0 || Stamp(3<<stampShift+5) != 3 {
		t.Error("negative time or the stamp of an instant is wrong")
	}
}

func TestStatic(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 0)
	dynamic := table.bind(t, &s, 1, 2000)
	in, out := Inside{client(1, 7), 80, TCP}, Outside{first4, 8080, TCP}
	var b Binding
	for _, row := range []struct {
		name string
		in   Inside
		out  Outside
		want Outcome
	}{
		{"of a client", in, out, Made},
		{"once more", in, out, Found},
		{"other inside", Inside{client(1, 8), 80, TCP}, out, Taken},
		{"other outside", in, Outside{first4, 8081, TCP}, Taken},
		{"of a client to another address", Inside{client(1, 9), 80, TCP}, Outside{next4, 80, TCP}, Made},
		{"of nobody", Inside{client(5, 7), 80, TCP}, Outside{next4, 81, TCP}, Made},
		{"outside of the pool", Inside{client(5, 8), 80, TCP}, Outside{first4, 80, TCP}, NotInPool},
		{"another pool", Inside{client(5, 8), 80, TCP}, Outside{peer4, 80, TCP}, NotInPool},
		{"two transports", Inside{client(5, 8), 80, TCP}, Outside{next4, 82, UDP}, NotInPool},
		{"a dynamic one as it is", dynamic.Inside(), dynamic.Outside(), Made},
	} {
		if o := table.NewStatic(row.in, row.out, &b); o != row.want {
			t.Errorf("%s: %s, want %s", row.name, o, row.want)
		}
		table.check(t)
	}
	if !table.FindBinding6(&in, &b) || !b.Static || b.Outside() != out || b.Subscriber != s.Index+1 {
		t.Errorf("static binding %+v", b)
	}
	x := table.meet(t, &b, peer4, 1)
	table.End(&x)
	if !table.FindBinding6(&in, &b) {
		t.Error("a static binding has ended with its session")
	}
	if o := table.EndBinding(&b); o != Made {
		t.Error(o)
	}
	if o := table.NewStatic(in, out, &b); o != Made {
		t.Errorf("after its end: %s", o)
	}
	table.check(t)
}
