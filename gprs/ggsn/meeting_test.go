// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestDeleteMeetsUpdate: while this node deletes a context, its SGSN moves it: the update
// wins, and the delete is made again where the context is then.
func TestDeleteMeetsUpdate(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.out.Reset()
	w.e.Delete(Selection{}, w.now, &w.out)
	w.from = other
	var r gtp.UpdateResponse
	if w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, w.updateRequest(0x7000), &r); r.Cause != gtp.CauseAccepted {
		t.Fatal(r.Cause)
	}
	again := ofType(w.tick(w.e.settings.T3Response), gtp.TypeDeleteRequest)
	if len(again) != 1 || again[0].To.Addr() != other {
		t.Fatalf("%d requests afterwards", len(again))
	}
	w.reply(again[0], &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
	w.empty()
}

// TestDeleteEndsChange: a context that is to go needs no other profile.
func TestDeleteEndsChange(t *testing.T) {
	w := newWorld(t, nil)
	w.open(1, "internet", gtp.PDPTypeIPv4)
	w.out.Reset()
	w.e.SetQoS(Selection{}, qosOf(1, 1, 1, 1), w.now, &w.out)
	w.e.Delete(Selection{}, w.now, &w.out)
	if got := ofType(w.tick(time.Minute), gtp.TypeUpdateRequest); len(got) != 0 {
		t.Errorf("%d updates afterwards", len(got))
	}
	w.empty()
}

// TestSecondaryAgain: the same request for a secondary context has the same answer; another
// makes it anew, also where another session of the terminal has its NSAPI.
func TestSecondaryAgain(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	m := w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 1, 1)))
	b := w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 3, TEID: c.TEIDControl.Value}, m)
	var first, second gtp.CreateResponse
	w.answer(w.raw(pathControl, b), &first)
	w.answer(w.raw(pathControl, b), &second)
	if first.TEIDData != second.TEIDData || w.e.stats.Created != 2 || w.e.stats.Repeated != 1 {
		t.Errorf("TEIDs %#x and %#x, %d created", first.TEIDData.Value, second.TEIDData.Value, w.e.stats.Created)
	}
	if third := w.createSecondary(c.TEIDControl.Value, m); third.TEIDData == first.TEIDData || w.e.stats.Ended[EndRecreated] != 1 {
		t.Errorf("TEID %#x, ended %v", third.TEIDData.Value, w.e.stats.Ended)
	}
	p := w.createRequest(testIMSI(1), "dual", gtp.PDPTypeIPv4)
	p.NSAPI = 7
	w.create(p)
	m = w.secondaryRequest(7, template(gtp.TFTCreate, portFilter(1, 2, 1)))
	if r := w.createSecondary(c.TEIDControl.Value, m); r.Cause != gtp.CauseAccepted || w.e.sessions.used() != 1 || w.e.contexts.used() != 3 {
		t.Errorf("%v: %d sessions, %d contexts", r.Cause, w.e.sessions.used(), w.e.contexts.used())
	}
	p = w.createRequest(testIMSI(1), "dual", gtp.PDPTypeIPv4)
	p.NSAPI = 6
	if w.create(p); w.e.sessions.used() != 2 || w.e.contexts.used() != 3 {
		t.Errorf("a primary in the place of a secondary: %d sessions, %d contexts", w.e.sessions.used(), w.e.contexts.used())
	}
	w.remove(c.TEIDControl.Value, 5, true)
}

