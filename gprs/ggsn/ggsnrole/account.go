// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/radius"
)

var (
	errNoRecord   = errors.New("this is no accounting record")
	errLongRecord = errors.New("no packet has room for this accounting record")
)

// statusOf is the Acct-Status-Type of each kind of event.
var statusOf = [...]uint32{
	ggsn.ContextCreated: radius.AcctStart,
	ggsn.ContextUpdated: radius.AcctInterim,
	ggsn.ContextCounted: radius.AcctInterim,
	ggsn.ContextDeleted: radius.AcctStop,
}

// causeOf is the Acct-Terminate-Cause of each end (RFC 2866 section 5.10).
var causeOf = [ggsn.NumEnds]uint32{
	ggsn.EndPeer:         radius.UserRequest,
	ggsn.EndRecreated:    radius.LostCarrier, // the terminal had lost it
	ggsn.EndPeerRestart:  radius.LostService,
	ggsn.EndPath:         radius.LostService,
	ggsn.EndErrorReport:  radius.NASError, // the two ends did not agree any more
	ggsn.EndSessionLimit: radius.SessionEnd,
	ggsn.EndIdle:         radius.IdleEnd,
	ggsn.EndAdmin:        radius.AdminReset,
	ggsn.EndPeerUnknown:  radius.NASError,
	ggsn.EndSettings:     radius.ServiceUnavailable,
	ggsn.EndStopped:      radius.AdminReboot,
	ggsn.EndRestart:      radius.NASReboot,
}

// attributes are those of the Accounting-Request for an event of a context (TS 29.061 section
// 16.4.3). The time since then, Acct-Delay-Time, is the client's.
func (a *asker) attributes(e *ggsn.Event) (to radius.Attributes) {
	x, of := &e.Context, a.toldOf(e.Context.APN)
	to.Integer(radius.AcctStatusType, statusOf[e.Kind])
	to.Text(radius.AcctSessionID, sessionID(a.at[0], x.ChargingID, x.Created))
	to.Integer(radius.EventTimestamp, uint32(e.Time.Unix()))
	to.Text(radius.UserName, userName(x, of.user))
	a.terminal(&to, x)
	to.GPPInteger(gppChargingID, x.ChargingID)
	to.Integer(radius.AcctAuthentic, authentic(of, x.Account))
	for _, class := range x.Account.Class {
		to.Octets(radius.Class, class)
	}
	addresses(&to, x)
	to.Text(radius.FramedIPv6Pool, x.Account.Pool6)
	to.Text(radius.DelegatedIPv6Pool, x.Account.PoolDelegated)
	filters(&to, x.Filters)
	if of.marked {
		to.GPP(gppDSCP, []byte{x.DSCP})
	}
	if len(x.Account.CAMEL) > 0 {
		to.GPP(gppCAMEL, x.Account.CAMEL)
	}
	if e.Kind == ggsn.ContextCreated {
		return to
	}
	to.Seconds(radius.AcctSessionTime, e.Age)
	to.Counter(radius.AcctInputOctets, radius.AcctInputGigawords, x.Up.Octets)
	to.Counter(radius.AcctOutputOctets, radius.AcctOutputGigawords, x.Down.Octets)
	to.Integer(radius.AcctInputPackets, uint32(x.Up.Packets))
	to.Integer(radius.AcctOutputPackets, uint32(x.Down.Packets))
	if e.Kind == ggsn.ContextDeleted {
		to.Integer(radius.AcctTerminateCause, causeOf[e.End])
		if e.Last {
			to.GPP(gppStop, []byte{0xff})
		}
	}
	return to
}

// addresses adds those of a terminal, the prefixes that are delegated to it, and the routes to what is behind
// it: by way of its own address, which zero stands for (RFC 2865 section 5.22).
func addresses(to *radius.Attributes, x *ggsn.ContextInfo) {
	if x.Address4.IsValid() {
		to.Octets(radius.FramedIPAddress, x.Address4.AsSlice())
	}
	if x.Prefix6.IsValid() {
		for _, p := range onLink(x) { // there may be several (RFC 3162 section 3)
			to.Prefix(radius.FramedIPv6Prefix, p)
		}
		to.Octets(radius.FramedInterfaceID, x.InterfaceID[:])
	}
	for _, p := range x.Delegated6 { // likewise (RFC 4818 section 3)
		to.Prefix(radius.DelegatedIPv6Prefix, p)
	}
	for _, p := range x.Routes {
		if p.Addr().Is4() {
			to.Text(radius.FramedRoute, p.String()+" 0.0.0.0 1")
		} else {
			to.Text(radius.FramedIPv6Route, p.String()+" :: 1")
		}
	}
}

// authentic is who let a terminal in: a server, or this node.
func authentic(of toldOf, account *ggsn.Account) uint32 {
	if of.granted && !account.Local {
		return radius.AuthenticRADIUS
	}
	return radius.AuthenticLocal
}

// ofNode are the attributes of an Accounting-Request of the whole node.
func (a *asker) ofNode(status uint32, now time.Time) (to radius.Attributes) {
	to.Integer(radius.AcctStatusType, status)
	to.Text(radius.AcctSessionID, sessionID(a.at[0], 0, now))
	to.Integer(radius.EventTimestamp, uint32(now.Unix()))
	a.self(&to)
	return to
}

// sessionID names a context: address of the node and Charging-ID, as its charging records do (TS
// 29.061 section 16.4.3), and when it began, for after a crash a Charging-ID may come again.
func sessionID(node netip.Addr, chargingID uint32, began time.Time) string {
	return fmt.Sprintf("%X%08X-%08X", node.AsSlice(), chargingID, uint32(began.Unix()))
}
