// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// granted answers an update request.
func (w *world) granted(cause gtp.Cause) gtp.UpdateRequest {
	w.t.Helper()
	var m gtp.UpdateRequest
	d, h := w.request(&m)
	w.say(d.Socket, reply(h, m.TEIDControl.Value), &gtp.UpdateResponse{Cause: cause})
	return m
}

// TestUpdateOtherFamily: a user plane that our address has no way to is refused, and the context stays where it is.
func TestUpdateOtherFamily(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.attach(gtp.V1, gtp.PDPTypeIPv4)
	before := w.info(key)
	w.order(w.e.Update(key, gtp.QoS{}, w.now, &w.out))
	var m gtp.UpdateRequest
	d, h := w.request(&m)
	w.say(d.Socket, reply(h, m.TEIDControl.Value), &gtp.UpdateResponse{
		Cause: gtp.CauseAccepted, TEIDData: gtp.Some(uint32(1)), TEIDControl: gtp.Some(uint32(2)), ChargingID: gtp.Some(uint32(3)), QoS: gtp.Some(before.QoS),
		AddressControl: gtp.Some(theirs), AddressUser: gtp.Some(netip.MustParseAddr("2001:db8::9")),
	})
	if about := w.event(UpdateFailed); about.Reason != ReasonBadAnswer {
		t.Errorf("%+v", about)
	}
	if after := w.info(key); after.State != Open || after.RemoteData != before.RemoteData {
		t.Errorf("%+v", after)
	}
}

// TestUpdate asks for another quality.
func TestUpdate(t *testing.T) {
	qos := gtp.Profile{Priority: 1, Class: gtp.ClassStreaming, MaxUp: 128, MaxDown: 384}.QoS(12)
	for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
		w := newWorld(t, Settings{})
		key := w.attach(v, gtp.PDPTypeIPv4)
		before := w.info(key)
		w.order(w.e.Update(key, qos, w.now, &w.out))
		if w.info(key).State != Updating {
			t.Error("not updating")
		}
		m := w.granted(gtp.CauseAccepted)
		w.event(Updated)
		if m.AddressControl.Value != ours || m.TEIDData.Value != before.TEIDData || w.info(key).State != Open {
			t.Errorf("%+v", m)
		}
		w.order(w.e.Update(key, qos, w.now, &w.out))
		w.wait(15 * time.Second)
		if about := w.event(UpdateFailed); about.Reason != ReasonNoAnswer || w.info(key).State != Open {
			t.Errorf("%+v", about)
		}
		w.clear()
		w.order(w.e.Update(key, qos, w.now, &w.out))
		w.granted(gtp.CauseNonExistent)
		if w.event(Ended); w.e.Contexts() != 0 {
			t.Error("a context that the GGSN has not is still there")
		}
	}
}

// TestMove goes to another SGSN under traffic: nothing is lost before, while or after. What the
// terminal has to say meanwhile, it says then.
func TestMove(t *testing.T) {
	for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
		w := newWorld(t, Settings{})
		key := w.online(v)
		before := w.info(key)
		up, down := udp6(six, host, 8), udp6(host, six, 8)
		pass := func(i Info, at int, when string) {
			t.Helper()
			w.clear()
			w.e.HandleUE(1, up, w.now, &w.out)
			if when == "while" {
				if len(w.out.UDP) != 0 {
					t.Error("the terminal is not silent")
				}
			} else if address, _ := planeOf(w.out.UDP[0].Socket); address != at {
				t.Errorf("%s: sent from address %d", when, address)
			}
			plane := PlaneUser
			if v == gtp.V0 {
				plane = PlaneV0
			}
			b, _ := gtp.Encapsulate(nil, &gtp.Header{Version: v, TEID: i.TEIDData, FlowLabel: uint16(i.TEIDData), TID: key}, down)
			w.send(Socket(at, plane), theirs, b)
			if len(w.out.IP) != 1 {
				t.Errorf("%s: a packet to address %d was lost", when, at)
			}
		}
		pass(before, 0, "before")
		w.clear()
		w.order(w.e.Move(key, 1, w.info(key).Version, w.now, &w.out))
		request := w.out.UDP[0]
		request.Payload = slices.Clone(request.Payload)
		if address, _ := planeOf(request.Socket); address != 1 {
			t.Error("the update does not come from the new address")
		}
		pass(before, 0, "while")
		w.out.Reset()
		w.out.UDP, w.seen = append(w.out.UDP, request), 0
		m := w.granted(gtp.CauseAccepted)
		if d, h := w.next(); h.Type != gtp.TypeGPDU || d.Socket != request.Socket && v == gtp.V0 {
			t.Errorf("what waited goes by %d: %+v", d.Socket, h)
		}
		if w.event(Moved); m.AddressUser.Value != ours2 || m.AddressControl.Value != ours2 {
			t.Errorf("%+v", m)
		}
		after := w.info(key)
		if after.Local != ours2 || after.TEIDData != m.TEIDData.Value || after.TEIDData == before.TEIDData {
			t.Errorf("%+v", after)
		}
		pass(after, 1, "after")
		w.clear()
		w.down(key, down)
		b, _ := gtp.Encapsulate(nil, &gtp.Header{Version: v, TEID: before.TEIDData, FlowLabel: uint16(before.TEIDData), TID: key}, down)
		if v == gtp.V1 {
			w.send(Socket(0, PlaneUser), theirs, b)
		} else {
			w.send(Socket(0, PlaneV0), theirs, b)
		}
		if len(w.out.IP) != 2 {
			t.Error("a packet that was on its way to the old address was lost")
		}
		w.wait(time.Minute)
		w.clear()
		if v == gtp.V1 {
			w.send(Socket(0, PlaneUser), theirs, b)
		} else {
			w.send(Socket(0, PlaneV0), theirs, b)
		}
		if len(w.out.IP) != 0 || w.drops("unknown_tunnel") != 1 {
			t.Error("the old tunnel is there for ever")
		}
		w.clear()
		w.order(w.e.Detach(key, true, w.now, &w.out))
		d, h := w.next()
		w.say(d.Socket, reply(h, after.TEIDControl), &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
		w.empty()
	}
}