// TestPoolsChange: an address that a context has is given to no other, also when the settings
// move it from one pool to another.
func TestPoolsChange(t *testing.T) {
	w := newWorld(t, nil)
	m := w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4)
	m.EndUserAddress.Value.IPv4 = netip.MustParseAddr("10.47.0.9")
	c := w.create(m)
	s := testSettings()
	s.APNs[2].Pools4, s.APNs[2].Static4 = prefixes("10.47.0.8/31"), nil
	if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	if d := w.open(2, "dual", gtp.PDPTypeIPv4); d.four() != netip.MustParseAddr("10.47.0.8") {
		t.Errorf("address %v", d.four())
	}
	if r := w.create(w.createRequest(testIMSI(3), "dual", gtp.PDPTypeIPv4)); r.Cause != gtp.CauseAddressesOccupied {
		t.Errorf("cause %v, address %v", r.Cause, r.EndUserAddress.Value.IPv4)
	}
	w.remove(c.TEIDControl.Value, 5, true)
	if d := w.open(3, "dual", gtp.PDPTypeIPv4); d.four() != c.four() {
		t.Errorf("address %v", d.four())
	}
}

// TestRouterInPool: the node itself may have an address of a pool's prefix, which no terminal
// gets, and from which packets come.
func TestRouterInPool(t *testing.T) {
	router := netip.MustParseAddr("10.45.0.1")
	w := newWorld(t, func(s *Settings) { s.APNs[0].Pools4, s.APNs[0].Router4 = prefixes("10.45.0.0/30"), router })
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	if c.four() != netip.MustParseAddr("10.45.0.2") {
		t.Errorf("address %v", c.four())
	}
	for src, want := range map[netip.Addr]Reason{router: none, router.Prev(): InsideSource, router.Next().Next(): InsideSource} {
		before := w.e.stats.Dropped[InsideSource]
		w.down(udp4(src, c.four(), 64, 0))
		if len(w.out.UDP) != btoi(want == none) || w.e.stats.Dropped[InsideSource]-before != uint64(btoi(want != none)) {
			t.Errorf("from %v: dropped %v", src, w.dropped())
		}
	}
}

// TestDeleteOfChanging: an SGSN that deletes a secondary context which it was asked to change,
// and then answers, hits no other context: not one of the session, nor another terminal's that
// has the record of the one that ended.
func TestDeleteOfChanging(t *testing.T) {
	for name, victim := range map[string]bool{"the record is free": false, "another terminal has it": true} {
		for _, cause := range []gtp.Cause{gtp.CauseNonExistent, gtp.CauseContextNotFound, gtp.CauseCollision, gtp.CauseAccepted} {
			w := newWorld(t, func(s *Settings) { s.APNs[0].DirectTunnel = true })
			c := w.open(1, "internet", gtp.PDPTypeIPv4)
			m := w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 10, 5000)))
			m.AddressUser = rnc
			w.createSecondary(c.TEIDControl.Value, m)
			w.tick(2 * young)
			w.from = rnc
			w.raw(pathUser, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.ErrorIndication{TEID: 0x6006, Address: rnc}))
			w.from = sgsn
			asked := w.out.UDP[0]
			asked.Payload = bytes.Clone(asked.Payload)
			if got := w.remove(c.TEIDControl.Value, 6, false); got != gtp.CauseAccepted {
				t.Fatal(got)
			}
			want := 1
			if victim {
				w.from = other
				w.open(2, "internet", gtp.PDPTypeIPv4)
				w.from, want = sgsn, 2
			}
			before := w.e.stats.Dropped[ResponseUnknown]
			w.reply(asked, &gtp.UpdateResponse{Cause: cause})
			if n := w.e.contexts.used(); n != want || len(w.e.changes) != 0 || w.e.requests.used() != 0 {
				t.Errorf("%s, %v: %d contexts, %d changes, %d requests", name, cause, n, len(w.e.changes), w.e.requests.used())
			}
			w.silent(ResponseUnknown, before)
		}
	}
}

