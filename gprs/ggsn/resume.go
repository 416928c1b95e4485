// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/pool"
)

// Resume is [New] with the contexts that an earlier engine's [Engine.AppendState] has
// written: those that the settings still have room and an access point for, and whose nodes
// still reach this one where it was. Addresses of pools that are gone stay, as with
// [Engine.Reconfigure]. lost is how many were not taken
// over; where it is not 0, peers are told another restart counter than the earlier engine
// told them, so that they release theirs: see [Engine.RestartCounter]. What cannot be read is
// one lost context at least.
func Resume(s Settings, state []byte, now time.Time, random io.Reader) (e *Engine, lost int, err error) {
	if e, err = New(s, now, random); err != nil || len(state) == 0 {
		return e, 0, err
	}
	r := resuming{Engine: e, in: bytes.NewReader(state), out: &Output{}}
	r.call = e.begin(now, r.out)
	lost = r.all()
	e.stats.Created = 0
	e.rest(r.call)
	e.endStrangers(r.call)
	e.requalify(r.call)
	if lost > 0 {
		e.settings.RestartCounter++
		r.endAll()
	}
	return e, lost, nil
}

// endAll has the contexts that were taken over deleted in good order: by the restart counter
// their SGSNs take all for lost, those too that go on here (TS 29.060 section 7.7.11).
func (r *resuming) endAll() {
	for h := handle(1); h <= r.sessions.last; h++ {
		if r.sessions.at(h).first != 0 {
			r.endLater(h, EndRestart, r.call.at)
		}
	}
}

// resuming reads what an earlier engine has stored.
type resuming struct {
	*Engine
	call   call
	in     *bytes.Reader
	out    *Output
	peers  []handle
	names  []string
	passed time.Duration // since the earlier engine
}

func (r *resuming) record(to any) bool { return binary.Read(r.in, binary.BigEndian, to) == nil }

// maxPast is how long ago an epoch may be: seconds since it have 32 bits.
const maxPast = math.MaxUint32 * time.Second

// all takes over what it can, and returns how many contexts it could not.
func (r *resuming) all() (lost int) {
	var h storedHeader
	if !r.record(&h) || h.Magic != storedMagic {
		return 1
	}
	// The epoch is moved on the clock of now, so that it goes on when that of the day is set. Where that was
	// set back, no time has passed.
	passed := max(0, r.call.now.Sub(time.Unix(0, h.Now)))
	if h.At < 0 || time.Duration(h.At) > maxPast || passed > maxPast-time.Duration(h.At) {
		return max(1, int(h.Contexts))
	}
	r.epoch, r.born = r.call.now.Add(-passed-time.Duration(h.At)), time.Unix(0, h.Born).In(r.call.now.Location())
	r.call = r.begin(r.call.now, r.out)
	r.resumedAt, r.passed = r.call.at, passed
	r.settings.RestartCounter, r.chargingID, r.hashSeed = h.Restart, h.ChargingID, h.HashSeed
	if !r.readPeers(&h) || !r.readNames(int(h.Names)) {
		return max(1, int(h.Contexts))
	}
	for range h.Sessions {
		if !r.session() { // damaged: what follows cannot be read
			return max(1, int(h.Contexts)-r.contexts.used())
		}
	}
	for range h.Held {
		if !r.held() {
			break
		}
	}
	for _, a := range r.apns {
		for _, l := range a.all() {
			l.left = l.leaving(l.named)
		}
		a.leftRouted = leavingRouted(r.vrfs[a.VRF], a.leftRouted, a.Routed)
	}
	r.setDisputed()
	r.admitGuests(r.call)
	return max(0, int(h.Contexts)-r.contexts.used())
}

// held reads a lease that is not to be given to another yet; false if it cannot be read.
func (r *resuming) held() bool {
	var in storedLease
	if !r.record(&in) || int(in.APN) >= len(r.names) || int(in.Of) >= len(r.apns[0].all()) {
		return false
	}
	if n, known := r.byName[nameKey(r.names[in.APN])]; known {
		if l := r.apns[n].all()[in.Of]; l.pool != nil {
			// One that the pool refuses is none of its, or was taken over.
			_ = l.pool.Adopt(pool.Lease{Prefix: in.Prefix.prefix(), Freed: time.Unix(0, in.Freed)}, r.call.now)
		}
	}
	return true
}

