// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// reply answers a request of the engine as an SGSN does.
func (w *world) reply(d packet.Datagram, m gtp.Message) {
	w.Helper()
	h, err := gtp.ParseHeader(d.Payload)
	if err != nil {
		w.Fatal(err)
	}
	path := int(Socket(d.Socket) % ports)
	w.raw(path, w.encode(gtp.Header{Version: h.Version, HasSequence: true, Sequence: h.Sequence, TID: h.TID}, m))
}

// TestDeleteTimers: a Delete Request is sent N3 times, T3 apart, with one sequence number;
// the context ends in any case.
func TestDeleteTimers(t *testing.T) {
	for _, version := range []gtp.Version{gtp.V0, gtp.V1} {
		w := newWorld(t, func(s *Settings) { s.T3Response, s.N3Requests = 5*time.Second, 3 })
		if version == gtp.V1 {
			w.open(1, "internet", gtp.PDPTypeIPv4)
		} else {
			w.createV0(gtp.MakeTID(imsi1, 5), "internet", gtp.PDPTypeIPv4)
		}
		w.out.Reset()
		if n := w.e.Delete(Selection{}, w.now, &w.out); n != 1 {
			t.Fatalf("%d contexts", n)
		}
		first := slices.Clone(w.out.UDP[0].Payload)
		var at []int
		for i := range 30 {
			for _, d := range w.tick(time.Second) {
				if !slices.Equal(d.Payload, first) {
					t.Errorf("repeated as %x, not %x", d.Payload, first)
				}
				at = append(at, i+1)
			}
			if i == 13 && w.e.contexts.used() != 1 {
				t.Error("ended early")
			}
		}
		if !slices.Equal(at, []int{5, 10}) || w.e.stats.Ended[EndAdmin] != 1 || w.e.stats.Unanswered != 1 {
			t.Errorf("repeated at %v, ended %v", at, w.e.stats.Ended)
		}
		w.empty()
	}
}

// TestDeleteNamed deletes the sessions of contexts that are there still, and of nobody who has come since.
func TestDeleteNamed(t *testing.T) {
	w := newWorld(t, nil)
	gone := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.open(2, "internet", gtp.PDPTypeIPv4)
	refs := w.refs(Selection{})
	w.remove(gone.TEIDControl.Value, 5, true)
	w.open(3, "internet", gtp.PDPTypeIPv4) // in the place of the first
	if again := w.refs(Selection{IMSI: testIMSI(3)}); again[0].Record != refs[0].Record {
		t.Fatalf("it has the record %d, not %d", again[0].Record, refs[0].Record)
	}
	w.out.Reset()
	if n := w.e.DeleteNamed(append(refs, Ref{}, Ref{Record: 99}), w.now, &w.out); n != 1 {
		t.Errorf("%d contexts", n)
	}
	var m gtp.DeleteRequest
	if h := w.answer(w.out.UDP, &m); h.TEID != 0x2002 || len(w.out.UDP) != 1 {
		t.Errorf("%d datagrams, the first to %#x", len(w.out.UDP), h.TEID)
	}
	w.reply(w.out.UDP[0], &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
	if n := w.e.contexts.used(); n != 1 {
		t.Errorf("%d contexts are left", n)
	}
}

// TestDeleteAnswered: whatever the SGSN answers, the session ends, all its contexts with it.
func TestDeleteAnswered(t *testing.T) {
	for _, cause := range []gtp.Cause{gtp.CauseAccepted, gtp.CauseNonExistent, gtp.CauseSystemFailure} {
		w := newWorld(t, nil)
		c := w.open(1, "internet", gtp.PDPTypeIPv4)
		w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 1, 1))))
		w.out.Reset()
		w.e.Delete(Selection{IMSI: imsi1}, w.now, &w.out)
		var m gtp.DeleteRequest
		if h := w.answer(w.out.UDP, &m); h.TEID != 0x2001 || !m.Teardown.Value || len(w.out.UDP) != 1 {
			t.Errorf("%d datagrams, the first to %#x: %+v", len(w.out.UDP), h.TEID, m)
		}
		w.reply(w.out.UDP[0], &gtp.DeleteResponse{Cause: cause})
		w.empty()
	}
}

// TestDeletesMeet: both sides delete at once.
func TestDeletesMeet(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.out.Reset()
	w.e.Delete(Selection{}, w.now, &w.out)
	d := packet.Datagram{Socket: w.out.UDP[0].Socket, Payload: slices.Clone(w.out.UDP[0].Payload)}
	if cause := w.remove(c.TEIDControl.Value, 5, true); cause != gtp.CauseAccepted {
		t.Error(cause)
	}
	w.empty()
	w.reply(d, &gtp.DeleteResponse{Cause: gtp.CauseNonExistent})
	if w.e.stats.Dropped[ResponseUnknown] != 1 {
		t.Errorf("dropped %v", w.dropped())
	}
	if got := w.tick(time.Minute); len(got) != 0 {
		t.Errorf("%d datagrams afterwards", len(got))
	}
}