// TestMoveFails leaves everything where it was.
func TestMoveFails(t *testing.T) {
	for _, row := range []struct {
		name string
		do   func(w *world)
	}{
		{"refused", func(w *world) { w.granted(gtp.CauseNoResources) }},
		{"no answer", func(w *world) { w.wait(time.Minute) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{})
			key := w.attach(gtp.V1, gtp.PDPTypeIPv4)
			before := w.info(key)
			w.clear()
			w.order(w.e.Move(key, 1, w.info(key).Version, w.now, &w.out))
			row.do(w)
			w.event(MoveFailed)
			after := w.info(key)
			if before.Traffic = after.Traffic; after.TEIDData != before.TEIDData || after.Local != ours || after.State != Open {
				t.Errorf("%+v, then %+v", before, after)
			}
			if len(w.e.data) != 1 || len(w.e.control) != 1 || len(w.e.paths) != 2 {
				t.Errorf("%d and %d tunnels, %d paths", len(w.e.data), len(w.e.control), len(w.e.paths))
			}
		})
	}
}

// TestMoveWithSecondary moves all contexts of an address, or signalling stays.
func TestMoveWithSecondary(t *testing.T) {
	for _, second := range []gtp.Cause{gtp.CauseAccepted, gtp.CauseNoResources, gtp.CauseNonExistent} {
		w := newWorld(t, Settings{})
		key := w.attach(gtp.V1, gtp.PDPTypeIPv4)
		w.secondary(key, 6, nil)
		w.clear()
		w.order(w.e.Move(key, 1, w.info(key).Version, w.now, &w.out))
		w.granted(gtp.CauseAccepted)
		if w.e.contexts[key].session.moved == nil {
			t.Fatal("moved before all have")
		}
		w.e.HandleUE(1, udp4(four, host4, 53, 8), w.now, &w.out)
		w.granted(second)
		want := Moved
		if second != gtp.CauseAccepted {
			want = MoveFailed
		}
		if about := w.event(want); about.Key != key || about.Cause != second {
			t.Errorf("%s: %+v", second, about)
		}
		if _, h := w.next(); h.Type != gtp.TypeGPDU {
			t.Errorf("%s: what waited is lost", second)
		}
		s := w.e.contexts[key].session
		if s.moved != nil || (s.local == 1) != (second == gtp.CauseAccepted) {
			t.Errorf("%s: at %d, %+v", second, s.local, s.moved)
		}
		w.clear()
		w.e.Abandon(w.now, &w.out)
		w.none()
		w.empty()
	}
}

