// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/radius"
)

// TestAccountingOfHostileGrant has room in its records for the most that an Access-Accept can make them tell
// again, a class, or as many as there can be, and routes, beside the most that an SGSN can: names, a place and
// filters.
func TestAccountingOfHostileGrant(t *testing.T) {
	for size := range 4 {
		var answer radius.Attributes
		for range 16 {
			answer.Text(radius.FramedIPv6Route, "2001:db8:9000:1000::/64 :: 1")
		}
		for range (4096 - 20 - 16*30) / (2 + size) {
			answer.Octets(radius.Class, bytes.Repeat([]byte{'x'}, size))
		}
		g := grantOf(&radius.Answer{Code: radius.AccessAccept, Attributes: answer})
		a := newAccountant(t)
		e := told(ggsn.ContextDeleted, ggsn.EndPeer)
		e.Context.APN, e.Context.Account.User = "internet", bytes.Repeat([]byte{'u'}, 253)
		e.Context.Account.Class = g.Class
		e.Context.Account.Location.Value = gtp.Location{Kind: 255, Rest: bytes.Repeat([]byte{1}, 1000)}
		for range 16 {
			e.Context.Further6 = append(e.Context.Further6, e.Context.Prefix6)
			e.Context.Former6 = append(e.Context.Former6, e.Context.Prefix6)
		}
		e.Context.Account.CAMEL = bytes.Repeat([]byte{1}, 1000)
		longest := gtp.Match{Address: netip.MustParseAddr("2001:db8::1"), Mask: netip.MustParseAddr("ffff:0:ffff::")}
		for range 16 {
			e.Context.Filters = append(e.Context.Filters, gtp.PacketFilter{
				Remote: longest, Protocol: gtp.Some(uint8(17)), LocalPort: gtp.Some(gtp.PortRange{First: 1, Last: 2}), RemotePort: gtp.Some(gtp.PortRange{First: 1, Last: 2}),
			})
		}
		for _, r := range g.Routes {
			e.Context.Routes = append(e.Context.Routes, r.Prefix)
		}
		a.add([]ggsn.Event{e})
		var out radius.Output
		if a.send(e.Time, &out); len(out.UDP) != 1 {
			t.Errorf("classes of %d octets: the record is not sent; %d classes are told again", size, len(g.Class))
		}
	}
}

// TestAccountingTooLong has a record that no packet has room for hold up no other one; it is counted.
func TestAccountingTooLong(t *testing.T) {
	a := newAccountant(t)
	e := told(ggsn.ContextCreated, 0)
	for range 300 {
		e.Context.Routes = append(e.Context.Routes, netip.MustParsePrefix("2001:db8:9000:1000::/64"))
	}
	a.add([]ggsn.Event{e})
	e = told(ggsn.ContextCreated, 0)
	e.Context.ChargingID = 7
	a.add([]ggsn.Event{e})
	var out radius.Output
	if a.send(time.Now(), &out); len(out.UDP) != 1 || ids(out.UDP[0].Payload) != "7" || a.spool.Info().Records != 1 || a.unfit != 1 {
		t.Errorf("%d requests, %+v, %d unfit", len(out.UDP), a.spool.Info(), a.unfit)
	}
}

// TestDynamicNamesNobody refuses names without an octet: they would fit all terminals that have none.
func TestDynamicNamesNobody(t *testing.T) {
	d := dynamicNode(t)
	for _, of := range []radius.Type{radius.UserName, radius.CallingStationID, radius.AcctSessionID, radius.CalledStationID} {
		var a radius.Attributes
		a.Octets(of, nil)
		if _, _, cause := d.read(radius.DisconnectRequest, &a); cause != radius.InvalidRequest {
			t.Errorf("%d: %v", of, cause)
		}
	}
}
