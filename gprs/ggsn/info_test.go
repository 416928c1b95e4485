// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

func TestInfoChange(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	m := &gtp.InfoChangeRequest{RATType: gtp.RATUTRAN}
	var r gtp.InfoChangeResponse
	if h := w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value}, m, &r); r.Cause != gtp.CauseAccepted || h.TEID != 0x2001 {
		t.Errorf("%v to %#x", r.Cause, h.TEID)
	}
	if h := w.ask(pathControl, gtp.Header{TEID: c.TEIDControl.Value + 1}, m, &r); r.Cause != gtp.CauseNonExistent || h.TEID != 0 {
		t.Errorf("of no session: %v to %#x", r.Cause, h.TEID)
	}
}

// infoChange is a notification of where a terminal has gone.
func infoChange(rat gtp.RATType, cell uint16) *gtp.InfoChangeRequest {
	plmn, _ := gtp.MakePLMN("240", "01")
	return &gtp.InfoChangeRequest{RATType: rat, Location: gtp.Some(gtp.Location{Kind: gtp.LocationCell, PLMN: plmn, LAC: 0x1234, Code: cell})}
}

// TestInfoChangeTold has accounts told of where a terminal is, once for each change, for each context of its session.
func TestInfoChangeTold(t *testing.T) {
	w := newAccounted(t, nil)
	m := w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)
	m.RATType, m.TimeZone = gtp.Some(gtp.RATGERAN), gtp.Some(gtp.TimeZone{Octet: 0x40, Summer: 1})
	c := w.create(m)
	w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 10, 5000))))
	byIMSI := func(imsi gtp.IMSI, nsapi gtp.Optional[uint8], cell uint16) *gtp.InfoChangeRequest {
		m := infoChange(gtp.RATUTRAN, cell)
		m.IMSI, m.LinkedNSAPI = gtp.Some(imsi), nsapi
		return m
	}
	cell := func(code byte) gtp.Optional[Location] {
		return gtp.Some(Location{0, 0x42, 0xf0, 0x10, 0x12, 0x34, 0, code})
	}
	later := infoChange(gtp.RATUTRAN, 0)
	later.Location = gtp.Some(gtp.Location{Kind: 9, Rest: []byte{1, 2, 3}})
	for _, tt := range []struct {
		name string
		teid uint32
		m    *gtp.InfoChangeRequest
		from netip.Addr
		told int
		at   gtp.Optional[Location]
		want gtp.Cause
	}{
		{name: "a first cell", teid: c.TEIDControl.Value, m: infoChange(gtp.RATUTRAN, 7), told: 2, at: cell(7), want: gtp.CauseAccepted},
		{name: "the same", teid: c.TEIDControl.Value, m: infoChange(gtp.RATUTRAN, 7), at: cell(7), want: gtp.CauseAccepted},
		{name: "another cell, by the IMSI", m: byIMSI(imsi1, gtp.Optional[uint8]{}, 8), told: 2, at: cell(8), want: gtp.CauseAccepted},
		{name: "and the NSAPI of one context", m: byIMSI(imsi1, gtp.Some(uint8(6)), 9), told: 2, at: cell(9), want: gtp.CauseAccepted},
		{name: "of no context", m: byIMSI(imsi1, gtp.Some(uint8(7)), 10), at: cell(9), want: gtp.CauseNonExistent},
		{name: "of no terminal", m: byIMSI(testIMSI(2), gtp.Optional[uint8]{}, 10), at: cell(9), want: gtp.CauseNonExistent},
		{name: "by an SGSN that has not got it", m: byIMSI(imsi1, gtp.Optional[uint8]{}, 10), from: other, at: cell(9), want: gtp.CauseNonExistent},
		{name: "a location of a later release", teid: c.TEIDControl.Value, m: later, told: 2, want: gtp.CauseAccepted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if w.from = sgsn; tt.from.IsValid() {
				w.from = tt.from
			}
			var r gtp.InfoChangeResponse
			w.ask(pathControl, gtp.Header{TEID: tt.teid}, tt.m, &r)
			if told := w.told(ContextUpdated); len(told) != tt.told || r.Cause != tt.want || r.IMSI != tt.m.IMSI || r.LinkedNSAPI != tt.m.LinkedNSAPI {
				t.Errorf("%d told, answer %+v", len(told), r)
			}
			for _, x := range w.list() {
				if got, want := x.Account.place(), (Place{gtp.Some(gtp.RATUTRAN), tt.at, m.TimeZone}); got != want {
					t.Errorf("it is at %+v, want %+v", got, want)
				}
			}
		})
	}
}

