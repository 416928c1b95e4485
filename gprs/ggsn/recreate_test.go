// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestRecreateRefused: a context ends for another of the same IMSI and NSAPI only if that one can
// be made.
func TestRecreateRefused(t *testing.T) {
	static := netip.MustParseAddr("10.47.0.9")
	tests := []struct {
		name     string
		settings func(*Settings)
		before   func(w *world)
		again    func(w *world, m *gtp.CreateRequest)
		want     gtp.Cause
	}{
		{"no address at another access point", func(s *Settings) { s.APNs[0].Pools4 = prefixes("10.45.0.1/32") },
			func(w *world) { w.open(2, "internet", gtp.PDPTypeIPv4) },
			func(_ *world, m *gtp.CreateRequest) { m.APN.Value = apnOf("internet") }, gtp.CauseAddressesOccupied},
		{"a static address that another has", nil,
			func(w *world) {
				m := w.createRequest(testIMSI(2), "dual", gtp.PDPTypeIPv4)
				m.EndUserAddress.Value.IPv4 = static
				w.create(m)
			},
			func(_ *world, m *gtp.CreateRequest) { m.EndUserAddress.Value.IPv4 = static }, gtp.CauseUnknownPDPType},
		{"a node that may have no more", func(s *Settings) { s.Limits.ContextsPerPeer = 1 },
			func(w *world) { w.from = other; w.open(2, "internet", gtp.PDPTypeIPv4) },
			func(w *world, m *gtp.CreateRequest) { m.AddressControl, m.AddressUser = w.from, w.from }, gtp.CauseNoResources},
	}
	for _, tt := range tests {
		for _, version := range []gtp.Version{gtp.V0, gtp.V1} {
			w := newWorld(t, tt.settings)
			m := w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4)
			path, h := pathControl, gtp.Header{}
			if version == gtp.V0 {
				msisdn, _ := gtp.ParseMSISDN("46702123456")
				path, h.TID = pathV0, gtp.MakeTID(imsi1, 5)
				m.CommonFlags = gtp.Optional[gtp.CommonFlags]{}
				m.TEIDData, m.TEIDControl = 0x1111, gtp.Some(uint32(0x2222))
				m.QoS = qosOf(0, 0x0b, 0x92, 0x1f)
				m.MSISDN = gtp.Some(msisdn)
			}
			var c, r gtp.CreateResponse
			if w.ask(path, h, m, &c); c.Cause != gtp.CauseAccepted {
				t.Fatal(c.Cause)
			}
			tt.before(w)
			tt.again(w, m)
			if w.ask(path, h, m, &r); r.Cause != tt.want {
				t.Errorf("%s, version %d: %v", tt.name, version, r.Cause)
			}
			w.down(udp4(server, c.EndUserAddress.Value.IPv4, 64, 0))
			if _, ip := w.tunnelled(); ip == nil || w.e.stats.Ended != [NumEnds]uint64{} {
				t.Errorf("%s, version %d: ended %v, dropped %v", tt.name, version, w.e.stats.Ended, w.dropped())
			}
		}
	}
}

// TestRecreateFull: in full tables and pools a context comes in the place of the one before, with
// its addresses, whether they rest otherwise or not.
func TestRecreateFull(t *testing.T) {
	static4, static6 := netip.MustParseAddr("10.47.0.9"), netip.MustParseAddr("2001:db8:7100::9")
	tests := []struct {
		name   string
		static bool
		change func(*Settings)
	}{
		{"pools", false, func(s *Settings) {
			s.APNs[2].Pools4, s.APNs[2].Pools6 = prefixes("10.46.0.1/32"), prefixes("2001:db8:7000::/64")
		}},
		{"a pool of IPv4", false, func(s *Settings) { s.APNs[2].Pools4 = prefixes("10.46.0.1/32") }},
		{"a pool of IPv6", false, func(s *Settings) { s.APNs[2].Pools6 = prefixes("2001:db8:7000::/64") }},
		{"static addresses", true, func(*Settings) {}},
		{"the table", false, func(s *Settings) { s.Limits.Contexts, s.Limits.ContextsPerPeer = 1, 1 }},
	}
	for _, tt := range tests {
		w := newWorld(t, func(s *Settings) { s.APNs[2].Hold = 2 * time.Minute; tt.change(s) })
		m := w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4v6)
		if tt.static {
			m.EndUserAddress.Value.IPv4, m.EndUserAddress.Value.IPv6 = static4, static6
		}
		first := w.create(m)
		for range 3 {
			c := w.create(m)
			if c.Cause != gtp.CauseAccepted || c.TEIDData == first.TEIDData || w.e.contexts.used() != 1 {
				t.Fatalf("%s: %v, %d contexts", tt.name, c.Cause, w.e.contexts.used())
			}
			w.up(c, udp4(c.four(), server, 64, 0))
			sent := len(w.out.IP)
			w.up(c, udp6(c.six(), host6, 64, 0))
			if sent+len(w.out.IP) != 2 {
				t.Errorf("%s: dropped %v", tt.name, w.dropped())
			}
			w.down(udp4(server, c.four(), 64, 0))
			if h, _ := w.tunnelled(); h.TEID == 0 {
				t.Errorf("%s: dropped %v", tt.name, w.dropped())
			}
			first = c
		}
		w.remove(first.TEIDControl.Value, 5, true)
		w.empty()
	}
}

