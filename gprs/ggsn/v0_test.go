// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// createV0 makes a context of version 0.
func (w *world) createV0(tid gtp.TID, apn string, kind gtp.PDPType) (gtp.Header, gtp.CreateResponse) {
	w.Helper()
	number, _ := gtp.ParseMSISDN("46702123456")
	m := &gtp.CreateRequest{
		SelectionMode: gtp.Some(gtp.SelectionVerified), TEIDData: 0x1111, TEIDControl: gtp.Some(uint32(0x2222)),
		EndUserAddress: gtp.Some(gtp.EndUserAddress{Type: kind}), APN: gtp.Some(apnOf(apn)),
		AddressControl: w.from, AddressUser: w.from, MSISDN: gtp.Some(number), QoS: qosOf(0, 0x0b, 0x92, 0x1f),
	}
	var r gtp.CreateResponse
	return w.ask(pathV0, gtp.Header{TID: tid}, m, &r), r
}

func (w *world) upV0(tid gtp.TID, label uint16, ip []byte) {
	h := gtp.Header{Version: gtp.V0, Type: gtp.TypeGPDU, HasSequence: true, TID: tid, FlowLabel: label}
	b, err := gtp.Encapsulate(nil, &h, ip)
	if err != nil {
		w.Fatal(err)
	}
	w.raw(pathV0, b)
}

// TestVersion0: a context of version 0 from its beginning to its end, also for a node that
// writes TIDs the other way round, which has them back as it writes them.
func TestVersion0(t *testing.T) {
	for _, reversed := range []bool{false, true} {
		w := newWorld(t, func(s *Settings) {
			if reversed {
				s.ReversedTID = prefixes("198.51.100.0/24")
			}
		})
		tid := gtp.MakeTID(imsi1, 5)
		if reversed {
			tid = tid.Reversed()
		}
		h, r := w.createV0(tid, "inet6", gtp.PDPTypeIPv6)
		if r.Cause != gtp.CauseAccepted || h.FlowLabel != 0x2222 || h.TID != tid {
			t.Fatalf("%v to label %#x of %v", r.Cause, h.FlowLabel, h.TID)
		}
		var info ContextInfo
		w.e.Contexts(Selection{IMSI: imsi1}, 0, 9, func(i ContextInfo) bool { info = i; return true })
		if info.IMSI != imsi1 || info.NSAPI != 5 || info.MSISDN.String() != "46702123456" {
			t.Errorf("listed as %+v", info)
		}
		c := context{CreateResponse: r}
		w.upV0(tid, uint16(r.TEIDData.Value), udp6(c.six(), host6, 64, 9))
		if len(w.out.IP) != 1 {
			t.Errorf("dropped %v", w.dropped())
		}
		w.down(udp6(host6, c.six(), 64, 9))
		g, got := w.tunnelled()
		if g.Version != gtp.V0 || g.FlowLabel != 0x1111 || g.TID != tid || len(got) != 57 || w.out.UDP[0].To.Port() != gtp.PortV0 {
			t.Errorf("%+v", g)
		}
		w.upV0(tid, uint16(r.TEIDData.Value)+1, udp6(c.six(), host6, 64, 9))
		if e := ofType(w.out.UDP, gtp.TypeErrorIndication); len(e) != 1 || !bytes.Equal(e[0].Payload[12:20], tid[:]) {
			t.Errorf("wrong label: %d indications", len(e))
		}
		var u gtp.UpdateResponse
		m := &gtp.UpdateRequest{
			TEIDData: gtp.Some(uint32(0x3333)), TEIDControl: gtp.Some(uint32(0x4444)), QoS: gtp.Some(qosOf(0, 1, 2, 3)),
			AddressControl: gtp.Some(w.from), AddressUser: gtp.Some(w.from),
		}
		label := uint16(r.TEIDControl.Value)
		if w.ask(pathV0, gtp.Header{TID: tid, FlowLabel: label + 1}, m, &u); u.Cause != gtp.CauseNonExistent {
			t.Errorf("update of a wrong label: %v", u.Cause)
		}
		if h = w.ask(pathV0, gtp.Header{TID: tid, FlowLabel: label}, m, &u); u.Cause != gtp.CauseAccepted || h.FlowLabel != 0x4444 {
			t.Errorf("update: %v to %#x", u.Cause, h.FlowLabel)
		}
		var d gtp.DeleteResponse
		if h = w.ask(pathV0, gtp.Header{TID: tid, FlowLabel: label}, &gtp.DeleteRequest{}, &d); d.Cause != gtp.CauseAccepted || h.FlowLabel != 0x4444 || h.TID != tid {
			t.Errorf("delete: %v to %#x", d.Cause, h.FlowLabel)
		}
		w.empty()
	}
}