func TestSetQoS(t *testing.T) {
	wanted := qosOf(1, 9, 9, 9)
	begin := func(t *testing.T) (*world, context, packet.Datagram) {
		w := newWorld(t, nil)
		c := w.open(1, "internet", gtp.PDPTypeIPv4)
		w.out.Reset()
		if n := w.e.SetQoS(Selection{}, wanted, w.now, &w.out); n != 1 {
			t.Fatalf("%d asked", n)
		}
		var m gtp.UpdateRequest
		if h := w.answer(w.out.UDP, &m); h.TEID != 0x2001 || m.NSAPI != 5 || m.QoS.Value != wanted || m.TEIDData.Present {
			t.Fatalf("%+v to %#x", m, h.TEID)
		}
		return w, c, packet.Datagram{Socket: w.out.UDP[0].Socket, Payload: slices.Clone(w.out.UDP[0].Payload)}
	}
	answer := func(cause gtp.Cause) *gtp.UpdateResponse {
		return &gtp.UpdateResponse{Cause: cause, QoS: gtp.Some(qosOf(1, 8, 8, 8)), TEIDData: gtp.Some(uint32(0x1001)),
			AddressControl: gtp.Some(sgsn), AddressUser: gtp.Some(sgsn)}
	}
	t.Run("accepted", func(t *testing.T) {
		w, c, d := begin(t)
		w.reply(d, answer(gtp.CauseAccepted))
		if got := w.e.contexts.at(1).qos; got != qosOf(1, 8, 8, 8) || len(w.e.changes) != 0 {
			t.Errorf("profile %x, %d changes", got.Octets(), len(w.e.changes))
		}
		w.remove(c.TEIDControl.Value, 5, true)
		w.empty()
	})
	t.Run("unknown to the SGSN", func(t *testing.T) {
		w, _, d := begin(t)
		w.reply(d, &gtp.UpdateResponse{Cause: gtp.CauseNonExistent})
		if w.e.stats.Ended[EndPeerUnknown] != 1 {
			t.Errorf("ended %v", w.e.stats.Ended)
		}
		w.empty()
	})
	t.Run("never answered", func(t *testing.T) {
		w, c, _ := begin(t)
		if got := ofType(w.tick(time.Minute), gtp.TypeUpdateRequest); len(got) != 2 {
			t.Errorf("repeated %d times", len(got))
		}
		if w.e.SetQoS(Selection{}, wanted, w.now, &w.out) != 1 {
			t.Error("the change before is still waited for")
		}
		w.remove(c.TEIDControl.Value, 5, true)
		w.empty()
	})
	// The SGSN's request wins, and this node's is made again with another number.
	t.Run("collision", func(t *testing.T) {
		w, c, d := begin(t)
		var r gtp.UpdateResponse
		if w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, w.updateRequest(0x7000), &r); r.Cause != gtp.CauseAccepted {
			t.Fatal(r.Cause)
		}
		again := ofType(w.tick(w.e.settings.T3Response), gtp.TypeUpdateRequest)
		if len(again) != 1 || slices.Equal(again[0].Payload, d.Payload) {
			t.Fatalf("%d requests afterwards", len(again))
		}
		w.reply(again[0], &gtp.UpdateResponse{Cause: gtp.CauseCollision})
		if again = ofType(w.tick(w.e.settings.T3Response), gtp.TypeUpdateRequest); len(again) != 1 {
			t.Fatalf("%d requests after a collision was told", len(again))
		}
		w.reply(again[0], answer(gtp.CauseAccepted))
		if got := w.e.contexts.at(1).qos; got != qosOf(1, 8, 8, 8) {
			t.Errorf("profile %x", got.Octets())
		}
		w.remove(c.TEIDControl.Value, 5, true)
		w.empty()
	})
}

// TestDirectTunnelBroken: where the user plane is not at the SGSN, that is told of its end,
// and gives it another.
func TestDirectTunnelBroken(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.APNs[0].DirectTunnel = true })
	m := w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)
	m.AddressUser = rnc
	c := w.create(m)
	w.tick(2 * young)
	w.from = rnc
	w.up(c, udp4(c.four(), server, 64, 0))
	if len(w.out.IP) != 1 {
		t.Fatalf("dropped %v", w.dropped())
	}
	w.raw(pathUser, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.ErrorIndication{TEID: 0x1000, Address: rnc}))
	w.from = sgsn
	var u gtp.UpdateRequest
	if w.answer(w.out.UDP, &u); u.DirectTunnelFlags.Value != gtp.FlagErrorIndication || w.e.contexts.used() != 1 {
		t.Fatalf("%+v, %d contexts", u, w.e.contexts.used())
	}
	w.reply(w.out.UDP[0], &gtp.UpdateResponse{Cause: gtp.CauseAccepted, TEIDData: gtp.Some(uint32(0x1777)), AddressControl: gtp.Some(sgsn), AddressUser: gtp.Some(sgsn), QoS: gtp.Some(qosOf(1, 2, 3, 4))})
	w.down(udp4(server, c.four(), 64, 0))
	if h, _ := w.tunnelled(); h.TEID != 0x1777 || w.out.UDP[0].To.Addr() != sgsn {
		t.Errorf("to %#x at %v", h.TEID, w.out.UDP[0].To)
	}
}

