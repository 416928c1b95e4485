// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// shares returns the record of a context, if programs may use it.
func (w *world) shares(c context) *SharedContext {
	r := &w.e.shared.Contexts[w.e.byTEID[c.TEIDData.Value]]
	if r.State&1 == 0 {
		return nil
	}
	return r
}

// TestSharedPlain: a context is shared that has nothing but addresses, rates and an account; any other one is the
// engine's alone.
func TestSharedPlain(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		node   netip.Addr
		do     func(w *world, c context)
		want   bool
	}{
		{name: "plain", want: true},
		{name: "any source, no ECN, another MTU", change: func(s *Settings) { s.APNs[2].AnyOuterSource, s.APNs[2].ClearECN, s.APNs[2].MTU = true, true, 1300 }, want: true},
		{name: "in a VRF", change: func(s *Settings) { s.APNs[2].Apart = true }},
		{name: "sequence numbers", change: func(s *Settings) { s.APNs[2].SequenceNumbers = true }},
		{name: "marks inside", change: func(s *Settings) { s.APNs[2].MarkInner = true }},
		{name: "one mark outside and inside", change: func(s *Settings) { s.APNs[2].Uniform = true }},
		{name: "node of IPv6", node: netip.MustParseAddr("2001:db8:51::1")},
		{name: "secondary context", do: func(w *world, c context) {
			w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 10, 5000))))
		}},
		{name: "filters", do: func(w *world, c context) {
			m := w.updateRequest(0x7000)
			m.TFT = template(gtp.TFTCreate, portFilter(1, 10, 5000))
			w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, m, &gtp.UpdateResponse{})
		}},
		{name: "addresses of another network, too", change: func(s *Settings) {
			again := s.APNs[2]
			again.Name, again.VRF = "again", 1
			s.APNs = append(s.APNs, again)
		}},
		{name: "addresses of a network that is apart, too", change: func(s *Settings) {
			again := s.APNs[2]
			again.Name, again.VRF, again.Apart = "again", 1, true
			s.APNs = append(s.APNs, again)
		}},
		{name: "addresses of another network by a reload", do: func(w *world, _ context) {
			s := testSettings()
			s.APNs[2].VRF = 1
			if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
				w.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.change)
			if tt.node.IsValid() {
				w.from = tt.node
			}
			c := w.open(1, "dual", gtp.PDPTypeIPv4v6)
			if tt.do != nil {
				tt.do(w, c)
			}
			if r := w.shares(c); (r != nil) != tt.want {
				t.Errorf("the record is %+v", r)
			}
		})
	}
}

// TestSharedNoRoom: a context or rates whose numbers have no record are never shared, and one for which the index has no
// room is entered again after a while alone.
func TestSharedNoRoom(t *testing.T) {
	w := limited(t, func(a *APN) { a.AMBRUp, a.AMBRDown = 1600, 1600 })
	w.e.lazy = true
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	send := func() { w.up(c, udp4(c.four(), server, 64, 10)) }
	for _, small := range []Shared{{Contexts: make([]SharedContext, 1), Aggregates: make([]SharedAggregate, 9)}, {Contexts: make([]SharedContext, 9), Aggregates: make([]SharedAggregate, 1)}} {
		small.Index = newTestIndex(t)
		w.e.shareBy(&small)
		if send(); w.e.index.calls > 0 {
			t.Errorf("a context is entered that has no record")
		}
	}
	w.e.shareBy(newShared(t))
	w.e.index.room = 0
	for range 3 {
		send()
	}
	if w.shares(c) != nil || w.e.index.calls != 1 {
		t.Errorf("%d calls of an index without room", w.e.index.calls)
	}
	w.e.index.room, w.now = 1, w.now.Add(enterAgain*time.Second)
	if send(); w.shares(c) == nil || w.e.index.calls != 2 {
		t.Errorf("not entered, with %d calls", w.e.index.calls)
	}
}