// TestMoveFailsFirst: what waits goes also where the first context stays and the last one moves.
func TestMoveFailsFirst(t *testing.T) {
	for _, first := range []gtp.Cause{gtp.CauseNoResources, gtp.CauseNonExistent} {
		w := newWorld(t, Settings{})
		key := w.attach(gtp.V1, gtp.PDPTypeIPv4)
		second := w.secondary(key, 6, nil)
		w.clear()
		w.order(w.e.Move(key, 1, gtp.V1, w.now, &w.out))
		w.granted(first)
		w.e.HandleUE(1, udp4(four, host4, 5060, 8), w.now, &w.out)
		if n := len(w.out.UDP); n != 2 {
			t.Fatalf("%d datagrams before all have moved", n)
		}
		w.granted(gtp.CauseAccepted)
		if about := w.event(MoveFailed); about.Key != w.e.First(second) || about.Cause != first {
			t.Errorf("%s: %+v", first, about)
		}
		if _, h := w.next(); h.Type != gtp.TypeGPDU {
			t.Errorf("%s: what waited is lost", first)
		}
		w.clear()
		w.e.Abandon(w.now, &w.out)
		w.none()
		w.empty()
	}
}

// TestReattach closes the contexts and opens the primary one at another GGSN.
func TestReattach(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.attach(gtp.V1, gtp.PDPTypeIPv4)
	w.clear()
	w.order(w.e.Reattach(key, other, w.now, &w.out))
	d, h := w.next()
	w.say(d.Socket, reply(h, w.info(key).TEIDControl), &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
	var m gtp.CreateRequest
	if d, _ = w.request(&m); d.To.Addr() != other || m.IMSI.Value != attachment(gtp.V1, 0).IMSI {
		t.Errorf("%+v %+v", d, m)
	}
	if i := w.info(key); i.State != Opening || i.IPv4.IsValid() {
		t.Errorf("%+v", i)
	}
}

// TestReattachOpening: where the first GGSN does not answer, the context is asked for at another one all the same.
func TestReattachOpening(t *testing.T) {
	w := newWorld(t, Settings{})
	key, err := w.e.Attach(attachment(gtp.V1, gtp.PDPTypeIPv4), w.now, &w.out)
	w.order(err)
	w.clear()
	w.order(w.e.Reattach(key, other, w.now, &w.out))
	var m gtp.CreateRequest
	if d, _ := w.request(&m); d.To.Addr() != other || m.IMSI.Value != attachment(gtp.V1, 0).IMSI {
		t.Errorf("%+v %+v", d, m)
	}
	if i := w.info(key); i.State != Opening {
		t.Errorf("%+v", i)
	}
}

// TestReattachFails leaves the context as it was, and one that closes already goes where it was to go.
func TestReattachFails(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.attach(gtp.V1, gtp.PDPTypeIPv4)
	w.clear()
	if err := w.e.Reattach(key, netip.MustParseAddr("2001:db8::9"), w.now, &w.out); err == nil || w.info(key).State != Open {
		t.Errorf("to a GGSN of the other family: %v, %+v", err, w.info(key))
	}
	w.none()
	w.order(w.e.Reattach(key, other, w.now, &w.out))
	if err := w.e.Reattach(key, theirs, w.now, &w.out); !errors.Is(err, ErrBusy) {
		t.Errorf("while it closes: %v", err)
	}
	d, h := w.next()
	w.say(d.Socket, reply(h, w.info(key).TEIDControl), &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
	if d, _ := w.request(&gtp.CreateRequest{}); d.To.Addr() != other {
		t.Errorf("it goes to %s", d.To)
	}
}

// TestEventsOfAddress: what becomes of an address is told of its first context, which is a secondary one where the
// primary one was closed alone.
func TestEventsOfAddress(t *testing.T) {
	for name, alone := range map[string]bool{"the primary one": false, "a secondary one": true} {
		t.Run(name, func(t *testing.T) {
			w, primary := bound(t)
			second, want := w.secondary(primary, 6, nil), primary
			if alone {
				w.clear()
				w.order(w.e.Detach(primary, false, w.now, &w.out))
				d, h := w.request(&gtp.DeleteRequest{})
				w.say(d.Socket, reply(h, 0), &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
				want = second
			}
			if got := w.e.First(second); got != want {
				t.Errorf("the first is %s", got)
			}
			for _, cause := range []gtp.Cause{gtp.CauseNoResources, gtp.CauseAccepted} {
				w.clear()
				w.order(w.e.Move(second, 1, gtp.V1, w.now, &w.out))
				for range w.e.contexts[second].session.contexts {
					w.granted(cause)
				}
				kind := Moved
				if !cause.Accepted() {
					kind = MoveFailed
				}
				if about := w.event(kind); about.Key != want {
					t.Errorf("%s of %s", kind, about.Key)
				}
			}
			w.clear()
			w.order(w.e.Undelegate(second, w.now, &w.out))
			if about := w.event(Configured); about.Key != want {
				t.Errorf("%s of %s", about.Kind, about.Key)
			}
		})
	}
}
