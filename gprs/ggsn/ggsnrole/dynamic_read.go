// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/radius"
)

// named are the contexts that a server names: those that all of it fits (RFC 5176 section 3). What is nil,
// or not valid, it does not name. The selection is what the engine finds them by, or among; it leaves no
// context out.
type named struct {
	ggsn.Selection
	some        bool // something names a session
	session     *string
	user        *string
	number      *string // Calling-Station-Id
	address     netip.Addr
	prefixes    []netip.Prefix // each of its terminal's link
	host        netip.Addr     // in one of these
	interfaceID []byte
}

// matches reports whether a context is named besides by its selection.
func (n *named) matches(x *ggsn.ContextInfo, node netip.Addr, by UserName) bool {
	known := *x
	if known.Account == nil {
		known.Account = new(ggsn.Account)
	}
	switch {
	case n.session != nil && !strings.EqualFold(*n.session, sessionID(node, x.ChargingID, x.Created)),
		n.user != nil && *n.user != userName(&known, by),
		n.number != nil && *n.number != x.MSISDN.String(),
		n.address.IsValid() && n.address != x.Address4,
		slices.ContainsFunc(n.prefixes, func(p netip.Prefix) bool { return !slices.Contains(onLink(x), p) }),
		n.host.IsValid() && !slices.ContainsFunc(onLink(x), func(p netip.Prefix) bool { return p.Contains(n.host) }),
		n.interfaceID != nil && !bytes.Equal(n.interfaceID, x.InterfaceID[:]):
		return false
	}
	return true
}

// onLink are the prefixes that the link of a context has or had.
func onLink(x *ggsn.ContextInfo) []netip.Prefix {
	return slices.Concat([]netip.Prefix{x.Prefix6}, x.Further6, x.Former6)
}

// read reads a request: the contexts that it names, and what is to become of them. The cause is why
// it cannot be followed.
func (d *dynamic) read(code radius.Code, asked *radius.Attributes) (who *named, change *ggsn.Amendment, cause radius.ErrorCause) {
	who, change = new(named), new(ggsn.Amendment)
	seen := map[radius.Type]bool{}
	for _, t := range asked.Types() {
		several := t == radius.ProxyState || t == radius.Class || t == radius.VendorSpecific || t == radius.FramedIPv6Prefix
		if seen[t] && !several {
			return nil, nil, radius.InvalidRequest
		}
		if !seen[t] {
			cause = d.readOne(code, asked, t, who, change)
		}
		if seen[t] = true; cause != 0 {
			return nil, nil, cause
		}
	}
	switch {
	case !who.some:
		return nil, nil, radius.MissingAttribute
	case code == radius.CoARequest && !changes(change):
		return nil, nil, radius.MissingAttribute
	}
	return who, change, 0
}

// changes reports whether there is something to change.
func changes(c *ggsn.Amendment) bool {
	return c.SessionLimit.Present || c.IdleLimit.Present || c.Interim.Present || c.QoS.Present || c.Class != nil
}

// readOne reads the attributes of a type.
func (d *dynamic) readOne(code radius.Code, asked *radius.Attributes, t radius.Type, who *named, change *ggsn.Amendment) radius.ErrorCause {
	value, _ := asked.Find(t)
	if len(value) == 0 { // no attribute is (RFC 2865 section 5), and as a name it would fit all that have none
		return radius.InvalidRequest
	}
	text := string(value)
	ok := true
	switch t {
	case radius.EventTimestamp, radius.MessageAuthenticator, radius.ProxyState: // of the packet
	case radius.NASIPAddress, radius.NASIPv6Address:
		if a, valid := asked.FindAddress(t); !valid || !slices.Contains(d.at, a) {
			return radius.NASMismatch
		}
	case radius.NASIdentifier:
		if text != d.name {
			return radius.NASMismatch
		}
	case radius.AcctSessionID:
		who.session, who.some = &text, true
		who.ChargingID = chargingIDOf(text)
	case radius.UserName:
		who.user, who.User, who.some = &text, text, true
	case radius.CallingStationID:
		who.number, who.Number, who.some = &text, text, true
	case radius.CalledStationID:
		who.APN = text
	case radius.FramedIPAddress:
		who.address, ok = asked.FindAddress(t)
		ok = ok && who.address.Is4()
		who.some = true
		if ok {
			who.Address = netip.PrefixFrom(who.address, 32)
		}
	case radius.FramedIPv6Prefix:
		for _, v := range asked.All(t) { // as many as accounts are told (RFC 5176 section 3.6)
			p, valid := radius.ParsePrefix(v)
			if ok = ok && valid; valid {
				who.prefixes, who.Address = append(who.prefixes, p), netip.PrefixFrom(p.Addr(), max(p.Bits(), 64))
			}
		}
		who.some = true
	case radius.FramedIPv6Address: // of a host in the terminal's prefix
		var a netip.Addr
		a, ok = asked.FindAddress(t)
		if ok = ok && a.Is6(); ok {
			who.host, who.Address = a, netip.PrefixFrom(a, 128)
		}
		who.some = true
	case radius.FramedInterfaceID:
		who.interfaceID, ok = value, len(value) == 8
	case radius.VendorSpecific:
		return readVendors(code, asked, who, change)
	default:
		return readChange(code, asked, t, change)
	}
	if !ok {
		return radius.InvalidRequest
	}
	return 0
}

