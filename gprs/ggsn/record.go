// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"cmp"
	"net/netip"
	"time"
)

// charging is the charging record of a context that is open. Before something has changed in its first one a context
// has none: that has begun with it.
type charging struct {
	closed    uint32        // records before it
	began     time.Duration // since the epoch
	opened    time.Time     // the same by the clock of the day
	at, since counted       // what the context had carried when the record was opened, and its last container
	ended     []Container
}

// counted is what a context has carried.
type counted struct {
	Up, Down         Traffic
	OverUp, OverDown uint64
}

func (t Traffic) minus(u Traffic) Traffic { return Traffic{t.Packets - u.Packets, t.Octets - u.Octets} }

func (u *pdpContext) counted() counted {
	return counted{u.up.Traffic, u.down.Traffic, u.up.over, u.down.over}
}

// charges reports whether records of a session's contexts are kept.
func (e *Engine) charges(h handle) bool { return e.settings.Records && e.accounts[h] != nil }

// recordOf is the open record of a context.
func (e *Engine) recordOf(x handle) charging {
	if r := e.records[x]; r != nil {
		return *r
	}
	began := e.contexts.at(x).createdAt
	return charging{began: began, opened: e.born.Add(began)}
}

// conditionsOf are those of a context now.
func (e *Engine) conditionsOf(x handle) Conditions {
	u := e.contexts.at(x)
	is := Conditions{QoS: u.qos, SGSN: e.peers.at(e.sessions.at(u.session).peer).addr}
	if of := e.accounts[u.session]; of != nil {
		is.Place = of.place()
	}
	return is
}

// recharge ends the containers of a session's contexts whose conditions are other ones now: was are those of the
// context that has changed; what it shares with the others has changed for these, too.
func (e *Engine) recharge(x handle, was Conditions, c call) {
	h := e.contexts.at(x).session
	if !e.charges(h) {
		return
	}
	for y := e.sessions.at(h).first; y != 0; y = e.contexts.at(y).next {
		before, now := was, e.conditionsOf(y)
		if y != x {
			before.QoS = now.QoS
		}
		if why := before.changes(&now); why != 0 {
			e.endContainer(y, before, why, c)
		}
	}
}

// endContainer ends the open container of a context, and the record with it where that has as many as it may.
func (e *Engine) endContainer(x handle, of Conditions, why Changes, c call) {
	if e.isFull(x) {
		e.closeRecord(x, of, CloseVolume, c)
	}
	r := e.addContainer(x, of, why, c)
	most := &e.accessPoint(e.sessions.at(e.contexts.at(x).session)).Charging
	switch {
	case why&ChangeSGSN != 0 && most.SGSNs > 0 && len(sgsnsOf(r.ended)) >= most.SGSNs:
		e.tellRecord(x, CloseSGSNs, c)
	case len(r.ended) >= cmp.Or(most.Changes, DefaultChanges):
		e.tellRecord(x, CloseChanges, c)
	}
}

// addContainer ends the open container of a context, of which it is known what programs have carried.
func (e *Engine) addContainer(x handle, of Conditions, why Changes, c call) *charging {
	r, now := e.recordOf(x), e.contexts.at(x).counted()
	r.ended = append(r.ended, Container{of, now.Up.minus(r.since.Up), now.Down.minus(r.since.Down), why, c.now})
	r.since = now
	e.records[x] = &r
	return &r
}

// endRecord closes the record of a context, with what is in its open container.
func (e *Engine) endRecord(x handle, why Closing, c call) *Record {
	e.closeFull(x, c)
	return e.closeRecord(x, e.conditionsOf(x), why, c)
}

func (e *Engine) closeRecord(x handle, of Conditions, why Closing, c call) *Record {
	e.addContainer(x, of, ChangeClosure, c)
	return e.tellRecord(x, why, c)
}

// isFull reports whether the record of a context is, by what programs have carried as well.
func (e *Engine) isFull(x handle) bool {
	u := e.contexts.at(x)
	e.collect(x, u)
	return u.left() == 0
}

// closeFull closes the record of a context that is full.
func (e *Engine) closeFull(x handle, c call) {
	if e.isFull(x) {
		e.closeRecord(x, e.conditionsOf(x), CloseVolume, c)
	}
}

