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

// TestNumbersOf3GPP has the attributes of 3GPP by the numbers of TS 29.061 section 16.4.7.2, as FreeRADIUS's dictionary has
// them.
func TestNumbersOf3GPP(t *testing.T) {
	for i, got := range []byte{
		gppIMSI, gppChargingID, gppPDPType, gppQoS, gppSGSN4, gppGGSN4, gppIMSIOperator, gppGGSNNetwork, gppNSAPI, gppStop, gppSelection, gppCharging,
		gppSGSN6, gppGGSN6, gppDNS6, gppSGSNNetwork, gppTeardown, gppIMEISV, gppRAT, gppLocation, gppTimeZone, gppCAMEL, gppFilter, gppDSCP, gppAllocate,
	} {
		if want := []byte{1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27}[i]; got != want {
			t.Errorf("the attribute at %d has the number %d, want %d", i, got, want)
		}
	}
}

// TestLongPassword asks with as much of a password as a request can have, and by CHAP with identifier and response alike
// (RFC 2865 sections 5.2 and 5.3).
func TestLongPassword(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 255)
	for name, one := range map[string]struct {
		proof    ggsn.Credentials
		password int
		chap     []byte
	}{
		"the longest of PAP": {ggsn.Credentials{Password: long}, 128, nil},
		"one that fits":      {ggsn.Credentials{Password: long[:128]}, 128, nil},
		"an empty one":       {ggsn.Credentials{Password: []byte{}}, 0, nil},
		"CHAP":               {ggsn.Credentials{Identifier: 7, Response: []byte("response"), Challenge: []byte("challenge")}, 0, []byte("\x07response")},
	} {
		r := &radius.Request{}
		identify(r, &ggsn.Ask{ContextInfo: ggsn.ContextInfo{Account: &ggsn.Account{Origin: ggsn.Origin{User: []byte("nemo")}}}, Credentials: one.proof}, UserOfTerminal)
		chap, _ := r.Attributes.Find(radius.CHAPPassword)
		if len(r.Password) != one.password || (r.Password == nil) != (one.chap != nil) || !bytes.Equal(chap, one.chap) {
			t.Errorf("%s: %d octets, %x", name, len(r.Password), chap)
		}
	}
}

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