// TestInfoChangeAction asks an SGSN for reports that has said that it can, where the access point wants any, and ends
// those that it does not want.
func TestInfoChangeAction(t *testing.T) {
	support, ok := gtp.MakeExtensions(make([]byte, 4), gtp.Extension{Type: gtp.ExtensionInfoChangeSupport, Content: []byte{0, 0}})
	if !ok {
		t.Fatal("no extension header")
	}
	for _, tt := range []struct {
		name   string
		report gtp.InfoChangeAction
		can    gtp.Extensions
		want   gtp.Optional[gtp.InfoChangeAction] // by Create and Update Responses
		then   gtp.Optional[gtp.InfoChangeAction] // when a report comes
	}{
		{"cells are wanted", gtp.InfoChangeCell, support, gtp.Some(gtp.InfoChangeCell), gtp.Optional[gtp.InfoChangeAction]{}},
		{"areas are wanted", gtp.InfoChangeRAI, support, gtp.Some(gtp.InfoChangeRAI), gtp.Optional[gtp.InfoChangeAction]{}},
		{"of one that cannot", gtp.InfoChangeCell, gtp.Extensions{}, gtp.Optional[gtp.InfoChangeAction]{}, gtp.Optional[gtp.InfoChangeAction]{}},
		{"none are wanted", gtp.InfoChangeStop, support, gtp.Optional[gtp.InfoChangeAction]{}, gtp.Some(gtp.InfoChangeStop)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(s *Settings) { s.APNs[0].Report = tt.report })
			var created gtp.CreateResponse
			w.ask(pathControl, gtp.Header{Extensions: tt.can}, w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4), &created)
			teid := created.TEIDControl.Value
			var updated gtp.UpdateResponse
			w.ask(pathControl, gtp.Header{TEID: teid, Extensions: tt.can}, w.updateRequest(0x7000), &updated)
			var answered, byIMSI gtp.InfoChangeResponse
			w.ask(pathControl, gtp.Header{TEID: teid}, infoChange(gtp.RATUTRAN, 1), &answered)
			m := infoChange(gtp.RATUTRAN, 1)
			m.IMSI = gtp.Some(imsi1)
			w.ask(pathControl, gtp.Header{}, m, &byIMSI)
			if created.InfoChangeAction != tt.want || updated.InfoChangeAction != tt.want || answered.InfoChangeAction != tt.then || byIMSI.InfoChangeAction != tt.then {
				t.Errorf("asked by %v and %v, want %v; then by %v and %v, want %v", created.InfoChangeAction, updated.InfoChangeAction, tt.want, answered.InfoChangeAction, byIMSI.InfoChangeAction, tt.then)
			}
		})
	}
}

func TestEndMarker(t *testing.T) {
	w := newWorld(t, nil)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.raw(pathUser, []byte{0x30, byte(gtp.TypeEndMarker), 0, 0, 0, 0, 0, 9})
	if w.e.stats.EndMarkers != 1 || len(w.out.UDP)+len(w.dropped()) != 0 {
		t.Errorf("%d counted, %d datagrams, dropped %v", w.e.stats.EndMarkers, len(w.out.UDP), w.dropped())
	}
	w.up(c, udp4(c.four(), server, 64, 0))
	if len(w.out.IP) != 1 {
		t.Errorf("dropped %v", w.dropped())
	}
}
