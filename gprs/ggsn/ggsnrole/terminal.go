// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/radius"
)

// Attributes of 3GPP (TS 29.061 section 16.4.7.2).
const (
	gppIMSI, gppChargingID, gppPDPType, gppQoS    = 1, 2, 3, 5
	gppSGSN4, gppGGSN4, gppIMSIOperator, gppNSAPI = 6, 7, 8, 10
	gppStop, gppSelection                         = 11, 12
	gppCharging, gppSGSN6, gppGGSN6, gppIMEISV    = 13, 15, 16, 20
	gppTeardown, gppRAT                           = 19, 21
	gppGGSNNetwork, gppSGSNNetwork                = 9, 18
	gppDNS6, gppLocation, gppTimeZone, gppCAMEL   = 17, 22, 23, 24
	gppFilter, gppDSCP, gppAllocate               = 25, 26, 27
)

// self adds who this node is.
func (a *asker) self(to *radius.Attributes) {
	to.Text(radius.NASIdentifier, a.name)
	for _, own := range a.at {
		to.Address(radius.NASIPAddress, radius.NASIPv6Address, own)
	}
}

// terminal adds what servers are told alike where they are asked for a terminal and where they are
// told of its context (TS 29.061 sections 16.4.1 and 16.4.3).
func (a *asker) terminal(to *radius.Attributes, x *ggsn.ContextInfo) {
	a.self(to)
	to.Integer(radius.NASPortType, radius.PortWirelessOther)
	to.Integer(radius.ServiceType, radius.ServiceFramed)
	to.Integer(radius.FramedProtocol, radius.FramedGPRS)
	to.Text(radius.CalledStationID, x.APN)
	to.Text(radius.CallingStationID, x.MSISDN.String())
	if imsi := imsiDigits(x.IMSI); imsi != "" {
		to.GPPText(gppIMSI, imsi)
		to.GPPText(gppIMSIOperator, imsi[:min(len(imsi), 3+a.mnc)])
	}
	to.GPPInteger(gppPDPType, pdpType(x.Type))
	to.GPPText(gppQoS, qosText(x.QoS))
	station(to, gppSGSN4, gppSGSN6, x.PeerControl)
	for _, own := range a.at {
		station(to, gppGGSN4, gppGGSN6, own)
	}
	to.GPPText(gppGGSNNetwork, a.network)
	to.GPPText(gppNSAPI, strings.ToUpper(hex.EncodeToString([]byte{x.NSAPI})[1:]))
	if x.Account.Selection.Present {
		to.GPPText(gppSelection, string('0'+rune(x.Account.Selection.Value)))
	}
	if x.Account.Charging.Present {
		to.GPPText(gppCharging, hex.EncodeToString(binary.BigEndian.AppendUint16(nil, x.Account.Charging.Value)))
	}
	if x.Account.IMEI.Present {
		to.GPPText(gppIMEISV, x.Account.IMEI.Value.String())
	}
	if x.Account.RAT.Present {
		to.GPP(gppRAT, []byte{byte(x.Account.RAT.Value)})
	}
	place(to, x.Account)
}

// place adds where a terminal is, as its SGSN says it. GTPv0 says nothing of that.
func place(to *radius.Attributes, of *ggsn.Account) {
	if of.Network.Present {
		to.GPPText(gppSGSNNetwork, strings.ReplaceAll(of.Network.Value.String(), "-", ""))
	}
	if of.Location.Present {
		to.GPP(gppLocation, of.Location.Value.Append(nil))
	}
	if of.TimeZone.Present {
		to.GPP(gppTimeZone, []byte{of.TimeZone.Value.Octet, of.TimeZone.Value.Summer})
	}
}

// maxFilters is how many octets of filters are told: a packet has room for that besides the rest.
const maxFilters = 768

// filters adds those of the traffic flow template of a context, each as identifier, precedence, length, direction
// (1 from the terminal, 0 to it) and components. What is beyond the bound is left out.
func filters(to *radius.Attributes, list []gtp.PacketFilter) {
	left := maxFilters
	for i := range list {
		f := &list[i]
		direction := byte(0)
		if f.Direction == gtp.FilterUp {
			direction = 1
		}
		b := f.AppendContents(append(make([]byte, 0, 64), f.ID, f.Precedence, 0, direction))
		b[2] = byte(len(b) - 4)
		if left -= len(b); left >= 0 {
			to.GPP(gppFilter, b)
		}
	}
}

// allocates is 3GPP-Allocate-IP-Type: what the server may give to a context of a type.
func allocates(t gtp.PDPType) byte {
	switch t {
	case gtp.PDPTypeIPv6:
		return 2
	case gtp.PDPTypeIPv4v6:
		return 3
	}
	return 1
}

// pdpType is the value of 3GPP-PDP-Type.
func pdpType(t gtp.PDPType) uint32 {
	switch t {
	case gtp.PDPTypeIPv6:
		return 2
	case gtp.PDPTypeIPv4v6:
		return 3
	}
	return 0
}

// userName is what a terminal is called: by itself, or else by its numbers, which its SGSN stands for.
func userName(x *ggsn.ContextInfo, by UserName) string {
	user := string(x.Account.User)
	if by == UserOfMSISDN || user == "" && x.MSISDN.String() != "" {
		user = x.MSISDN.String()
	}
	if by == UserOfIMSI || user == "" {
		user = imsiDigits(x.IMSI)
	}
	return user
}

// imsiDigits are those of an IMSI; empty: there is none.
func imsiDigits(m gtp.IMSI) string {
	if m[0] == 0xff {
		return ""
	}
	return m.String()
}

// station adds the address of a node by the type for its family.
func station(to *radius.Attributes, four, six byte, a netip.Addr) {
	switch {
	case a.Is4():
		to.GPP(four, a.AsSlice())
	case a.Is6():
		to.GPP(six, a.AsSlice())
	}
}

// qosText is a profile as 3GPP-GPRS-Negotiated-QoS-profile has it: the release that its length is of,
// and the octets in hexadecimal digits.
func qosText(q gtp.QoS) string {
	release := "98-"
	switch n := q.Len(); {
	case n > 13:
		release = "05-"
	case n > 4:
		release = "99-"
	}
	return release + strings.ToUpper(hex.EncodeToString(q.Octets()))
}