// TestSharedLazily: a context is entered by its first packet, and an invalidation costs no call of the index.
func TestSharedLazily(t *testing.T) {
	w := newWorld(t, nil)
	w.e.lazy = true
	c := w.open(1, "dual", gtp.PDPTypeIPv4v6)
	wants := func(shared bool, calls int) {
		t.Helper()
		if (w.shares(c) != nil) != shared || w.e.index.calls != calls {
			t.Errorf("shared: %v, with %d calls of the index; want %d", w.shares(c) != nil, w.e.index.calls, calls)
		}
	}
	wants(false, 0)
	w.up(c, udp4(other, server, 64, 10)) // which is dropped
	w.down(udp4(server, c.four(), 1, 10))
	wants(false, 0)
	w.up(c, udp4(c.four(), server, 64, 10))
	wants(true, 1)
	if err := w.e.Reconfigure(testSettings(), w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	wants(false, 1)
	w.down(udp6(host6, c.six(), 64, 10))
	wants(true, 1)
	w.remove(c.TEIDControl.Value, 5, true)
	wants(false, 2)
}

// TestSharedSeen: a session is not idle whose packets all go by a program, and is so from its last one on.
func TestSharedSeen(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.APNs[0].IdleLimit = time.Minute })
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	for range 10 {
		if got := w.tick(50 * time.Second); len(got) > 0 {
			t.Fatalf("the session ends: %x", got)
		}
		by := &program{w.e.shared, w.e.Epoch()}
		if did, _ := by.up(c.TEIDData.Value, sgsn, udp4(c.four(), server, 64, 10), w.now); did != carried {
			t.Fatal("the program leaves a packet")
		}
	}
	if x := w.only(); !x.LastSeen.Equal(w.now) || x.Up != (Traffic{10, 380}) {
		t.Errorf("last seen %v, %v", x.LastSeen, x.Up)
	}
	if got := w.tick(59 * time.Second); len(got) > 0 {
		t.Errorf("the session ends too soon")
	}
	if got := ofType(w.tick(2*time.Second), gtp.TypeDeleteRequest); len(got) != 1 {
		t.Errorf("%d requests", len(got))
	}
}

// TestSharedAtOnce has programs carry packets while the engine carries others, lists, changes what records say and
// closes charging records: in the end each packet is counted once.
func TestSharedAtOnce(t *testing.T) {
	s := chargedSettings(Charging{Volume: 50_000})
	for i := range s.APNs {
		s.APNs[i].MaxUp, s.APNs[i].MaxDown, s.APNs[i].AMBRUp, s.APNs[i].AMBRDown = 2000, 2000, 2500, 2500
	}
	w := newWorld(t, func(to *Settings) { *to = s })
	w.e.lazy = true
	var list []context
	for i := range 4 {
		list = append(list, w.openAs(i+1, profile(gtp.ClassBackground, 8640, 8640), func(m *gtp.CreateRequest) { m.APN.Value = apnOf("dual") }))
	}
	var ups, downs, overs atomic.Uint64
	var stop atomic.Bool
	var clock atomic.Int64
	var programs sync.WaitGroup
	by, began := &program{w.e.shared, w.e.Epoch()}, w.now
	for range 3 {
		programs.Go(func() {
			for i := 0; !stop.Load(); i++ {
				c, at := &list[i%len(list)], began.Add(time.Duration(clock.Load()))
				var did handling
				passed := &ups
				if i%3 == 0 {
					passed = &downs
					did, _ = by.down(udp4(server, c.four(), 64, 100), at)
				} else {
					did, _ = by.up(c.TEIDData.Value, sgsn, udp4(c.four(), server, 64, 100), at)
				}
				switch did {
				case carried:
					passed.Add(1)
				case policed:
					overs.Add(1)
				}
			}
		})
	}
	for i := range 4000 {
		w.now = w.now.Add(time.Millisecond)
		clock.Store(int64(w.now.Sub(began)))
		c := list[i%len(list)]
		w.up(c, udp4(c.four(), server, 64, 100))
		switch i % 50 {
		case 10:
			w.list()
		case 20:
			if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
				t.Fatal(err)
			}
		case 30:
			w.e.AppendState(nil)
		case 40:
			w.e.CloseRecords(w.refs(Selection{}), w.now, &w.out)
		}
	}
	stop.Store(true)
	programs.Wait()
	var up, down, over uint64
	for _, x := range w.list() {
		up, down, over = up+x.Up.Packets, down+x.Down.Packets, over+x.OverUp+x.OverDown
	}
	own := w.e.stats
	if up != ups.Load()+own.Up.Packets || down != downs.Load()+own.Down.Packets || over != overs.Load()+own.Dropped[OverRate] {
		t.Errorf("contexts have %d, %d and %d above the rate, programs %d, %d and %d, the engine %d, %d and %d",
			up, down, over, ups.Load(), downs.Load(), overs.Load(), own.Up.Packets, own.Down.Packets, own.Dropped[OverRate])
	}
	if ups.Load() == 0 || downs.Load() == 0 || overs.Load() == 0 {
		t.Errorf("programs have carried %d and %d, and dropped %d", ups.Load(), downs.Load(), overs.Load())
	}
}

