// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// limit reloads another limit of the first access point.
func (w *world) limit(most uint32) {
	w.Helper()
	s := w.e.settings
	s.APNs = append([]APN(nil), s.APNs...)
	s.APNs[0].MaxUp, s.APNs[0].MaxDown = most, most
	if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
		w.Fatal(err)
	}
}

// requested reads an Update Request of the engine.
func (w *world) requested(d packet.Datagram) (teid uint32, m gtp.UpdateRequest) {
	w.Helper()
	h, err := gtp.ParseHeader(d.Payload)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.codec.Parse(&h, &m); err != nil {
		w.Fatal(err)
	}
	return h.TEID, m
}

// agree lets time pass in which SGSNs agree to all profiles that they are asked for, and returns how many
// requests there were and the highest rate that they named.
func (w *world) agree(d time.Duration) (n int, highest gtp.BitRate) {
	w.Helper()
	for until := w.now.Add(d); w.now.Before(until); {
		for _, one := range ofType(w.tick(requalifyGap), gtp.TypeUpdateRequest) {
			_, m := w.requested(one)
			n, highest = n+1, max(highest, m.QoS.Value.Profile().MaxUp)
			w.reply(one, &gtp.UpdateResponse{Cause: gtp.CauseAccepted, QoS: m.QoS})
		}
	}
	return n, highest
}

// TestLimitsReloadedTwice: SGSNs that wait for their turn when another reload comes are asked for what counts
// then, those whose request is on its way once more, and in the end all contexts have it.
func TestLimitsReloadedTwice(t *testing.T) {
	w := limited(t, func(a *APN) { a.MaxUp, a.MaxDown = 4000, 4000 })
	const many = 100
	for n := range many {
		c := w.openAs(n+1, profile(gtp.ClassBackground, 4000, 4000), nil)
		w.createSecondary(c.TEIDControl.Value, func() *gtp.CreateRequest {
			m := w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 10, 5000)))
			m.QoS = profile(gtp.ClassBackground, 4000, 4000)
			return m
		}())
	}
	w.limit(2048)
	asked := ofType(w.tick(20*requalifyGap), gtp.TypeUpdateRequest)
	w.limit(1024)
	for _, one := range asked {
		_, m := w.requested(one)
		w.reply(one, &gtp.UpdateResponse{Cause: gtp.CauseAccepted, QoS: m.QoS})
	}
	n, highest := w.agree(2 * time.Second)
	if len(asked) == 0 || n != 2*many || highest != 1024 {
		t.Errorf("%d requests before, %d after with rates of up to %d", len(asked), n, highest)
	}
	for h := handle(1); h <= w.e.contexts.last; h++ {
		if got := w.e.contexts.at(h).qos.Profile().MaxUp; got != 1024 {
			t.Errorf("context %d has %d", h, got)
		}
	}
	if len(w.e.changes) != 0 {
		t.Errorf("%d changes are left", len(w.e.changes))
	}
}

// TestLimitsBack: nobody is asked for what he has, when limits are again what they were.
func TestLimitsBack(t *testing.T) {
	w := limited(t, func(a *APN) { a.MaxUp, a.MaxDown = 4000, 4000 })
	w.openAs(1, profile(gtp.ClassBackground, 2048, 2048), nil)
	w.limit(1024)
	w.limit(2048)
	if n, _ := w.agree(time.Second); n != 0 || len(w.e.changes) != 0 {
		t.Errorf("%d requests, %d changes left", n, len(w.e.changes))
	}
}

// TestLimitsOfLess: an SGSN that has asked for less while its turn had not come gets no more.
func TestLimitsOfLess(t *testing.T) {
	w := limited(t, func(a *APN) { a.MaxUp, a.MaxDown = 1024, 1024 })
	c := w.openAs(1, profile(gtp.ClassBackground, 4096, 4096), nil)
	w.limit(2048)
	m := w.updateRequest(0x7000)
	m.QoS = gtp.Some(profile(gtp.ClassBackground, 64, 64))
	w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, m, &gtp.UpdateResponse{})
	if n, highest := w.agree(time.Second); n != 0 {
		t.Errorf("asked for %d", highest)
	}
}