// TestSecondaryRecreateRefused: a secondary context ends for another of its NSAPI only if that one
// can be made, and in a full table comes in its place.
func TestSecondaryRecreateRefused(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Limits.Contexts, s.Limits.ContextsPerPeer = 2, 2 })
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	m := w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 1, 1)))
	for range 3 {
		if r := w.createSecondary(c.TEIDControl.Value, m); r.Cause != gtp.CauseAccepted {
			t.Fatal(r.Cause)
		}
	}
	s := w.e.settings
	s.Limits.ContextsPerPeer = 1
	if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	m.NSAPI, m.TFT = 7, template(gtp.TFTCreate, portFilter(1, 2, 1))
	if r := w.createSecondary(c.TEIDControl.Value, m); r.Cause != gtp.CauseNoResources || w.e.contexts.used() != 2 {
		t.Errorf("%v, %d contexts", r.Cause, w.e.contexts.used())
	}
	m.NSAPI = 6
	if r := w.createSecondary(c.TEIDControl.Value, m); r.Cause != gtp.CauseAccepted || w.e.contexts.used() != 2 {
		t.Errorf("%v, %d contexts", r.Cause, w.e.contexts.used())
	}
}

// TestCreateLate: a Create Request that comes once more after its context ended opens none, and
// ends none that is newer.
func TestCreateLate(t *testing.T) {
	w := newWorld(t, nil)
	primary := w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)
	first := w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 3}, primary)
	late := func(what string, path int, b []byte, contexts int) {
		t.Helper()
		before := w.e.stats.Dropped[CreateLate]
		w.raw(path, bytes.Clone(b))
		w.silent(CreateLate, before)
		if n := w.e.contexts.used(); n != contexts {
			t.Errorf("%s: %d contexts", what, n)
		}
	}
	var c gtp.CreateResponse
	w.answer(w.raw(pathControl, bytes.Clone(first)), &c)
	secondary := w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: 4, TEID: c.TEIDControl.Value}, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 1, 1))))
	w.answer(w.raw(pathControl, bytes.Clone(secondary)), &gtp.CreateResponse{})
	w.remove(c.TEIDControl.Value, 6, false)
	late("a secondary context", pathControl, secondary, 1)
	w.remove(c.TEIDControl.Value, 5, true)
	late("a primary one", pathControl, first, 0)

	w.from = other
	d := w.open(1, "internet", gtp.PDPTypeIPv4)
	w.from = sgsn
	late("one that is newer elsewhere", pathControl, first, 1)
	w.up(context{CreateResponse: d.CreateResponse}, udp4(d.four(), server, 64, 0))
	w.tick(w.e.patience())
	w.from = other
	w.remove(d.TEIDControl.Value, 5, true)
	w.from = sgsn
	w.answer(w.raw(pathControl, bytes.Clone(first)), &c)
	if w.e.contexts.used() != 1 {
		t.Error("the same request is refused when it can be none that comes late")
	}
	w.port++
	if w.answer(w.raw(pathControl, bytes.Clone(first)), &c); w.e.stats.Ended[EndRecreated] != 1 {
		t.Error("a request from another port is taken for the same")
	}

	w = newWorld(t, nil)
	tid := gtp.MakeTID(imsi1, 5)
	msisdn, _ := gtp.ParseMSISDN("46702123456")
	m := &gtp.CreateRequest{
		SelectionMode: gtp.Some(gtp.SelectionVerified), TEIDData: 0x1111, TEIDControl: gtp.Some(uint32(0x2222)), MSISDN: gtp.Some(msisdn),
		EndUserAddress: gtp.Some(gtp.EndUserAddress{Type: gtp.PDPTypeIPv4}), APN: gtp.Some(apnOf("internet")),
		AddressControl: sgsn, AddressUser: sgsn, QoS: qosOf(0, 0x0b, 0x92, 0x1f),
	}
	b := w.encode(gtp.Header{Version: gtp.V0, HasSequence: true, Sequence: 3, TID: tid}, m)
	w.answer(w.raw(pathV0, bytes.Clone(b)), &c)
	var r gtp.DeleteResponse
	if w.ask(pathV0, gtp.Header{TID: tid, FlowLabel: uint16(c.TEIDControl.Value)}, &gtp.DeleteRequest{}, &r); r.Cause != gtp.CauseAccepted {
		t.Fatal(r.Cause)
	}
	late("one of version 0", pathV0, b, 0)
}
