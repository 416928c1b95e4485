// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// Ref names a context as long as there is one: its record may become another's, its Charging-ID not.
type Ref struct{ Record, ChargingID uint32 }

// ContextInfo is one PDP context for people and accounts.
type ContextInfo struct {
	Record  uint32 // with ChargingID its [Ref]
	Version gtp.Version
	IMSI    gtp.IMSI // all ones if the terminal has none, or its TID is none of an IMSI
	TID     gtp.TID
	MSISDN  gtp.MSISDN
	NSAPI   uint8
	// Secondary contexts have a traffic flow template; Primary is the NSAPI of the context
	// that their session began with.
	Secondary bool
	Primary   uint8
	APN       string
	VRF       uint8
	Type      gtp.PDPType
	// Address4 and Prefix6 are not valid where the context has none. Prefix6 is a /64, the first of its link.
	Address4    netip.Addr
	Prefix6     netip.Prefix
	InterfaceID [8]byte
	// Further6 are the others of its link, each a /64: those that follow the first, or that it was granted.
	Further6 []netip.Prefix
	// Static are those of its addresses that are of no pool which goes round.
	Static Types
	// Former6 are /64 that its link had before, and that it has until their time is over.
	Former6 []netip.Prefix
	// Delegated6 are prefixes that clients behind the terminal have by DHCPv6.
	Delegated6 []netip.Prefix
	// Routes lead to what is behind it, beside that.
	Routes []netip.Prefix

	TEIDControl, TEIDData         uint32 // ours; of version 0 flow labels
	PeerControl, PeerUser         netip.Addr
	PeerTEIDControl, PeerTEIDData uint32
	ChargingID                    uint32
	QoS                           gtp.QoS
	Limit, AMBR                   Rates // that are enforced, in kbit/s: of the context, and of its terminal here; 0: none
	DSCP                          uint8
	Filters                       []gtp.PacketFilter // the lowest precedence first
	Up, Down                      Traffic
	OverUp, OverDown              uint64    // packets above the rate
	Created, LastSeen             time.Time // LastSeen: the last packet of the terminal, or the creation
	Account                       *Account  // of its session; nil: there is none
}

// Selection chooses among contexts; what is not set matches all.
type Selection struct {
	IMSI    gtp.IMSI // zero: any
	NSAPI   *uint8
	APN     string
	VRF     *uint8
	Address netip.Prefix // of the terminal
	Peer    netip.Addr
	TEID    uint32 // ours, of the user plane
	// ChargingID is that of the context.
	ChargingID *uint32
	// Number has the digits of the MSISDN. User is what the terminal is called: by itself, or by its
	// MSISDN or IMSI.
	Number, User string
}

// PeerInfo is one node at the other end.
type PeerInfo struct {
	Address  netip.Addr
	Restart  uint8 // its counter, if Known
	Known    bool
	Down     bool
	Since    time.Time // when that changed last
	Contexts int       // whose user plane it has
	Opened   int       // that count as its: see [Limits.ContextsPerPeer]
}

// Contexts calls f for the contexts that match, until it returns false. It looks at n
// records from the one given and returns where to go on, 0 behind the last: a long list is
// had in parts, between which packets pass. What is named directly is looked up.
func (e *Engine) Contexts(sel Selection, from uint32, n int, f func(ContextInfo) bool) (next uint32) {
	for h := range e.candidates(&sel, handle(max(from, 1))) {
		if n == 0 {
			return uint32(h)
		}
		n--
		x := e.contexts.at(h)
		if x.session == 0 || !e.matches(&sel, x) {
			continue
		}
		if info := e.describe(h); !f(info) {
			n = 0
		}
	}
	return 0
}

// each calls f for the contexts that match. It may end none of them.
func (e *Engine) each(sel Selection, f func(handle, *pdpContext)) {
	for h := range e.candidates(&sel, 1) {
		if x := e.contexts.at(h); x.session != 0 && e.matches(&sel, x) {
			f(h, x)
		}
	}
}