// TestLimitsOfEnded: the end of a context that waits for its turn keeps none of its session from theirs.
func TestLimitsOfEnded(t *testing.T) {
	w := limited(t, func(a *APN) { a.MaxUp, a.MaxDown = 4000, 4000 })
	c := w.openAs(1, profile(gtp.ClassBackground, 2048, 2048), nil)
	for nsapi := uint8(6); nsapi < 8; nsapi++ {
		m := w.secondaryRequest(nsapi, template(gtp.TFTCreate, portFilter(1, nsapi, 5000)))
		m.QoS = profile(gtp.ClassBackground, 2048, 2048)
		w.createSecondary(c.TEIDControl.Value, m)
	}
	w.limit(1024)
	w.remove(c.TEIDControl.Value, 5, false)
	if n, highest := w.agree(time.Second); n != 2 || highest != 1024 {
		t.Errorf("%d requests for up to %d", n, highest)
	}
}

// broken is a world whose first context has its user plane at an RNC, and a word of that one that it is lost.
func broken(t *testing.T) (w *world, c context, lost func()) {
	w = limited(t, func(a *APN) { a.DirectTunnel, a.MaxUp, a.MaxDown = true, 4000, 4000 })
	c = w.openAs(1, profile(gtp.ClassBackground, 2048, 2048), func(m *gtp.CreateRequest) { m.AddressUser = rnc })
	w.tick(2 * young)
	return w, c, func() {
		w.from = rnc
		w.raw(pathUser, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true}, &gtp.ErrorIndication{TEID: 0x1001, Address: rnc}))
		w.from = sgsn
	}
}

// TestBrokenWhileReloaded: a direct tunnel that breaks, and an order, do not wait for the turn of a reload, which
// comes afterwards.
func TestBrokenWhileReloaded(t *testing.T) {
	w, _, lost := broken(t)
	w.limit(1024)
	lost()
	got := ofType(w.out.UDP, gtp.TypeUpdateRequest)
	if len(got) != 1 {
		t.Fatalf("%d requests", len(got))
	}
	if _, m := w.requested(got[0]); m.DirectTunnelFlags.Value != gtp.FlagErrorIndication {
		t.Errorf("asked for %+v", m)
	}
	w.reply(got[0], &gtp.UpdateResponse{Cause: gtp.CauseAccepted, TEIDData: gtp.Some(uint32(0x1777)), AddressControl: gtp.Some(sgsn), AddressUser: gtp.Some(sgsn)})
	if n, highest := w.agree(time.Second); n != 1 || highest != 1024 {
		t.Errorf("%d requests afterwards, for up to %d", n, highest)
	}
	w.limit(512)
	w.amend(w.refs(Selection{}), Amendment{QoS: gtp.Some(profile(gtp.ClassBackground, 256, 256))}, nil)
	if _, m := w.requested(w.out.UDP[0]); m.QoS.Value.Profile().MaxUp != 256 {
		t.Errorf("ordered for %d", m.QoS.Value.Profile().MaxUp)
	}
}

// TestBrokenAndMoved: an SGSN that gives a context another end by itself, while it is to be told that the former
// one is lost, is not told.
func TestBrokenAndMoved(t *testing.T) {
	w, c, lost := broken(t)
	lost()
	w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, w.updateRequest(0x7000), &gtp.UpdateResponse{})
	if got := ofType(w.tick(time.Minute), gtp.TypeUpdateRequest); len(got) != 0 || len(w.e.changes) != 0 {
		t.Errorf("%d requests, %d changes left", len(got), len(w.e.changes))
	}
}

// TestChangeOfVersion: a change that waits while its context moves to an SGSN of version 0 is made no more.
func TestChangeOfVersion(t *testing.T) {
	for name, change := range map[string]func(*world){
		"of a reload": func(w *world) { w.limit(1024) },
		"of an order": func(w *world) {
			w.e.SetQoS(Selection{}, profile(gtp.ClassBackground, 512, 512), w.now, &w.out)
		},
	} {
		w := limited(t, func(a *APN) { a.MaxUp, a.MaxDown = 4000, 4000 })
		w.openAs(1, profile(gtp.ClassBackground, 2048, 2048), nil)
		change(w)
		w.from = other
		m := w.updateRequest(0x70)
		m.NSAPI, m.QoS = 0, gtp.Some(qosOf(0, 0x0b, 0x92, 0x1f))
		var u gtp.UpdateResponse
		if w.ask(pathV0, gtp.Header{TID: gtp.MakeTID(imsi1, 5)}, m, &u); u.Cause != gtp.CauseAccepted {
			t.Fatal(u.Cause)
		}
		if got := ofType(w.tick(time.Minute), gtp.TypeUpdateRequest); len(got) != 0 || len(w.e.changes) != 0 {
			t.Errorf("%s: %d requests, %d changes left", name, len(got), len(w.e.changes))
		}
	}
}
