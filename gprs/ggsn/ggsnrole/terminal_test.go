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
