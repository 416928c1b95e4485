// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/radius"
)

// TestStation tells of an SGSN by the attribute for its family, and by no other.
func TestStation(t *testing.T) {
	for address, want := range map[string]byte{"192.0.2.7": gppSGSN4, "2001:db8:1::7": gppSGSN6} {
		var to radius.Attributes
		new(asker).terminal(&to, &ggsn.ContextInfo{PeerControl: netip.MustParseAddr(address), Account: new(ggsn.Account)})
		for _, of := range []byte{gppSGSN4, gppSGSN6} {
			value, found := to.Find3GPP(of)
			if found != (of == want) || found && !bytes.Equal(value, netip.MustParseAddr(address).AsSlice()) {
				t.Errorf("%s: attribute %d is %x, %v", address, of, value, found)
			}
		}
	}
}

// TestAuthentic tells who has let a terminal in: a server, or the node, where none was to be asked or none answered.
func TestAuthentic(t *testing.T) {
	for _, one := range []struct {
		asked, local bool
		want         uint32
	}{{true, false, radius.AuthenticRADIUS}, {true, true, radius.AuthenticLocal}, {false, false, radius.AuthenticLocal}} {
		if got := authentic(toldOf{granted: one.asked}, &ggsn.Account{Local: one.local}); got != one.want {
			t.Errorf("%+v: %d", one, got)
		}
	}
}

// TestAllocates asks servers for what contexts of each type have, and tells nothing of a place that the SGSN
// has not told.
func TestAllocates(t *testing.T) {
	a := new(authorizer)
	for of, want := range map[gtp.PDPType]byte{gtp.PDPTypeIPv4: 1, gtp.PDPTypeIPv6: 2, gtp.PDPTypeIPv4v6: 3} {
		r := a.request(&ggsn.Ask{ContextInfo: ggsn.ContextInfo{Type: of, Account: new(ggsn.Account)}}, UserOfTerminal)
		if got, _ := r.Attributes.Find3GPP(gppAllocate); !bytes.Equal(got, []byte{want}) {
			t.Errorf("%v: %x", of, got)
		}
		for _, absent := range []byte{gppGGSNNetwork, gppSGSNNetwork, gppLocation, gppTimeZone} {
			if value, found := r.Attributes.Find3GPP(absent); found {
				t.Errorf("attribute %d is %x", absent, value)
			}
		}
	}
}

// TestTypeOfContext tells of each type of context by the number of 3GPP-PDP-Type, where IPv6 is 2.
func TestTypeOfContext(t *testing.T) {
	for of, want := range map[gtp.PDPType]byte{gtp.PDPTypeIPv4: 0, gtp.PDPTypeIPv6: 2, gtp.PDPTypeIPv4v6: 3} {
		var to radius.Attributes
		new(asker).terminal(&to, &ggsn.ContextInfo{Type: of, Account: new(ggsn.Account)})
		if got, _ := to.Find3GPP(gppPDPType); !bytes.Equal(got, []byte{0, 0, 0, want}) {
			t.Errorf("%v: %x, want %d", of, got, want)
		}
	}
}

// TestReleaseOfProfile names the release that a profile of each length is of, then has its octets.
func TestReleaseOfProfile(t *testing.T) {
	octets := []byte{2, 0x0b, 0x92, 0x1f, 0x71, 0x96, 0xfe, 0xfe, 0x74, 5, 0xfe, 0xfe, 0x11, 0xfa, 0xfa, 0x2a, 0x2b, 1, 2, 3, 4}
	for length, want := range map[int]string{
		4: "98-020B921F", 12: "99-020B921F7196FEFE7405FEFE", 13: "99-020B921F7196FEFE7405FEFE11", 15: "05-020B921F7196FEFE7405FEFE11FAFA",
		17: "05-020B921F7196FEFE7405FEFE11FAFA2A2B", 21: "05-020B921F7196FEFE7405FEFE11FAFA2A2B01020304",
	} {
		q, ok := gtp.ParseQoS(octets[:length])
		if got := qosText(q); !ok || got != want {
			t.Errorf("%d octets: %s, want %s", length, got, want)
		}
	}
}

// TestUserName calls a terminal by what it calls itself, or else by its MSISDN, or else by its IMSI; by one of the two
// in any case where that is wanted.
func TestUserName(t *testing.T) {
	imsi, _ := gtp.ParseIMSI("240010000000003")
	msisdn, _ := gtp.ParseMSISDN("15550100")
	for _, one := range []struct {
		user   string
		msisdn gtp.MSISDN
		by     UserName
		want   string
	}{
		{"nemo", msisdn, UserOfTerminal, "nemo"},
		{"", msisdn, UserOfTerminal, "15550100"},
		{"", gtp.MSISDN{}, UserOfTerminal, "240010000000003"},
		{"nemo", msisdn, UserOfMSISDN, "15550100"},
		{"nemo", gtp.MSISDN{}, UserOfMSISDN, "240010000000003"},
		{"nemo", msisdn, UserOfIMSI, "240010000000003"},
	} {
		x := ggsn.ContextInfo{IMSI: imsi, MSISDN: one.msisdn, Account: &ggsn.Account{Origin: ggsn.Origin{User: []byte(one.user)}}}
		if got := userName(&x, one.by); got != one.want {
			t.Errorf("%q by %v: %q, want %q", one.user, one.by, got, one.want)
		}
	}
}
