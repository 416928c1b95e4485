// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestResumeSettings: contexts that other settings cut off are lost, and others are not. Of
// three, the second has a node of IPv6, and the third an address that its terminal has asked
// for.
func TestResumeSettings(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Settings)
		lost   int
	}{
		{"the same", func(*Settings) {}, 0},
		{"a pool that grows", func(s *Settings) { s.APNs[0].Pools4 = prefixes("10.45.0.0/16", "10.99.0.0/16") }, 0},
		{"another pool", func(s *Settings) { s.APNs[0].Pools4 = prefixes("10.99.0.0/16") }, 0},
		{"no static pool", func(s *Settings) { s.APNs[2].Static4 = nil }, 0},
		{"another static pool", func(s *Settings) { s.APNs[2].Static4 = prefixes("10.98.0.0/24") }, 0},
		{"another access point", func(s *Settings) { s.APNs[2].Name = "other" }, 1},
		{"no IPv6 of the node", func(s *Settings) { s.Address6 = netip.Addr{} }, 1},
		{"no IPv4 of the node", func(s *Settings) { s.Address4 = netip.Addr{} }, 2},
		{"another IPv4 address of the node", func(s *Settings) { s.Address4 = netip.MustParseAddr("192.0.2.2") }, 2},
		{"another IPv6 address of the node", func(s *Settings) { s.Address6 = netip.MustParseAddr("2001:db8:9::2") }, 1},
		{"the node at an SGSN's address", func(s *Settings) { s.Address4 = sgsn }, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.open(1, "internet", gtp.PDPTypeIPv4)
			w.from = netip.MustParseAddr("2001:db8:51::1")
			w.open(2, "internet", gtp.PDPTypeIPv4)
			w.from = sgsn
			m := w.createRequest(testIMSI(3), "dual", gtp.PDPTypeIPv4)
			m.EndUserAddress.Value.IPv4 = netip.MustParseAddr("10.47.0.9")
			m.TEIDData = 0x1003
			if c := w.create(m); !c.Cause.Accepted() {
				t.Fatal(c.Cause)
			}
			s := testSettings()
			tt.change(&s)
			lost := w.succeed(s, w.e.AppendState(nil))
			counter := uint8(7)
			if tt.lost > 0 {
				counter++
			}
			if lost != tt.lost || w.e.contexts.used() != 3-tt.lost || w.e.RestartCounter() != counter {
				t.Errorf("%d lost, %d left, counter %d; want %d lost", lost, w.e.contexts.used(), w.e.RestartCounter(), tt.lost)
			}
			// What SGSNs take for lost is told them, and gone.
			for range 30 {
				w.tick(time.Second)
			}
			if left := w.e.contexts.used(); (left == 0) != (tt.lost > 0) {
				t.Errorf("%d are left", left)
			}
			if ended := w.e.stats.Ended[EndRestart]; tt.lost > 0 && ended != uint64(3-tt.lost) {
				t.Errorf("%d ended by the restart: %v", ended, w.e.stats.Ended)
			}
		})
	}
}

// TestResumeLeaving: contexts of pools that a change of settings has removed outlive restarts
// with the addresses that they have, which no other context gets.
func TestResumeLeaving(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	d := w.open(2, "dual", gtp.PDPTypeIPv4v6)
	s := testSettings()
	s.APNs[0].Pools4 = prefixes("10.99.0.0/30")
	s.APNs[2].Pools4, s.APNs[2].Static4, s.APNs[2].Types = nil, nil, TypeIPv6
	if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	leaving := []LeavingPool{{Prefix: netip.MustParsePrefix("10.45.0.0/16")}, {Prefix: netip.MustParsePrefix("10.46.0.0/16")}}
	for restart := range 3 {
		if restart > 0 {
			if lost := w.succeed(s, w.e.AppendState(nil)); lost != 0 || w.e.RestartCounter() != 7 || w.e.contexts.used() != 2 {
				t.Fatalf("restart %d: %d lost, counter %d", restart, lost, w.e.RestartCounter())
			}
		}
		if got := w.e.Leaving(); !slices.Equal(got, leaving) {
			t.Errorf("restart %d: leaving are %v", restart, got)
		}
		for _, one := range []context{c, d} {
			w.down(udp4(server, one.four(), 64, 0))
			w.tunnelled()
			w.up(one, udp4(one.four(), server, 64, 0))
			if len(w.out.IP) != 1 {
				t.Errorf("restart %d: dropped %v", restart, w.dropped())
			}
		}
	}
	if got := w.open(3, "internet", gtp.PDPTypeIPv4); !s.APNs[0].Pools4[0].Contains(got.four()) {
		t.Errorf("address %v", got.four())
	}
	w.remove(c.TEIDControl.Value, 5, true)
	if got := w.e.Leaving(); !slices.Equal(got, leaving[1:]) {
		t.Errorf("leaving are %v", got)
	}
	w.remove(d.TEIDControl.Value, 5, true)
	if got := w.e.Leaving(); len(got) > 0 {
		t.Errorf("leaving are %v", got)
	}
	s.APNs = s.APNs[1:]
	if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	if got := w.e.Leaving(); !slices.Equal(got, []LeavingPool{{Prefix: netip.MustParsePrefix("10.99.0.0/30")}}) {
		t.Errorf("of an access point that is gone leaving are %v", got)
	}
	w.tick(time.Minute)
	w.empty()
}

