// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// storedMagic begins what is stored; its last octet is the version of the form.
const storedMagic uint32 = 0x4947470f

// storedHeader is followed by the nodes, by the access points, by the sessions, each followed
// by its contexts, and by leases that are held. An access point is its name behind its
// length, and the prefixes of each of its leases, and of its routes, behind their number.
type storedHeader struct {
	Magic                    uint32
	Born                     int64 // nanoseconds of Unix by which contexts say when they began
	Now                      int64 // the same, when this was stored
	At                       int64 // then, in the nanoseconds that the times below have
	Restart                  uint8
	Address4, Address6       [16]byte // where SGSNs reached the node; zero: nowhere
	ChargingID               uint32
	HashSeed                 [2]uint64
	Peers, Names             uint32
	Sessions, Contexts, Held uint32
}

type storedPeer struct {
	Address [16]byte // of IPv4 as of IPv6 that is mapped to it
	Restart uint8
	Known   bool
	_       [2]byte
	Namer   uint32 // counted from 1; 0: none
	Doubt   int64  // since when its restart counter is in doubt; 0: it is not
}

// storedMarks are those that outlive the engine.
const storedMarks = markIMEI | markStatic4 | markStatic6 | markEnding

type storedSession struct {
	TID                     gtp.TID
	InterfaceID, Prefix     uint64
	Address                 uint32
	TEID, PeerTEID          uint32
	Created                 uint32
	APN                     uint16
	Marks                   marks
	Peer, Account           uint32
	Version                 gtp.Version
	Has                     Types
	Limits, AskedAMBR       Rates
	Up, Down                uint64 // of the rates that it shares: nanoseconds since the epoch
	Why                     End    // it is to end, if it is
	SessionLimit, IdleLimit int64  // see [Terms]
	Away, Claimed           int64  // nanoseconds: see [Engine.awaySince]
	Contexts                uint8
	MSISDN                  [9]byte
	MSISDNLen               uint8 // octets of it
	Accounted               bool  // its account follows
	Routes                  uint8 // that follow
	Former, Further, DNS    uint8 // prefixes and name servers that follow these
	MTU, Delegations        uint16
}

type storedContext struct {
	User, TEID, PeerTEID, ChargingID uint32
	LastSeen                         uint32
	Created                          int64
	Up, Down                         Traffic
	Hash                             uint64
	Sequence, Port, Sent             uint16
	NSAPI, QoSLen                    uint8
	QoS, Asked                       [21]byte
	AskedLen                         uint8
	Flags                            uint8     // storedFixed and storedUpgrade
	Over, Arrival                    [2]uint64 // up and down
	Filters                          [2]uint16 // octets of each template that follows
	Charged                          bool      // its charging record follows
}

// Flags of a stored context.
const (
	storedFixed uint8 = 1 << iota
	storedUpgrade
)

func storedFlags(u *pdpContext) (f uint8) {
	if u.fixed {
		f |= storedFixed
	}
	if u.upgrade {
		f |= storedUpgrade
	}
	return f
}

// storedPrefix is one of which addresses are leased.
type storedPrefix struct {
	Four    bool
	Bits    uint8
	Address [16]byte
}

func stored(p netip.Prefix) storedPrefix {
	return storedPrefix{p.Addr().Is4(), uint8(p.Bits()), p.Addr().As16()}
}

func (s *storedPrefix) prefix() netip.Prefix {
	a := netip.AddrFrom16(s.Address)
	if s.Four {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, int(s.Bits))
}

// storedLease is an address that is not given to another yet.
type storedLease struct {
	APN    uint16
	Of     uint8 // which of the access point's leases
	Prefix storedPrefix
	Freed  int64 // nanoseconds of Unix
}