// TestSharedForgets: each part of what a record says makes it even by itself, whatever else changes with it.
func TestSharedForgets(t *testing.T) {
	for name, change := range map[string]func(e *Engine, x handle, u *pdpContext, s *session){
		"user plane":     func(e *Engine, x handle, u *pdpContext, _ *session) { e.moveUser(x, u, u.user, 0x7777) },
		"filters":        func(e *Engine, x handle, _ *pdpContext, _ *session) { e.setFilters(x, filters{portFilter(1, 1, 1)}) },
		"rates":          func(e *Engine, x handle, u *pdpContext, s *session) { e.police(x, s, u) },
		"charging limit": func(e *Engine, x handle, _ *pdpContext, _ *session) { e.limitVolume(x) },
		"settings":       func(e *Engine, _ handle, _ *pdpContext, _ *session) { e.forgetAll() },
		"version":        func(e *Engine, _ handle, u *pdpContext, s *session) { e.changeVersion(u.session, s, gtp.V0) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			c := w.open(1, "dual", gtp.PDPTypeIPv4v6)
			e, x := w.e.Engine, w.e.byTEID[c.TEIDData.Value]
			u := e.contexts.at(x)
			if change(e, x, u, e.sessions.at(u.session)); u.sharing == sharingOpen || e.shared.Contexts[x].State&1 != 0 {
				t.Error("programs go on by the record")
			}
			w.e.checkShared()
		})
	}
}

// TestSharedLate: what a program counts that has begun before its context ended is not of the next one with the number.
func TestSharedLate(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	r := w.shares(c)
	w.remove(c.TEIDControl.Value, 5, true)
	r.Up.Packets, r.Up.Octets, r.Down.Over, r.Seen = 1, 100, 1, 1000
	d := w.open(2, "internet", gtp.PDPTypeIPv4)
	if w.shares(d) != r {
		t.Fatal("it has another number")
	}
	if x := w.only(); x.Up != (Traffic{}) || x.OverDown != 0 || !x.LastSeen.Equal(w.now) {
		t.Errorf("%v, %d above the rate, last seen %v", x.Up, x.OverDown, x.LastSeen)
	}
}

// TestSharedStored: what is stored has what programs have carried by then, and another engine goes on from there.
func TestSharedStored(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.now = w.now.Add(5 * time.Second)
	by := &program{w.e.shared, w.e.Epoch()}
	by.up(c.TEIDData.Value, sgsn, udp4(c.four(), server, 64, 10), w.now)
	w.succeed(testSettings(), w.e.AppendState(nil))
	if x := w.only(); x.Up != (Traffic{1, 38}) || !x.LastSeen.Equal(w.now) {
		t.Errorf("%v, last seen %v", x.Up, x.LastSeen)
	}
}