// readPeers reads the nodes. One that cannot be spoken to any more, or that knows this node by
// another address than it has now, is none: its contexts are dead.
func (r *resuming) readPeers(h *storedHeader) bool {
	var namers []uint32
	for range h.Peers {
		var p storedPeer
		if !r.record(&p) {
			return false
		}
		a, then := netip.AddrFrom16(p.Address).Unmap(), h.Address6
		if a.Is4() {
			then = h.Address4
		}
		n := handle(0)
		if r.reachable(a) && octets(r.own(a)) == then {
			if known, made, ok := r.peerOf(a); ok {
				n, made.restart, made.known, made.doubt.at = known, p.Restart, p.Known, time.Duration(p.Doubt)
			}
		}
		r.peers, namers = append(r.peers, n), append(namers, p.Namer)
	}
	for i, n := range namers {
		if by, ok := r.peer(n - 1); ok && by != 0 && r.peers[i] != 0 {
			r.name(r.Engine.peers.at(r.peers[i]), by)
		}
	}
	return true
}

// readNames reads the access points.
func (r *resuming) readNames(n int) bool {
	for range n {
		length, err := r.in.ReadByte()
		name := make([]byte, length)
		if err != nil {
			return false
		}
		if _, err := io.ReadFull(r.in, name); err != nil {
			return false
		}
		r.names = append(r.names, string(name))
		had, ok := r.readPrefixes()
		if !ok {
			return false
		}
		if n, known := r.byName[nameKey(string(name))]; known {
			a := r.apns[n]
			for of, l := range a.all() {
				l.resumeLeft(of, had[of], &a.APN, r.random.Uint64())
			}
			a.leftRouted = had[storedRouted] // until it is known what is in them
		}
	}
	return true
}

// readPrefixes reads those that an access point had, by [storedLists].
func (r *resuming) readPrefixes() (had [storedLists][]netip.Prefix, ok bool) {
	for of := range had {
		var n uint32
		if !r.record(&n) {
			return had, false
		}
		for range n {
			var p storedPrefix
			if !r.record(&p) {
				return had, false
			}
			if p := p.prefix(); p.IsValid() {
				had[of] = append(had[of], p)
			}
		}
	}
	return had, true
}

// session reads a session with its contexts; false if it cannot be read.
func (r *resuming) session() bool {
	var in storedSession
	if !r.record(&in) || in.Contexts == 0 {
		return false
	}
	s := session{
		tid: in.TID, interfaceID: in.InterfaceID, prefix: in.Prefix, address: in.Address, teid: in.TEID, peerTEID: in.PeerTEID,
		createdAt: in.Created, marks: in.Marks & storedMarks, why: min(in.Why, numEnds-1), version: in.Version, has: in.Has & (TypeIPv4 | TypeIPv6),
		limits: in.Limits, askedAMBR: in.AskedAMBR, away: time.Duration(in.Away) + r.passed, claimedAt: time.Duration(in.Claimed),
	}
	s.msisdn, _ = gtp.MSISDNOf(in.MSISDN[:min(int(in.MSISDNLen), len(in.MSISDN))])
	var account *accounting
	if in.Accounted {
		var ok bool
		if account, ok = r.account(); !ok {
			return false
		}
	}
	routes, ok := r.routesOf(in.Routes)
	if !ok {
		return false
	}
	had, ok := r.readFormers(in.Former)
	if !ok {
		return false
	}
	more, ok := r.readFurther(in.Further)
	if !ok {
		return false
	}
	dns, ok := r.readDNS(in.DNS)
	if !ok {
		return false
	}
	delegated, ok := r.readDelegations(in.Delegations)
	if !ok {
		return false
	}
	list := make([]pdpContext, in.Contexts)
	templates := make([]filters, in.Contexts)
	records := make([]*charging, in.Contexts)
	for i := range list {
		if !r.context(&list[i], &templates[i], &records[i]) {
			return false
		}
	}
	if r.takeOver(&s, &in, list) {
		sh, added := r.addSession(&s)
		if terms := (Terms{time.Duration(in.SessionLimit), time.Duration(in.IdleLimit)}); terms != (Terms{}) {
			r.terms[sh] = terms
		}
		if account != nil {
			r.setAccount(sh, account)
		}
		r.adoptFormers(sh, added, had)
		r.adoptFurther(sh, added, more)
		r.setLink(sh, added, &Grant{DNS6: dns, MTU: int(in.MTU)})
		for a := r.accessPoint(added); len(routes) > 0; routes = routes[1:] {
			r.giveRoute(sh, added, routes[0], slices.Concat(a.Routed, a.leftRouted))
		}
		r.adoptDelegations(sh, added, delegated)
		for i := range list {
			x, u := r.addContext(sh, added, &list[i])
			r.police(x, added, u)
			r.setFilters(x, templates[i])
			if records[i] != nil {
				r.records[x] = records[i]
			}
		}
		r.spent(added, in.Up, in.Down)
		r.limitRecords(sh, added, r.call)
		if added.has.has(TypeIPv6) {
			added.advertAt = r.call.at + 1 + time.Duration(r.random.Int64N(int64(r.accessPoint(added).firstAdvert())))
		}
		r.schedule(sh, added, r.call)
	}
	return true
}