// TestVersionChanges: a context of version 0 moves to an SGSN of version 1, which knows its
// IMSI alone, and has TEIDs from then on.
func TestVersionChanges(t *testing.T) {
	for _, opaque := range []bool{false, true} {
		w := newWorld(t, nil)
		tid := gtp.MakeTID(imsi1, 5)
		if opaque {
			tid = tid.Reversed()
		}
		_, r := w.createV0(tid, "internet", gtp.PDPTypeIPv4)
		w.from = other
		m := w.updateRequest(0x7000)
		var u gtp.UpdateResponse
		if w.ask(pathControl, gtp.Header{}, m, &u); u.Cause != gtp.CauseNonExistent {
			t.Fatalf("without an IMSI: %v", u.Cause)
		}
		m.IMSI = gtp.Some(imsi1)
		h := w.ask(pathControl, gtp.Header{}, m, &u)
		if u.Cause != gtp.CauseAccepted || h.TEID != 0x7001 || !u.TEIDControl.Present {
			t.Fatalf("%v to %#x", u.Cause, h.TEID)
		}
		c := context{CreateResponse: r}
		c.TEIDData = u.TEIDData
		w.up(c, udp4(c.four(), server, 64, 0))
		if len(w.out.IP) != 1 {
			t.Errorf("dropped %v", w.dropped())
		}
		w.upV0(tid, uint16(r.TEIDData.Value), udp4(c.four(), server, 64, 0))
		if w.e.stats.Dropped[TEIDUnknown] != 1 {
			t.Errorf("dropped %v", w.dropped())
		}
		w.from = sgsn
		w.upV0(tid, uint16(r.TEIDData.Value), udp4(c.four(), server, 64, 0))
		if len(w.out.IP) != 1 {
			t.Errorf("what the SGSN before had sent is lost: %v", w.dropped())
		}
		w.from = other
		w.remove(u.TEIDControl.Value, 5, false)
		w.empty()
	}
}

// TestVersionChangesBack: a context of version 1 moves to an SGSN of version 0, which knows its
// TID alone, in either order of octets, and no flow label; one with secondary contexts stays.
func TestVersionChangesBack(t *testing.T) {
	for _, opaque := range []bool{false, true} {
		w := newWorld(t, nil)
		c := w.open(1, "internet", gtp.PDPTypeIPv4)
		w.createSecondary(c.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 1, 1))))
		tid := gtp.MakeTID(imsi1, 5)
		if opaque {
			tid = tid.Reversed()
		}
		var u gtp.UpdateResponse
		w.from = other
		m := w.updateRequest(0x70)
		m.NSAPI = 0
		if w.ask(pathV0, gtp.Header{TID: tid}, m, &u); u.Cause != gtp.CauseNonExistent {
			t.Fatalf("with a secondary context: %v", u.Cause)
		}
		w.from = sgsn
		w.remove(c.TEIDControl.Value, 6, false)
		w.from = other
		if w.ask(pathV0, gtp.Header{TID: tid, FlowLabel: 1}, m, &u); u.Cause != gtp.CauseNonExistent {
			t.Fatalf("with a flow label of another: %v", u.Cause)
		}
		h := w.ask(pathV0, gtp.Header{TID: tid}, m, &u)
		if u.Cause != gtp.CauseAccepted || h.TID != tid || h.FlowLabel != 0x71 || u.TEIDControl.Value > 0xffff {
			t.Fatalf("%v to %#x of %v", u.Cause, h.FlowLabel, h.TID)
		}
		w.upV0(tid, uint16(u.TEIDData.Value), udp4(c.four(), server, 64, 0))
		if len(w.out.IP) != 1 {
			t.Errorf("dropped %v", w.dropped())
		}
		w.up(c, udp4(c.four(), server, 64, 0))
		if n := len(ofType(w.out.UDP, gtp.TypeErrorIndication)); w.e.stats.Dropped[TEIDUnknown] != 1 || n != 0 {
			t.Errorf("dropped %v, %d indications for what was on its way", w.dropped(), n)
		}
		w.from = sgsn
		w.up(c, udp4(c.four(), server, 64, 0))
		if len(w.out.IP) != 1 {
			t.Errorf("what the SGSN before had sent is lost: %v", w.dropped())
		}
		w.from = other
		w.down(udp4(server, c.four(), 64, 0))
		if g, _ := w.tunnelled(); g.Version != gtp.V0 || g.FlowLabel != 0x70 || g.TID != tid {
			t.Errorf("%+v", g)
		}
		var d gtp.DeleteResponse
		if w.ask(pathV0, gtp.Header{TID: tid, FlowLabel: uint16(u.TEIDControl.Value)}, &gtp.DeleteRequest{}, &d); d.Cause != gtp.CauseAccepted {
			t.Error(d.Cause)
		}
		w.empty()
	}
}