// TestResumeEnding: a context that was to be deleted when the engine ended is deleted by the
// next one, whatever the SGSN has heard.
func TestResumeEnding(t *testing.T) {
	gone := testSettings()
	gone.APNs = gone.APNs[1:]
	for _, tt := range []struct {
		name     string
		end      func(w *world)
		settings Settings
		again    int // Delete Requests of the next engine
	}{
		{"asked", func(w *world) { w.e.Delete(Selection{}, w.now, &w.out) }, testSettings(), 1},
		{"to be asked later", func(w *world) { w.e.endLater(1, EndAdmin, w.e.at+time.Hour) }, testSettings(), 1},
		{"asked, of an access point that is gone", func(w *world) {
			if err := w.e.Reconfigure(gone, w.now, &w.out); err != nil {
				w.Fatal(err)
			}
			w.tick(0)
		}, gone, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.open(1, "internet", gtp.PDPTypeIPv4)
			w.out.Reset()
			tt.end(w)
			if lost := w.succeed(tt.settings, w.e.AppendState(nil)); lost != 0 || w.e.RestartCounter() != 7 {
				t.Errorf("%d lost, counter %d", lost, w.e.RestartCounter())
			}
			if got := ofType(w.tick(time.Second), gtp.TypeDeleteRequest); len(got) != tt.again {
				t.Errorf("%d Delete Requests", len(got))
			}
			for range 30 {
				w.tick(time.Second)
			}
			w.empty()
			if n := w.e.stats.Ended[EndAdmin]; n != uint64(tt.again) {
				t.Errorf("%d ended as they were to: %v", n, w.e.stats.Ended)
			}
		})
	}
}

// TestResumeFamilyAdded: an address that the node has besides loses nothing.
func TestResumeFamilyAdded(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Address6 = netip.Addr{} })
	w.open(1, "internet", gtp.PDPTypeIPv4)
	if lost := w.succeed(testSettings(), w.e.AppendState(nil)); lost != 0 {
		t.Errorf("%d lost", lost)
	}
}

// TestResumeLabels: a flow label of version 0 may be what a TEID of version 1 is.
func TestResumeLabels(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	d := w.open(2, "internet", gtp.PDPTypeIPv4)
	_, r := w.createV0(gtp.MakeTID(testIMSI(3), 5), "internet", gtp.PDPTypeIPv4)
	// As chance may have it: the one of the user plane, the other of the control plane.
	x, s := w.e.byTEID[c.TEIDData.Value], w.e.byControl[d.TEIDControl.Value]
	w.e.withdraw(x)
	delete(w.e.byTEID, c.TEIDData.Value)
	delete(w.e.byControl, d.TEIDControl.Value)
	w.e.contexts.at(x).teid, w.e.byTEID[r.TEIDData.Value] = r.TEIDData.Value, x
	w.e.sessions.at(s).teid, w.e.byControl[r.TEIDControl.Value] = r.TEIDControl.Value, s
	if lost := w.succeed(testSettings(), w.e.AppendState(nil)); lost != 0 {
		t.Errorf("%d lost", lost)
	}
}

// TestResumeMarks: what a file says of a session is taken only where it outlives an engine.
func TestResumeMarks(t *testing.T) {
	w := newWorld(t, nil)
	w.open(1, "internet", gtp.PDPTypeIPv4)
	state := w.e.AppendState(nil)
	at := binary.Size(storedHeader{}) + binary.Size(storedPeer{})
	for _, a := range w.e.apns {
		at += len(a.appendStored(nil))
	}
	var s storedSession
	if _, err := binary.Decode(state[at:], binary.BigEndian, &s); err != nil || s.TID != gtp.MakeTID(imsi1, 5) {
		t.Fatalf("%+v: %v", s, err)
	}
	s.Marks = ^(markStatic4 | markStatic6)
	copy(state[at:], appendRecord(nil, &s))
	if lost := w.succeed(testSettings(), state); lost != 0 {
		t.Fatalf("%d lost", lost)
	}
	w.out.Reset()
	if n := w.e.Delete(Selection{}, w.now, &w.out); n != 1 {
		t.Errorf("%d deleted", n)
	}
	if got := ofType(w.out.UDP, gtp.TypeDeleteRequest); len(got) != 1 {
		t.Errorf("%d Delete Requests", len(got))
	}
	w.tick(time.Minute)
	w.empty()
}