func TestLimitsOfTime(t *testing.T) {
	tests := []struct {
		name          string
		session, idle time.Duration
		packets       bool // the terminal sends one every ten seconds
		ends          int  // after so many seconds; 0: not within 10 minutes
		why           End
	}{
		{"none", 0, 0, false, 0, 0},
		{"session", 5 * time.Minute, 0, true, 300, EndSessionLimit},
		{"idle", 0, 2 * time.Minute, false, 120, EndIdle},
		{"never idle", 0, 2 * time.Minute, true, 0, 0},
		{"session before idle", time.Minute, 2 * time.Minute, false, 60, EndSessionLimit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(s *Settings) { s.APNs[0].SessionLimit, s.APNs[0].IdleLimit = tt.session, tt.idle })
			c := w.open(1, "internet", gtp.PDPTypeIPv4)
			asked := 0
			for i := 1; i <= 600 && asked == 0; i++ {
				for _, d := range w.tick(time.Second) {
					if d.Payload[1] == byte(gtp.TypeDeleteRequest) {
						asked = i
						w.reply(d, &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
					}
				}
				if tt.packets && i%10 == 0 && asked == 0 {
					w.up(c, udp4(c.four(), server, 64, 0))
				}
			}
			if asked != tt.ends || tt.ends > 0 && w.e.stats.Ended[tt.why] != 1 {
				t.Errorf("ended after %d s, %v; want %d s", asked, w.e.stats.Ended, tt.ends)
			}
			if tt.ends > 0 {
				w.empty()
			}
		})
	}
}

func TestDrain(t *testing.T) {
	w := newWorld(t, nil)
	for n := range 50 {
		w.open(n+1, "internet", gtp.PDPTypeIPv4)
	}
	w.out.Reset()
	w.e.Drain(100, w.now, &w.out)
	asked := 0
	drained := false
	for range 10 {
		got := ofType(w.tick(100*time.Millisecond), gtp.TypeDeleteRequest)
		asked += len(got)
		if len(got) > 20 {
			t.Errorf("%d in a tenth of a second", len(got))
		}
		for _, d := range got {
			w.reply(d, &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
			drained = drained || slices.ContainsFunc(w.out.Events, func(v Event) bool { return v.Kind == Drained })
		}
	}
	if asked != 50 || !drained {
		t.Errorf("%d asked, all gone %v", asked, drained)
	}
	w.empty()
	if got := w.create(w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)); got.Cause != gtp.CauseNoResources {
		t.Errorf("while it drains: %v", got.Cause)
	}
	w.e.Undrain()
	w.open(1, "internet", gtp.PDPTypeIPv4)
}

// TestDrainSlowly: a rate of less than one for each round is kept, as is one that no round divides.
func TestDrainSlowly(t *testing.T) {
	for _, rate := range []int{1, 7, 15, 123} {
		w := newWorld(t, func(s *Settings) { s.N3Requests = 1 })
		for n := range 20 * rate {
			w.open(n+1, "internet", gtp.PDPTypeIPv4)
		}
		w.out.Reset()
		w.e.Drain(rate, w.now, &w.out)
		if got := len(ofType(w.tick(10*time.Second), gtp.TypeDeleteRequest)); got < 10*rate-1 || got > 10*rate+1+rate/10 {
			t.Errorf("%d a second: %d in ten", rate, got)
		}
	}
}

// TestDeletesPaced: the end of many sessions at once is no flood.
func TestDeletesPaced(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Limits.Requests = 1 << 30 })
	const many = 12_000
	for n := range many {
		w.open(n+1, "internet", gtp.PDPTypeIPv4)
	}
	w.out.Reset()
	if n := w.e.Delete(Selection{}, w.now, &w.out); n != many {
		t.Errorf("%d to be deleted", n)
	}
	if n := len(w.out.UDP); n != 1000 {
		t.Errorf("%d requests at once", n)
	}
	asked := len(w.out.UDP)
	for range 30 {
		got := ofType(w.tick(time.Second), gtp.TypeDeleteRequest)
		if len(got) > 11_000 {
			t.Errorf("%d requests in a second", len(got))
		}
		asked += len(got)
	}
	if asked != 3*many {
		t.Errorf("%d requests, want 3 for each", asked)
	}
	w.empty()
}