// Settle ends what no successor takes over, for a node that stops, before [Engine.AppendState]: sessions that are to
// go without a word to their SGSN, and those that it has been asked to delete since their access point is gone. It
// closes charging records that programs have filled, for a successor may have other limits.
func (e *Engine) Settle(now time.Time, out *Output) {
	c := e.begin(now, out)
	e.release(e.toRelease, c)
	for h := handle(1); h <= e.contexts.last; h++ {
		e.closeFull(h, c)
	}
	for h := handle(1); h <= e.sessions.last; h++ {
		if s := e.sessions.at(h); s.first != 0 && e.leaves(s) {
			e.endSession(h, e.requests.at(s.request).why, c)
		}
	}
}

// leaves reports whether an SGSN has been asked to delete a session that it cannot be asked for again.
func (e *Engine) leaves(s *session) bool { return s.marked(markDeleting) && e.accessPoint(s).gone }

// AppendState appends all contexts and nodes to b, for [Resume]. Sessions that [Engine.Settle] would end are
// left out; others that an SGSN has been asked to delete are asked for again.
func (e *Engine) AppendState(b []byte) []byte {
	h := storedHeader{
		Magic: storedMagic, Born: e.born.UnixNano(), Now: e.now.UnixNano(), At: int64(e.at), Restart: e.settings.RestartCounter, ChargingID: e.chargingID, HashSeed: e.hashSeed, Names: uint32(len(e.apns)),
		Address4: octets(e.settings.Address4), Address6: octets(e.settings.Address6),
	}
	start := len(b)
	b = appendRecord(b, &h)
	index := make(map[handle]uint32)
	for n := handle(1); n <= e.peers.last; n++ {
		if e.peers.at(n).addr.IsValid() {
			index[n] = h.Peers
			h.Peers++
		}
	}
	for n := handle(1); n <= e.peers.last; n++ {
		if p := e.peers.at(n); p.addr.IsValid() {
			r := storedPeer{Address: p.addr.As16(), Restart: p.restart, Known: p.known, Doubt: int64(p.doubt.at)}
			if p.namer != 0 {
				r.Namer = index[p.namer] + 1
			}
			b = appendRecord(b, &r)
		}
	}
	for _, a := range e.apns {
		b = a.appendStored(b)
	}
	for n := handle(1); n <= e.sessions.last; n++ {
		s := e.sessions.at(n)
		if s.first != 0 && !s.marked(markReleasing) && !e.leaves(s) {
			h.Sessions++
			b = e.appendSession(b, n, s, index, &h)
		}
	}
	for n := range e.apns {
		b = e.appendHeld(b, uint16(n), &h)
	}
	copy(b[start:], appendRecord(nil, &h))
	return b
}

// octets are those of an address; of none they are zero.
func octets(a netip.Addr) (b [16]byte) {
	if a.IsValid() {
		b = a.As16()
	}
	return b
}

// storedLists is how many lists of prefixes an access point has: in the order of [access.all], and that of
// its routes.
const storedRouted, storedLists = 4, 5

func (a *access) appendStored(b []byte) []byte {
	b = append(append(b, byte(len(a.Name))), a.Name...)
	lists := [storedLists][]netip.Prefix{storedRouted: slices.Concat(a.Routed, a.leftRouted)}
	for of, l := range a.all() {
		lists[of] = slices.Concat(l.named, l.left)
	}
	for _, all := range lists {
		b = binary.BigEndian.AppendUint32(b, uint32(len(all)))
		for _, p := range all {
			s := stored(p)
			b = appendRecord(b, &s)
		}
	}
	return b
}

func (e *Engine) appendHeld(b []byte, apn uint16, h *storedHeader) []byte {
	for of, l := range e.apns[apn].all() {
		if l.pool == nil || l.pool.Counters().Held == 0 {
			continue
		}
		for lease := range l.pool.Leases() {
			if !lease.Freed.IsZero() {
				h.Held++
				b = appendRecord(b, &storedLease{apn, uint8(of), stored(lease.Prefix), lease.Freed.UnixNano()})
			}
		}
	}
	return b
}

