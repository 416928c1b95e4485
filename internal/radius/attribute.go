// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package radius

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2866"
	"layeh.com/radius/rfc2869"
	"layeh.com/radius/rfc3162"
	"layeh.com/radius/rfc3576"
	"layeh.com/radius/rfc4818"
	"layeh.com/radius/rfc6911"
)

// Type is the type of an attribute.
type Type = radius.Type

// Types of attributes.
const (
	UserName             = rfc2865.UserName_Type
	UserPassword         = rfc2865.UserPassword_Type
	CHAPPassword         = rfc2865.CHAPPassword_Type
	NASIPAddress         = rfc2865.NASIPAddress_Type
	ServiceType          = rfc2865.ServiceType_Type
	FramedProtocol       = rfc2865.FramedProtocol_Type
	FramedIPAddress      = rfc2865.FramedIPAddress_Type
	FramedRoute          = rfc2865.FramedRoute_Type
	FramedMTU            = rfc2865.FramedMTU_Type
	Class                = rfc2865.Class_Type
	VendorSpecific       = rfc2865.VendorSpecific_Type
	SessionTimeout       = rfc2865.SessionTimeout_Type
	IdleTimeout          = rfc2865.IdleTimeout_Type
	CalledStationID      = rfc2865.CalledStationID_Type
	CallingStationID     = rfc2865.CallingStationID_Type
	NASIdentifier        = rfc2865.NASIdentifier_Type
	ProxyState           = rfc2865.ProxyState_Type
	CHAPChallenge        = rfc2865.CHAPChallenge_Type
	NASPortType          = rfc2865.NASPortType_Type
	AcctStatusType       = rfc2866.AcctStatusType_Type
	AcctDelayTime        = rfc2866.AcctDelayTime_Type
	AcctInputOctets      = rfc2866.AcctInputOctets_Type
	AcctOutputOctets     = rfc2866.AcctOutputOctets_Type
	AcctSessionID        = rfc2866.AcctSessionID_Type
	AcctAuthentic        = rfc2866.AcctAuthentic_Type
	AcctSessionTime      = rfc2866.AcctSessionTime_Type
	AcctInputPackets     = rfc2866.AcctInputPackets_Type
	AcctOutputPackets    = rfc2866.AcctOutputPackets_Type
	AcctTerminateCause   = rfc2866.AcctTerminateCause_Type
	AcctInputGigawords   = rfc2869.AcctInputGigawords_Type
	AcctOutputGigawords  = rfc2869.AcctOutputGigawords_Type
	EventTimestamp       = rfc2869.EventTimestamp_Type
	MessageAuthenticator = rfc2869.MessageAuthenticator_Type
	FramedPool           = rfc2869.FramedPool_Type
	AcctInterimInterval  = rfc2869.AcctInterimInterval_Type
	NASIPv6Address       = rfc3162.NASIPv6Address_Type
	FramedInterfaceID    = rfc3162.FramedInterfaceID_Type
	FramedIPv6Prefix     = rfc3162.FramedIPv6Prefix_Type
	FramedIPv6Pool       = rfc3162.FramedIPv6Pool_Type
	FramedIPv6Route      = rfc3162.FramedIPv6Route_Type
	DelegatedIPv6Prefix  = rfc4818.DelegatedIPv6Prefix_Type
	FramedIPv6Address    = rfc6911.FramedIPv6Address_Type
	DNSServerIPv6Address = rfc6911.DNSServerIPv6Address_Type
	DelegatedIPv6Pool    = rfc6911.DelegatedIPv6PrefixPool_Type
	ErrorCauseType       = rfc3576.ErrorCause_Type
)

// Code is that of a packet.
type Code = radius.Code

// Codes of packets.
const (
	AccessRequest      = radius.CodeAccessRequest
	AccessAccept       = radius.CodeAccessAccept
	AccessReject       = radius.CodeAccessReject
	AccessChallenge    = radius.CodeAccessChallenge
	AccountingRequest  = radius.CodeAccountingRequest
	AccountingResponse = radius.CodeAccountingResponse
	DisconnectRequest  = radius.CodeDisconnectRequest
	DisconnectACK      = radius.CodeDisconnectACK
	DisconnectNAK      = radius.CodeDisconnectNAK
	CoARequest         = radius.CodeCoARequest
	CoAACK             = radius.CodeCoAACK
	CoANAK             = radius.CodeCoANAK
)