// TestResumeIdle: no terminal is idle while there is no node, and what is told of it stays as it was.
func TestResumeIdle(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.APNs[0].IdleLimit, s.N3Requests = time.Hour, 1 })
	silent, c := w.open(1, "internet", gtp.PDPTypeIPv4), w.open(2, "internet", gtp.PDPTypeIPv4)
	w.tick(20 * time.Minute)
	w.up(c, udp4(c.four(), server, 64, 0))
	state := w.e.AppendState(nil)
	w.now = w.now.Add(50 * time.Minute)
	if lost := w.succeed(w.e.settings, state); lost != 0 || !w.list()[0].LastSeen.Equal(start) {
		t.Fatalf("%d are lost; %+v", lost, w.list())
	}
	w.tick(10 * time.Minute)
	w.up(c, udp4(c.four(), server, 64, 0))
	if got := w.tick(30*time.Minute - time.Second); len(got) != 0 {
		t.Errorf("%d datagrams too early", len(got))
	}
	for _, want := range []struct {
		of    context
		after time.Duration
	}{{silent, 2 * time.Second}, {c, 30 * time.Minute}} {
		var m gtp.DeleteRequest
		if h := w.answer(ofType(w.tick(want.after), gtp.TypeDeleteRequest), &m); h.TEID != want.of.header.TEID {
			t.Errorf("%#x is deleted, not %#x", h.TEID, want.of.header.TEID)
		}
	}
}

// TestResumeIdleAgain: nor is one idle by the time without a node of several restarts, since its last packet.
func TestResumeIdleAgain(t *testing.T) {
	for _, packets := range []int{0, 1, 2} { // restarts until the last one
		w := newWorld(t, func(s *Settings) { s.APNs[0].IdleLimit, s.N3Requests = time.Hour, 1 })
		c := w.open(1, "internet", gtp.PDPTypeIPv4)
		left, seen := time.Hour, start
		for n := range 3 {
			w.tick(10 * time.Minute)
			if left -= 10 * time.Minute; n <= packets && packets > 0 {
				w.up(c, udp4(c.four(), server, 64, 0))
				left, seen = time.Hour, w.now
			}
			w.e.Settle(w.now, &w.out)
			state := w.e.AppendState(nil)
			w.now = w.now.Add(50 * time.Minute)
			if lost := w.succeed(w.e.settings, state); lost != 0 || !w.list()[0].LastSeen.Equal(seen) {
				t.Fatalf("%d are lost; seen %v, not %v", lost, w.list()[0].LastSeen, seen)
			}
		}
		if got := w.tick(left - time.Second); len(got) != 0 {
			t.Errorf("the last packet behind %d restarts: %d datagrams too early", packets, len(got))
		}
		if got := ofType(w.tick(2*time.Second), gtp.TypeDeleteRequest); len(got) != 1 {
			t.Errorf("the last packet behind %d restarts: %d Delete Requests", packets, len(got))
		}
	}
}

// TestResumeAdverts: after a restart each terminal has the next router advertisement before what the last one said
// is over, however short its time is, and they do not come all at once.
func TestResumeAdverts(t *testing.T) {
	for each, within := range map[time.Duration]time.Duration{4 * time.Second: 4 * time.Second, time.Minute: time.Minute, 0: advertSpread} {
		w := newWorld(t, func(s *Settings) { s.APNs[1].AdvertInterval = each })
		const many = 50
		for n := range many {
			w.open(n+1, "inet6", gtp.PDPTypeIPv6)
		}
		w.tick(time.Minute)
		if lost := w.succeed(w.e.settings, w.e.AppendState(nil)); lost != 0 {
			t.Fatal(lost)
		}
		last, distinct := time.Duration(0), make(map[time.Duration]bool)
		for h := handle(1); h <= w.e.sessions.last; h++ {
			at := w.e.sessions.at(h).advertAt - w.e.at
			last, distinct[at] = max(last, at), true
		}
		if last > within || last < within/2 || len(distinct) != many {
			t.Errorf("every %v: the last is told after %v, at %d times", each, last, len(distinct))
		}
	}
}