// TestChangeWaits: a change that gave way to its SGSN's is asked for again when its time has
// come, whatever happens to the session meanwhile.
func TestChangeWaits(t *testing.T) {
	reload := func(w *world, _ context) {
		if err := w.e.Reconfigure(w.e.settings, w.now, &w.out); err != nil {
			w.Fatal(err)
		}
	}
	tests := []struct {
		name string
		do   func(w *world, c context)
	}{
		{"nothing", func(*world, context) {}},
		{"a reload", reload},
		{"two reloads", func(w *world, c context) { reload(w, c); w.tick(time.Second); reload(w, c) }},
		{"another update", func(w *world, c context) {
			w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, w.updateRequest(0x7100), &gtp.UpdateResponse{})
		}},
		{"a delete of the node's that meets an update", func(w *world, c context) {
			w.e.startDelete(w.e.byControl[c.TEIDControl.Value], EndPath, w.e.begin(w.now, &w.out))
			w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, w.updateRequest(0x7100), &gtp.UpdateResponse{})
		}},
		{"the release of its SGSN, from which it moves", func(w *world, c context) {
			w.e.releaseAll(w.e.peers.at(w.e.byAddress[addressKey(sgsn.As16())]), EndPeerRestart, 0, func(*session) bool { return true })
			w.from = other
			w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, w.updateRequest(0x7100), &gtp.UpdateResponse{})
		}},
	}
	for _, tt := range tests {
		for _, kind := range []gtp.PDPType{gtp.PDPTypeIPv4, gtp.PDPTypeIPv4v6} {
			w := newWorld(t, nil)
			c := w.open(1, "dual", kind)
			w.tick(time.Minute)
			w.out.Reset()
			if w.e.SetQoS(Selection{}, qosOf(1, 9, 9, 9), w.now, &w.out) != 1 {
				t.Fatal("not asked")
			}
			w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, w.updateRequest(0x7000), &gtp.UpdateResponse{})
			w.tick(time.Second)
			tt.do(w, c)
			early := ofType(w.tick(w.e.settings.T3Response-4*time.Second), gtp.TypeUpdateRequest)
			again := ofType(w.tick(w.e.settings.T3Response), gtp.TypeUpdateRequest)
			if len(early) != 0 || len(again) == 0 {
				t.Errorf("%s: asked %d times early and %d times then", tt.name, len(early), len(again))
				continue
			}
			w.reply(again[0], &gtp.UpdateResponse{Cause: gtp.CauseAccepted, QoS: gtp.Some(qosOf(1, 8, 8, 8)), TEIDData: gtp.Some(uint32(0x7000)), AddressControl: gtp.Some(w.from), AddressUser: gtp.Some(w.from)})
			if len(w.e.changes) != 0 {
				t.Errorf("%s: the change is still waited for", tt.name)
			}
		}
	}
}

// TestLimitOfReleased: a session that is about to be released when its time is up, and then moves
// to another SGSN, ends nevertheless.
func TestLimitOfReleased(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.APNs[0].SessionLimit = time.Minute })
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.now = w.now.Add(time.Minute)
	call := w.e.begin(w.now, &w.out)
	w.e.releaseAll(w.e.peers.at(w.e.byAddress[addressKey(sgsn.As16())]), EndPeerRestart, 0, func(*session) bool { return true })
	if h, due := w.e.sessionTimes.Due(call.at); due {
		w.e.sessionDue(h, call)
	}
	w.from = other
	w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, w.updateRequest(0x7000), &gtp.UpdateResponse{})
	w.tick(time.Minute)
	w.empty()
}

// TestEchoAfterFlood: where no request more can be sent to a node, it is asked later whether it
// lives.
func TestEchoAfterFlood(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.EchoInterval = time.Minute })
	w.open(1, "internet", gtp.PDPTypeIPv4)
	p := w.e.peers.at(w.e.byAddress[addressKey(sgsn.As16())])
	p.paths[pathControl].waiting += maxOutstanding
	w.tick(time.Minute)
	p.paths[pathControl].waiting -= maxOutstanding
	asked := 0
	for _, d := range ofType(w.tick(time.Minute), gtp.TypeEchoRequest) {
		if Socket(d.Socket) == SocketControl {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
