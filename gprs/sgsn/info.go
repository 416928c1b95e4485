// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// Info is a context as it is at one moment.
type Info struct {
	Key     gtp.TID
	IMSI    gtp.IMSI
	Link    int
	State   State
	Version gtp.Version
	APN     string
	// Linked is the NSAPI of the primary context, 0: this is one. Filters are those of a
	// secondary one, for both directions.
	Linked  uint8
	Filters []gtp.PacketFilter
	// Type is what the GGSN has given, which may be less than was asked for.
	Type gtp.PDPType
	// IPv4 and LinkLocal are not valid where there is none; IPv6 is empty before a router has
	// advertised.
	IPv4, LinkLocal netip.Addr
	IPv6            []Address6
	// Delegated are prefixes that the terminal was delegated for networks behind it.
	Delegated  []Delegated
	Router     netip.Addr
	DNS, PCSCF []netip.Addr
	// NAT64 are the prefixes of those on the way that routers have named (RFC 8781).
	NAT64   []netip.Prefix
	Domains []string // the search list
	// MTU4 and MTU6 are 0 where the network has not told any.
	MTU4, MTU6 int
	// Auth is what was said to user and password, and AuthMessage with what words.
	Auth        AuthResult
	AuthMessage string
	// Local is our address, Control and User the GGSN's.
	Local, Control, User netip.Addr
	// TEIDs, in version 0 flow labels: ours and the GGSN's.
	TEIDControl, TEIDData, RemoteControl, RemoteData uint32
	ChargingID                                       uint32
	QoS                                              gtp.QoS
	Began                                            time.Time
	Traffic                                          Traffic
}

// Context returns a context.
func (e *Engine) Context(key gtp.TID) (Info, bool) {
	c := e.contexts[key]
	if c == nil {
		return Info{}, false
	}
	s := c.session
	i := Info{
		Key: key, IMSI: s.wanted.IMSI, Link: s.wanted.Link, State: c.state, Version: s.version(), APN: s.wanted.APN.String(),
		Type: s.kind, IPv4: s.four, LinkLocal: s.six.linkLocal, IPv6: slices.Clone(s.six.prefixes), Router: s.six.router,
		DNS: slices.Clone(s.given.dns), PCSCF: slices.Clone(s.given.pcscf), MTU4: s.given.mtu, MTU6: s.six.mtu,
		Auth: s.given.proof.result, AuthMessage: s.given.proof.message,
		Local: e.set.Addresses[c.local], Control: s.path.key.peer, User: c.remoteUser.Addr(),
		TEIDControl: s.control, TEIDData: c.data, RemoteControl: s.remoteControl, RemoteData: c.remoteData,
		ChargingID: c.charging, QoS: c.qos, Began: c.began, Traffic: c.counts,
	}
	if c.linked {
		i.Linked = s.wanted.NSAPI
		t, _, _ := gtp.ParseTFT(c.tft)
		i.Filters = t.Filters
	}
	for _, n := range s.six.nat64 {
		if !n.until.IsZero() {
			i.NAT64 = append(i.NAT64, n.prefix)
		}
	}
	i.Delegated = slices.Clone(s.six.leases())
	i.DNS = append(i.DNS, s.six.resolvers(i.DNS)...)
	i.Domains = s.six.searchList()
	return i, true
}

// First returns which context of an address has the events of all of them: the primary one, as long as it is there.
func (e *Engine) First(key gtp.TID) gtp.TID {
	if c := e.contexts[key]; c != nil {
		return c.session.contexts[0].key
	}
	return key
}

// Keys returns those of all contexts, in order.
func (e *Engine) Keys() []gtp.TID {
	keys := make([]gtp.TID, 0, len(e.contexts))
	for key := range e.contexts {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b gtp.TID) int { return slices.Compare(a[:], b[:]) })
	return keys
}