// tellRecord tells of the record of a context whose containers are closed, and opens the next one.
func (e *Engine) tellRecord(x handle, why Closing, c call) *Record {
	u, r := e.contexts.at(x), e.records[x]
	now := u.counted()
	since := func(at time.Duration) time.Duration { return (at - u.createdAt).Truncate(time.Second) }
	told := Record{
		Context: e.describe(x), Conditions: r.ended[len(r.ended)-1].Conditions, Number: r.closed + 1, Cause: why,
		Opened: r.opened, Closed: c.now, Duration: since(c.at) - since(r.began), SGSNs: sgsnsOf(r.ended), Containers: r.ended,
	}
	told.Context.Up, told.Context.Down = now.Up.minus(r.at.Up), now.Down.minus(r.at.Down)
	told.Context.OverUp, told.Context.OverDown = now.OverUp-r.at.OverUp, now.OverDown-r.at.OverDown
	c.out.Records = append(c.out.Records, told)
	e.stats.Records[why]++
	e.records[x] = &charging{closed: r.closed + 1, began: c.at, opened: c.now, at: now, since: now}
	e.limitVolume(x)
	return &c.out.Records[len(c.out.Records)-1]
}

// lastRecord closes that of a context which ends.
func (e *Engine) lastRecord(x handle, why End, c call) {
	u := e.contexts.at(x)
	if e.charges(u.session) {
		told := e.endRecord(x, closingOf[why], c)
		told.Ended, told.End, told.Last = true, why, e.sessions.at(u.session).first == x && u.next == 0
	}
	delete(e.records, x)
}

// sgsnsOf are the SGSNs of containers, one behind the other.
func sgsnsOf(list []Container) (all []netip.Addr) {
	for i := range list {
		if n := len(all); n == 0 || all[n-1] != list[i].SGSN {
			all = append(all, list[i].SGSN)
		}
	}
	return all
}

// limitVolume sets with how many octets of a context its record is full.
func (e *Engine) limitVolume(x handle) {
	e.forget(x)
	u := e.contexts.at(x)
	u.full = 0
	if most := e.accessPoint(e.sessions.at(u.session)).Charging.Volume; most > 0 && e.charges(u.session) {
		at := e.recordOf(x).at
		u.full = at.Up.Octets + at.Down.Octets + most
	}
}

// carry counts a packet, and closes the record of its context if that is full.
func (e *Engine) carry(c call, x handle, u *pdpContext, w *way, octets int) {
	if u.full > 0 {
		e.closeFull(x, c) // by what programs have carried
	}
	if w.add(octets); u.full > 0 {
		e.closeFull(x, c)
	}
}

// limitRecords applies the limits of today to the records of a session.
func (e *Engine) limitRecords(h handle, s *session, c call) {
	for x := s.first; x != 0; x = e.contexts.at(x).next {
		if e.charges(h) {
			e.closeFull(x, c)
		}
		e.limitVolume(x)
	}
	// Of a tariff that has passed containers are to be ended first.
	if of := e.accounts[h]; e.charges(h) && !of.tariffPassed(c) {
		of.tariff = e.accessPoint(s).Charging.nextTariff(c.now)
	}
}

// tariffPassed reports whether the tariff is another one than that of the open containers.
func (of *accounting) tariffPassed(c call) bool { return of.tariff > 0 && of.tariff <= c.now.Unix() }

// clockCheck is how often a tariff is looked for by the clock of the day, which may have been set since.
const clockCheck = time.Hour

// nextRecord is when a record of a session, or a container, is to be closed by time.
func (e *Engine) nextRecord(h handle, s *session, a *access, c call) time.Duration {
	at := never
	if !e.charges(h) {
		return at
	}
	if t := e.accounts[h].tariff; t > 0 {
		at = c.at + min(time.Unix(t, 0).Sub(c.now), clockCheck)
	}
	for x := s.first; x != 0 && a.Charging.Time > 0; x = e.contexts.at(x).next {
		at = min(at, e.recordOf(x).began+a.Charging.Time)
	}
	return at
}

// recordsDue closes what is to be closed by time.
func (e *Engine) recordsDue(h handle, s *session, c call) {
	if !e.charges(h) {
		return
	}
	of, most := e.accounts[h], &e.accessPoint(s).Charging
	tariff := of.tariffPassed(c)
	of.tariff = most.nextTariff(c.now)
	for x := s.first; x != 0; x = e.contexts.at(x).next {
		e.closeFull(x, c)
		if tariff {
			e.endContainer(x, e.conditionsOf(x), ChangeTariff, c)
		}
		if most.Time > 0 && e.recordOf(x).began+most.Time <= c.at {
			e.endRecord(x, CloseTime, c)
		}
	}
}

// CloseRecords closes the charging records of contexts that are named and there still, which go on with others, and
// returns how many it has closed.
func (e *Engine) CloseRecords(refs []Ref, now time.Time, out *Output) (closed int) {
	c := e.begin(now, out)
	for _, r := range refs {
		if u := e.referred(r); u != nil && e.charges(u.session) {
			e.endRecord(handle(r.Record), CloseManagement, c)
			closed++
		}
	}
	return closed
}