func appendRecord(b []byte, record any) []byte {
	b, err := binary.Append(b, binary.BigEndian, record)
	if err != nil {
		panic("a record has a field without a size: " + err.Error())
	}
	return b
}

func (e *Engine) appendSession(b []byte, n handle, s *session, index map[handle]uint32, h *storedHeader) []byte {
	r := storedSession{
		TID: s.tid, InterfaceID: s.interfaceID, Prefix: s.prefix, Address: s.address, TEID: s.teid, PeerTEID: s.peerTEID,
		Created: s.createdAt, APN: s.apn, Marks: s.marks & storedMarks, Why: s.why,
		Limits: s.limits, AskedAMBR: e.askedAMBR(s),
		Peer: index[s.peer], Account: index[s.account], Version: s.version, Has: s.has,
		SessionLimit: int64(e.terms[n].SessionLimit), IdleLimit: int64(e.terms[n].IdleLimit), Away: int64(e.awaySince(s)), Claimed: int64(s.claimedAt),
	}
	if s.marked(markDeleting) {
		r.Marks, r.Why = r.Marks|markEnding, e.requests.at(s.request).why
	}
	if s.aggregate != 0 {
		up, down := e.ratesOfAll(s.aggregate)
		r.Up, r.Down = atomic.LoadUint64(&up.Arrival), atomic.LoadUint64(&down.Arrival)
	}
	r.MSISDNLen = uint8(copy(r.MSISDN[:], s.msisdn.Octets()))
	for x := s.first; x != 0; x = e.contexts.at(x).next {
		r.Contexts++
	}
	h.Contexts += uint32(r.Contexts)
	of := e.accounts[n]
	r.Accounted, r.Routes, r.Former, r.Further = of != nil, uint8(len(e.routes[n])), uint8(len(e.formers[n])), uint8(len(e.further[n].prefixes))
	r.Delegations = uint16(len(e.delegations[n]))
	r.DNS, r.MTU = uint8(len(e.ownLinks[n].dns)), uint16(min(e.ownLinks[n].mtu, maxMTU))
	if b = appendRecord(b, &r); of != nil {
		b = of.appendStored(b)
	}
	b = e.appendFurther(e.appendFormers(e.appendRoutes(b, n), n), n)
	b = e.appendDelegations(e.appendOwn(b, n), n)
	for x := s.first; x != 0; x = e.contexts.at(x).next {
		b = e.appendContext(b, x, index)
	}
	return b
}

func (e *Engine) appendContext(b []byte, x handle, index map[handle]uint32) []byte {
	u := e.contexts.at(x)
	e.collect(x, u)
	up, down := e.rates(x, u)
	r := storedContext{
		User: index[u.user], TEID: u.teid, PeerTEID: u.peerTEID, ChargingID: u.chargingID,
		LastSeen: u.lastSeen, Created: int64(u.createdAt), Up: u.up.Traffic, Down: u.down.Traffic,
		Hash: u.hash, Sequence: u.sequence, Port: u.port, Sent: u.sent, NSAPI: u.nsapi, QoSLen: uint8(u.qos.Len()),
		AskedLen: uint8(u.asked.Len()), Flags: storedFlags(u),
		Over: [2]uint64{u.up.over, u.down.over}, Arrival: [2]uint64{atomic.LoadUint64(&up.Arrival), atomic.LoadUint64(&down.Arrival)},
	}
	copy(r.QoS[:], u.qos.Octets())
	copy(r.Asked[:], u.asked.Octets())
	var templates []byte
	n := 0
	for part := range slices.Chunk(e.filters[x], maxFilters/len(r.Filters)) { // one template has no room for all
		before := len(templates)
		templates = gtp.TFT{Operation: gtp.TFTCreate, Filters: part}.Append(templates)
		r.Filters[n] = uint16(len(templates) - before)
		n++
	}
	record := e.records[x]
	r.Charged = record != nil
	b = append(appendRecord(b, &r), templates...)
	if record != nil {
		b = record.appendStored(b)
	}
	return b
}