func (r *resuming) context(u *pdpContext, f *filters, of **charging) (ok bool) {
	var in storedContext
	if !r.record(&in) || int(in.QoSLen) > len(in.QoS) || int(in.AskedLen) > len(in.Asked) {
		return false
	}
	user, ok := r.peer(in.User)
	if !ok {
		return false
	}
	qos, _ := gtp.ParseQoS(in.QoS[:in.QoSLen])
	asked, _ := gtp.ParseQoS(in.Asked[:in.AskedLen])
	*u = pdpContext{
		user: user, teid: in.TEID, peerTEID: in.PeerTEID, chargingID: in.ChargingID, lastSeen: in.LastSeen,
		createdAt: time.Duration(in.Created),
		up:        way{policer{Arrival: in.Arrival[0]}, in.Up, in.Over[0]}, down: way{policer{Arrival: in.Arrival[1]}, in.Down, in.Over[1]},
		hash: in.Hash, sequence: in.Sequence, port: in.Port, sent: in.Sent, nsapi: in.NSAPI, qos: qos, asked: asked,
		fixed: in.Flags&storedFixed != 0, upgrade: in.Flags&storedUpgrade != 0,
	}
	for _, n := range in.Filters {
		template := make([]byte, n)
		if _, err := io.ReadFull(r.in, template); err != nil {
			return false
		}
		if n == 0 {
			continue
		}
		t, _, ok := gtp.ParseTFT(template)
		if *f = append(*f, t.Filters...); !ok || len(*f) > maxFilters {
			u.user = 0 // so that its session alone is lost
		}
	}
	if in.Charged {
		*of, ok = r.charging(u)
		return ok
	}
	return true
}

func (r *resuming) peer(n uint32) (handle, bool) {
	if int(n) >= len(r.peers) {
		return 0, false
	}
	return r.peers[n], true
}

// takeOver reports whether there is room for a session: its access point, its addresses,
// numbers that no other has.
func (r *resuming) takeOver(s *session, in *storedSession, list []pdpContext) bool {
	if int(in.APN) >= len(r.names) || s.has == 0 || s.version > gtp.V1 || r.contexts.used()+len(list) > r.settings.Limits.Contexts {
		return false
	}
	apn, known := r.byName[nameKey(r.names[in.APN])]
	peer, ok := r.peer(in.Peer)
	if s.account, _ = r.peer(in.Account); s.account == 0 {
		s.account = peer
	}
	// Flow labels of version 0 are looked up nowhere, so that they may be anyone's.
	v1 := s.version == gtp.V1
	if s.apn, s.peer = apn, peer; !known || !ok || peer == 0 || v1 && r.byControl[s.teid] != 0 {
		return false
	}
	var seen [16]bool
	for i := range list {
		u := &list[i]
		if u.user == 0 || u.nsapi > 15 || seen[u.nsapi] || r.contextsOf(s.marks)[tidOf(s, u.nsapi)] != 0 || r.byCharging[u.chargingID] != 0 || v1 && r.byTEID[u.teid] != 0 {
			return false
		}
		seen[u.nsapi] = true
		for j := range i {
			if list[j].teid == u.teid || list[j].chargingID == u.chargingID {
				return false
			}
		}
	}
	return r.adopt(s)
}

// adopt takes the leases of a session, all or none, also those of pools that are leaving.
func (r *resuming) adopt(s *session) bool {
	a, v := r.accessPoint(s), r.vrfOf(s)
	take := func(l *leases, p netip.Prefix) bool {
		return l.pool != nil && l.has(p.Addr()) && l.pool.Adopt(pool.Lease{Prefix: p}, r.call.now) == nil
	}
	if s.has.has(TypeIPv4) && (v.by4[s.address] != 0 || !take(a.leases4(s), s.lease4())) {
		return false
	}
	if s.has.has(TypeIPv6) && (v.by6[s.prefix] != 0 || r.otherLength(a.VRF, s.prefixOf(), a.leases6(s)) || !take(a.leases6(s), a.lease6(s))) {
		if s.has.has(TypeIPv4) {
			a.leases4(s).pool.Return(s.lease4())
		}
		return false
	}
	return true
}