// TestVersionChangeRefused: an update that is refused leaves the context as it was, also one of
// a TID that is written the other way round; so does one whose right TID another has.
func TestVersionChangeRefused(t *testing.T) {
	for _, taken := range []bool{false, true} {
		w := newWorld(t, nil)
		tid := gtp.MakeTID(imsi1, 5)
		_, r := w.createV0(tid.Reversed(), "internet", gtp.PDPTypeIPv4)
		m := w.updateRequest(0x3000)
		m.IMSI = gtp.Some(imsi1)
		if taken {
			w.open(1, "internet", gtp.PDPTypeIPv4)
		} else {
			m.AddressUser = gtp.Some(rnc)
		}
		var u gtp.UpdateResponse
		if w.ask(pathControl, gtp.Header{}, m, &u); u.Cause.Accepted() {
			t.Fatal(u.Cause)
		}
		c := context{CreateResponse: r}
		w.upV0(tid.Reversed(), uint16(r.TEIDData.Value), udp4(c.four(), server, 64, 0))
		if len(w.out.IP) != 1 {
			t.Errorf("taken %v: dropped %v", taken, w.dropped())
		}
		w.out.Reset()
		w.e.Delete(Selection{}, w.now, &w.out)
		w.tick(time.Minute)
		w.empty()
	}
}

// TestVersion0Dual: version 0 has no dual address flag, so that both families give one.
func TestVersion0Dual(t *testing.T) {
	w := newWorld(t, nil)
	_, r := w.createV0(gtp.MakeTID(imsi1, 5), "dual", gtp.PDPTypeIPv4v6)
	if r.Cause != gtp.CauseNewPDPTypeSingle || r.EndUserAddress.Value.Type != gtp.PDPTypeIPv6 {
		t.Errorf("%v %v", r.Cause, r.EndUserAddress.Value.Type)
	}
}

func TestErrorIndicationVersion0(t *testing.T) {
	w := newWorld(t, nil)
	tid := gtp.MakeTID(imsi1, 5)
	w.createV0(tid, "internet", gtp.PDPTypeIPv4)
	w.tick(2 * young)
	send := func(from netip.Addr, label uint16) {
		w.from = from
		w.raw(pathV0, w.encode(gtp.Header{Version: gtp.V0, HasSequence: true, TID: tid, FlowLabel: label}, &gtp.ErrorIndication{}))
	}
	send(other, 0x1111)
	send(sgsn, 0x1112)
	w.from, tid = sgsn, gtp.MakeTID(testIMSI(2), 5)
	c := w.open(2, "internet", gtp.PDPTypeIPv4) // of version 1
	w.tick(2 * young)
	send(sgsn, 0x1002)
	if w.e.contexts.used() != 2 {
		t.Error("a context of version 1 ended")
	}
	w.remove(c.TEIDControl.Value, 5, true)
	tid = gtp.MakeTID(imsi1, 5)
	if w.e.contexts.used() != 1 || w.e.stats.Dropped[IndicationWrong] != 3 {
		t.Errorf("%d contexts, dropped %v", w.e.contexts.used(), w.dropped())
	}
	send(sgsn, 0x1111)
	w.empty()
}
