// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestLookUp: what is found by an index are the contexts that match, whatever they are, and no others.
func TestLookUp(t *testing.T) {
	w := newWorld(t, func(s *Settings) {
		routedSettings(s)
		delegate(s)
		s.APNs[0].Pools4, s.APNs[0].Account = prefixes("10.46.0.0/16"), true // the same as those of another network
		s.APNs[2].VRF, s.APNs[2].LinkPrefixes = 1, 4
	})
	w.enters(1, gtp.PDPTypeIPv4v6, Grant{Routes: append(routes("172.20.1.0/24"), Route{Prefix: netip.MustParsePrefix("2001:db8:9000:100::/56"), Delegated: true})})
	dual := w.enters(2, gtp.PDPTypeIPv4v6, Grant{Prefix6: netip.MustParsePrefix("2001:db8:7100:7::/64")})
	w.createSecondary(dual.TEIDControl.Value, w.secondaryRequest(6, template(gtp.TFTCreate, portFilter(1, 1, 1))))
	c := w.open(3, "inet6", gtp.PDPTypeIPv6)
	w.dhcp(c, dhcpRequest, 1, knowsExclude)
	w.open(4, "internet", gtp.PDPTypeIPv4)
	w.createV0(gtp.MakeTID(testIMSI(5), 7), "internet", gtp.PDPTypeIPv4)
	nobody := w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)
	imei, err := gtp.ParseIMEI("2400100000000010")
	if err != nil {
		t.Fatal(err)
	}
	nobody.IMSI, nobody.IMEI, nobody.NSAPI, nobody.TEIDData = gtp.Optional[gtp.IMSI]{}, gtp.Some(imei), 9, 0x1009
	nobody.PCO = gtp.Some(pcoOf(gtp.ContainerPAP, papRequest("nemo", "arctangent")))
	if r := w.create(nobody); !r.Cause.Accepted() {
		t.Fatal(r.Cause)
	}
	all := w.list()
	if len(all) != 7 {
		t.Fatalf("%d contexts", len(all))
	}
	var selections []Selection
	for _, x := range all {
		id := x.ChargingID
		selections = append(selections, Selection{ChargingID: &id}, Selection{IMSI: x.IMSI}, Selection{IMSI: x.IMSI, NSAPI: &x.NSAPI}, Selection{Number: x.MSISDN.String()}, Selection{User: x.IMSI.String()})
		list := append(x.Routes, x.Delegated6...)
		if x.Address4.IsValid() {
			list = append(list, netip.PrefixFrom(x.Address4, 32))
		}
		if x.Prefix6.IsValid() {
			list = append(list, x.Prefix6, netip.PrefixFrom(x.Prefix6.Addr(), 64))
		}
		for _, p := range list {
			if p.IsValid() {
				last := netip.PrefixFrom(lastOf(p), p.Addr().BitLen())
				selections = append(selections, Selection{Address: p}, Selection{Address: netip.PrefixFrom(p.Addr(), p.Addr().BitLen())}, Selection{Address: last}, Selection{Address: last, VRF: &x.VRF})
			}
		}
	}
	none := all[0].ChargingID - 1
	selections = append(selections, Selection{ChargingID: &none}, Selection{ChargingID: new(uint32)}, Selection{IMSI: testIMSI(99)}, Selection{User: "nemo"}, Selection{User: "Nemo"})
	direct := 0
	for _, sel := range selections {
		want := all[:0:0]
		for _, x := range all {
			if w.e.matches(&sel, w.e.contexts.at(handle(x.Record))) {
				want = append(want, x)
			}
		}
		var got []uint32
		for next, more := uint32(0), true; more; more = next != 0 { // one by one
			next = w.e.Contexts(sel, next, 1, func(x ContextInfo) bool { got = append(got, x.Record); return true })
		}
		if !slices.EqualFunc(got, want, func(h uint32, x ContextInfo) bool { return h == x.Record }) {
			t.Errorf("%+v: %v, want %d contexts", sel, got, len(want))
		}
		if sel.Direct() {
			direct++
			if n := len(w.e.lookUp(&sel)); n > 3 {
				t.Errorf("%+v: %d are looked at", sel, n)
			}
		}
	}
	if direct < 30 {
		t.Errorf("%d selections of %d are direct", direct, len(selections))
	}
	if n := len(w.refs(Selection{User: "nemo"})); n != 1 {
		t.Errorf("%d contexts of nemo", n)
	}
}

// TestChargingIDs: one that a context has is given to no other, nor is 0, however many there were.
func TestChargingIDs(t *testing.T) {
	w := newWorld(t, nil)
	w.e.chargingID = ^uint32(0) - 1
	for n, want := range []uint32{^uint32(0), 1} {
		if c := w.open(n, "internet", gtp.PDPTypeIPv4); c.ChargingID.Value != want {
			t.Errorf("context %d has %#x", n, c.ChargingID.Value)
		}
	}
	w.e.chargingID = 0
	last := uint32(2)
	if c := w.open(2, "internet", gtp.PDPTypeIPv4); c.ChargingID.Value != last {
		t.Errorf("once around it is %#x", c.ChargingID.Value)
	}
	if state := w.e.AppendState(nil); w.succeed(testSettings(), state) != 0 {
		t.Error("contexts are lost")
	}
	if n := len(w.refs(Selection{ChargingID: &last})); n != 1 {
		t.Errorf("another process finds %d", n)
	}
}

// lastOf is the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