// Values of attributes.
const (
	ServiceFramed             = 2  // Service-Type
	FramedGPRS                = 7  // Framed-Protocol: GPRS PDP Context (TS 29.061 section 16.4)
	PortWirelessOther         = 18 // NAS-Port-Type
	AuthenticRADIUS           = 1  // Acct-Authentic
	AuthenticLocal            = 2
	AcctStart                 = 1 // Acct-Status-Type
	AcctStop                  = 2
	AcctInterim               = 3
	AcctOn                    = 7
	AcctOff                   = 8
	UserRequest               = 1 // Acct-Terminate-Cause (RFC 2866 section 5.10)
	LostCarrier               = 2
	LostService               = 3
	IdleEnd                   = 4
	SessionEnd                = 5
	AdminReset                = 6
	AdminReboot               = 7
	NASError                  = 9
	NASReboot                 = 11
	ServiceUnavailable        = 15
	Vendor3GPP         uint32 = 10415
)

// maxValue is how long the value of an attribute can be, and usualNumber how many attributes there is room for at once.
const (
	maxValue    = 253
	usualNumber = 32
)

// Attributes are those of a packet, in their order. The zero value has none.
type Attributes struct{ list radius.Attributes }

// Append writes them as they are in a packet.
func (a *Attributes) Append(b []byte) []byte {
	b = slices.Grow(b, a.length())
	for _, one := range a.list {
		b = append(append(b, byte(one.Type), byte(len(one.Attribute)+2)), one.Attribute...)
	}
	return b
}

// length is how many octets [Attributes.Append] writes.
func (a *Attributes) length() (n int) {
	for _, one := range a.list {
		n += 2 + len(one.Attribute)
	}
	return n
}

// ParseAttributes reads what [Attributes.Append] has written.
func ParseAttributes(b []byte) (a Attributes, err error) {
	a.list, err = radius.ParseAttributes(b)
	return a, err
}

// Octets adds an attribute, of whose value what is beyond 253 octets is left out.
func (a *Attributes) Octets(t Type, value []byte) {
	if a.list == nil {
		a.list = make(radius.Attributes, 0, usualNumber)
	}
	a.list.Add(t, radius.Attribute(value[:min(len(value), maxValue)]))
}

// Text adds one of text. An empty one is none (RFC 2865 section 5).
func (a *Attributes) Text(t Type, s string) {
	if s != "" {
		a.Octets(t, []byte(s))
	}
}

// Integer adds one of 32 bits.
func (a *Attributes) Integer(t Type, n uint32) { a.Octets(t, binary.BigEndian.AppendUint32(nil, n)) }

// Seconds adds a time that has passed.
func (a *Attributes) Seconds(t Type, d time.Duration) {
	a.Integer(t, uint32(max(0, min(d/time.Second, 1<<32-1))))
}

// Counter adds the low and the high half of a counter; without a high half, that is left out
// (RFC 2869 sections 5.1 and 5.2).
func (a *Attributes) Counter(low, high Type, n uint64) {
	a.Integer(low, uint32(n))
	if n>>32 != 0 {
		a.Integer(high, uint32(n>>32))
	}
}

// Address adds an address of a host by the type for its family; one that is not valid is none.
func (a *Attributes) Address(four, six Type, addr netip.Addr) {
	switch {
	case addr.Is4():
		a.Octets(four, addr.AsSlice())
	case addr.Is6():
		a.Octets(six, addr.AsSlice())
	}
}

// Prefix adds an IPv6 prefix, without octets beyond its length (RFC 3162 section 2.3).
func (a *Attributes) Prefix(t Type, p netip.Prefix) {
	b := p.Masked().Addr().As16()
	a.Octets(t, append([]byte{0, byte(p.Bits())}, b[:(p.Bits()+7)/8]...))
}