// chargingIDOf is the Charging-ID in the name that [sessionID] makes; of another it is one that no such
// context has.
func chargingIDOf(session string) *uint32 {
	var id uint32
	if parts := strings.Split(session, "-"); len(parts) == 2 && len(parts[0]) > 8 {
		n, _ := strconv.ParseUint(parts[0][len(parts[0])-8:], 16, 32)
		id = uint32(n)
	}
	return &id
}

// readVendors reads what is 3GPP's; there may be nothing of other vendors.
func readVendors(code radius.Code, asked *radius.Attributes, who *named, change *ggsn.Amendment) (cause radius.ErrorCause) {
	seen := map[byte]bool{}
	known := asked.Each3GPP(func(t byte, value []byte) {
		if cause == 0 && seen[t] {
			cause = radius.InvalidRequest
		}
		if seen[t] = true; cause == 0 {
			cause = read3GPP(code, t, value, who, change)
		}
	})
	if !known {
		return radius.UnsupportedAttribute
	}
	return cause
}

// read3GPP reads one of them (TS 29.061 section 16.4.7.2).
func read3GPP(code radius.Code, t byte, value []byte, who *named, change *ggsn.Amendment) radius.ErrorCause {
	var err error
	switch {
	case t == gppIMSI:
		who.some = true
		who.IMSI, err = gtp.ParseIMSI(string(value))
	case t == gppNSAPI:
		var n uint64
		n, err = strconv.ParseUint(string(value), 16, 4)
		nsapi := uint8(n)
		who.NSAPI = &nsapi
	case t == gppTeardown && code == radius.DisconnectRequest:
		if len(value) != 1 || value[0]&1 == 0 { // all contexts with the address of one end together
			return radius.InvalidValue
		}
	case t == gppQoS && code == radius.CoARequest:
		q, ok := parseQoSText(string(value))
		if !ok {
			return radius.InvalidValue
		}
		change.QoS = gtp.Some(q)
	default:
		return radius.UnsupportedAttribute
	}
	if err != nil {
		return radius.InvalidRequest
	}
	return 0
}

// parseQoSText reads what [qosText] writes.
func parseQoSText(s string) (q gtp.QoS, ok bool) {
	_, digits, found := strings.Cut(s, "-")
	octets, err := hex.DecodeString(digits)
	if !found || err != nil || len(octets) > maxQoSText {
		return q, false
	}
	q, ok = gtp.ParseQoS(octets)
	return q, ok && strings.EqualFold(qosText(q), s)
}

// maxQoSText is how many octets a profile has at most: those of release 9, with the priority's.
const maxQoSText = 21

// readChange reads what is to change. A request to disconnect has a class for the last record at most (RFC
// 5176 section 3.6, note 4).
func readChange(code radius.Code, asked *radius.Attributes, t radius.Type, change *ggsn.Amendment) radius.ErrorCause {
	switch {
	case t == radius.Class:
		change.Class = classesOf(asked)
		return 0
	case code == radius.DisconnectRequest:
		return radius.UnsupportedAttribute
	case t == radius.SessionTimeout:
		return readSeconds(asked, t, time.Second, &change.SessionLimit)
	case t == radius.IdleTimeout:
		return readSeconds(asked, t, time.Second, &change.IdleLimit)
	case t == radius.AcctInterimInterval:
		return readSeconds(asked, t, minInterim, &change.Interim)
	case t == radius.ServiceType: // also Authorize Only (RFC 5176 section 3.2)
		return radius.UnsupportedService
	}
	return radius.UnsupportedAttribute
}

// readSeconds reads a time that is no shorter than some.
func readSeconds(asked *radius.Attributes, t radius.Type, least time.Duration, to *gtp.Optional[time.Duration]) radius.ErrorCause {
	d, ok := asked.FindSeconds(t)
	switch {
	case !ok:
		return radius.InvalidRequest
	case d < least:
		return radius.InvalidValue
	}
	*to = gtp.Some(d)
	return 0
}