func (e *Engine) matches(sel *Selection, x *pdpContext) bool {
	s := e.sessions.at(x.session)
	switch {
	case sel.IMSI != gtp.IMSI{} && imsiOf(s) != sel.IMSI,
		sel.NSAPI != nil && *sel.NSAPI != x.nsapi,
		sel.VRF != nil && *sel.VRF != e.accessPoint(s).VRF,
		sel.APN != "" && e.accessPoint(s).key() != nameKey(sel.APN),
		sel.Peer.IsValid() && e.peers.at(s.peer).addr != sel.Peer,
		sel.TEID != 0 && x.teid != sel.TEID,
		sel.ChargingID != nil && x.chargingID != *sel.ChargingID,
		sel.Number != "" && !s.msisdn.Is(sel.Number),
		sel.User != "" && !e.isCalled(x.session, s, sel.User):
		return false
	}
	return !sel.Address.IsValid() ||
		slices.ContainsFunc(e.routes[x.session], func(r Route) bool { return sel.Address.Overlaps(r.Prefix) }) ||
		slices.ContainsFunc(e.further6(s), sel.Address.Overlaps) || slices.ContainsFunc(e.former6(s), sel.Address.Overlaps) ||
		s.has.has(TypeIPv4) && sel.Address.Contains(addr4(s.address)) ||
		s.has.has(TypeIPv6) && sel.Address.Overlaps(e.accessPoint(s).lease6(s))
}

// isCalled reports whether the terminal of a session has a name.
func (e *Engine) isCalled(h handle, s *session, name string) bool {
	if s.msisdn.Is(name) || imsiOf(s).Is(name) {
		return true
	}
	if s.user != e.userOf([]byte(name)) {
		return false
	}
	of := e.accountOf(h)
	return of != nil && string(of.User) == name
}

// noIMSI is that of terminals without one.
var noIMSI = gtp.IMSI{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// imsiOf is the IMSI of a session; [noIMSI] if it has none.
func imsiOf(s *session) gtp.IMSI {
	m, ok := s.tid.IMSI()
	if !ok || s.marked(markIMEI) {
		return noIMSI
	}
	return m
}

func (e *Engine) describe(h handle) ContextInfo {
	x := e.contexts.at(h)
	e.collect(h, x)
	s := e.sessions.at(x.session)
	info := e.describeSession(s)
	info.Record = uint32(h)
	info.TID, info.NSAPI, info.Secondary = tidOf(s, x.nsapi), x.nsapi, x.nsapi != info.Primary
	info.TEIDData, info.PeerTEIDData, info.PeerUser = x.teid, x.peerTEID, e.peers.at(x.user).addr
	info.ChargingID, info.QoS, info.Up, info.Down = x.chargingID, x.qos, x.up.Traffic, x.down.Traffic
	info.Limit, info.AMBR, info.DSCP = Rates{x.up.rate(), x.down.rate()}, e.ambrOf(s), x.mark
	info.Filters = e.filters[h]
	info.OverUp, info.OverDown = x.up.over, x.down.over
	info.Created, info.LastSeen = e.born.Add(x.createdAt), e.epoch.Add(seconds(x.lastSeen))
	info.Account, info.Routes = e.accountOf(x.session), e.routesTo(x.session)
	if s.has.has(TypeIPv4) {
		info.Address4 = addr4(s.address)
		if s.marked(markStatic4) {
			info.Static |= TypeIPv4
		}
	}
	if s.has.has(TypeIPv6) {
		info.Prefix6 = s.prefixOf()
		if s.marked(markStatic6) {
			info.Static |= TypeIPv6
		}
		info.Further6 = e.further6(s)
		info.Former6, info.Delegated6 = e.former6(s), e.delegated(x.session)
		binary.BigEndian.PutUint64(info.InterfaceID[:], s.interfaceID)
	}
	return info
}

// describeSession is what contexts of a session have in common before they have addresses.
func (e *Engine) describeSession(s *session) ContextInfo {
	a := e.accessPoint(s)
	return ContextInfo{
		Version: s.version, IMSI: imsiOf(s), MSISDN: s.msisdn, Primary: s.tid.NSAPI(), APN: a.Name, VRF: a.VRF, Type: s.pdpType(),
		TEIDControl: s.teid, PeerTEIDControl: s.peerTEID, PeerControl: e.peers.at(s.peer).addr,
	}
}

// tell appends an event of a context.
func (e *Engine) tell(c call, kind EventKind, h handle, why End) {
	x := e.contexts.at(h)
	s := e.sessions.at(x.session)
	c.event(Event{Kind: kind, Peer: e.peers.at(s.peer).addr, Context: e.describe(h), Age: c.at - x.createdAt, End: why, Last: s.first == h && x.next == 0})
}