// GPP adds an attribute of 3GPP's (TS 29.061 section 16.4.7).
func (a *Attributes) GPP(t byte, value []byte) {
	const header = 4 + 2
	value = value[:min(len(value), maxValue-header)]
	b := binary.BigEndian.AppendUint32(make([]byte, 0, header+len(value)), Vendor3GPP)
	a.Octets(VendorSpecific, append(append(b, t, byte(len(value)+2)), value...))
}

// GPPText adds one of text; an empty one is none.
func (a *Attributes) GPPText(t byte, s string) {
	if s != "" {
		a.GPP(t, []byte(s))
	}
}

// GPPInteger adds one of 32 bits.
func (a *Attributes) GPPInteger(t byte, n uint32) { a.GPP(t, binary.BigEndian.AppendUint32(nil, n)) }

// Find3GPP returns the value of an attribute of 3GPP's.
func (a *Attributes) Find3GPP(t byte) ([]byte, bool) {
	for _, one := range a.list {
		vendor, rest, err := radius.VendorSpecific(one.Attribute)
		if one.Type != VendorSpecific || err != nil || vendor != Vendor3GPP {
			continue
		}
		for b := []byte(rest); len(b) >= 2 && int(b[1]) >= 2 && int(b[1]) <= len(b); b = b[b[1]:] {
			if b[0] == t {
				return b[2:b[1]:b[1]], true
			}
		}
	}
	return nil, false
}

// Each3GPP calls f for all attributes of 3GPP's, and reports whether there are none of other vendors, nor
// any that cannot be read.
func (a *Attributes) Each3GPP(f func(t byte, value []byte)) bool {
	for _, value := range a.All(VendorSpecific) {
		vendor, rest, err := radius.VendorSpecific(value)
		if err != nil || vendor != Vendor3GPP {
			return false
		}
		b := []byte(rest)
		for ; len(b) >= 2 && int(b[1]) >= 2 && int(b[1]) <= len(b); b = b[b[1]:] {
			f(b[0], b[2:b[1]:b[1]])
		}
		if len(b) > 0 {
			return false
		}
	}
	return true
}

// Types returns the types that are there, in their order.
func (a *Attributes) Types() (list []Type) {
	for _, one := range a.list {
		list = append(list, one.Type)
	}
	return list
}

// Find returns the value of the first attribute of a type.
func (a *Attributes) Find(t Type) ([]byte, bool) {
	v, ok := a.list.Lookup(t)
	return v, ok
}

// All returns the values of all attributes of a type.
func (a *Attributes) All(t Type) (list [][]byte) {
	for _, one := range a.list {
		if one.Type == t {
			list = append(list, one.Attribute)
		}
	}
	return list
}

// FindText returns the first one of a type as text; empty: there is none.
func (a *Attributes) FindText(t Type) string {
	v, _ := a.Find(t)
	return string(v)
}

// FindInteger returns the first one of a type if it has 32 bits.
func (a *Attributes) FindInteger(t Type) (uint32, bool) {
	v, ok := a.Find(t)
	if !ok || len(v) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(v), true
}

// FindSeconds returns the first one of a type as a time.
func (a *Attributes) FindSeconds(t Type) (time.Duration, bool) {
	n, ok := a.FindInteger(t)
	return time.Duration(n) * time.Second, ok
}

// FindAddress returns the first one of a type if it is an address of IPv4, or IPv6.
func (a *Attributes) FindAddress(t Type) (netip.Addr, bool) {
	v, _ := a.Find(t)
	return netip.AddrFromSlice(v)
}

// FindPrefix returns the first one of a type if it is an IPv6 prefix.
func (a *Attributes) FindPrefix(t Type) (p netip.Prefix, ok bool) {
	v, _ := a.Find(t)
	return ParsePrefix(v)
}

// ParsePrefix reads the value of an attribute that is an IPv6 prefix, beyond whose length all bits are zero
// (RFC 3162 section 2.3).
func ParsePrefix(v []byte) (p netip.Prefix, ok bool) {
	if len(v) < 2 || len(v) > 18 || v[1] > 128 {
		return p, false
	}
	var b [16]byte
	copy(b[:], v[2:])
	p = netip.PrefixFrom(netip.AddrFrom16(b), int(v[1]))
	return p, p == p.Masked()
}
