// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/radius"
	"github.com/isthmus-net/isthmus/internal/role"
)

// accountant tells RADIUS servers of contexts. What is to be told is on disk before the answer to the
// SGSN leaves, and stays there until a server has it.
type accountant struct {
	asker
	spool *kept.Spool
	more  chan struct{} // there is something in the spool

	// With the loop:
	under    map[uint64]bool   // numbers of the records under way
	alone    bool              // the one under way is of the whole node
	window   int               // how many may be under way
	answered uint64            // records that servers have taken
	doubts   map[uint64]uint64 // answered when a record was given up first
	aside    []setAside        // records to be left alone for a while, the first of them for the shortest
	unfit    uint64            // records that no request can be made of
}

// setAside is a record that no server answers while they do others, and when it is tried again.
type setAside struct {
	number uint64
	until  time.Time
}

const (
	// maxUnderWay is how many records may wait for servers at a time.
	maxUnderWay = 256
	// asideTime is how long a record is left alone that no server answers while they do others.
	asideTime = 5 * time.Minute
)

// openAccountant makes one, as openAuthorizer does.
func openAccountant(cfg *Settings, to radius.Settings, log *slog.Logger) (a *accountant, err error) {
	a = &accountant{more: make(chan struct{}, 1), under: map[uint64]bool{}, doubts: map[uint64]uint64{}, window: 1}
	if a.spool, err = kept.OpenSpool(kept.SavedPath(cfg.AccountingFile, cfg.Name, "ggsn-accounting"), cfg.AccountingSize, sessionOf); err != nil {
		return nil, err
	}
	left := a.spool.Info()
	if left.Cut > 0 {
		log.Error("accounting records of an earlier process are lost, for the rest of the file cannot be read", "octets", left.Cut)
	}
	if left.Records > 0 {
		log.Info("accounting goes on with what an earlier process has left", "records", left.Records)
	}
	if err = a.open(cfg, to, log); err != nil {
		return nil, errors.Join(err, a.spool.Close())
	}
	return a, nil
}

// run tells servers until the sockets are closed.
func (a *accountant) run(on *tasks) {
	a.asker.run(on, a.heard)
	on.group.Go(func() error {
		for a.wake(); ; {
			select {
			case <-on.ctx.Done():
				return nil
			case <-a.more:
				a.loop.Do(a.send)
			}
		}
	})
	on.group.Go(func() error { a.syncAgain(on.ctx); return nil })
}

// reconfigure has other servers told, of what was set aside as well.
func (a *accountant) reconfigure(to radius.Settings) error {
	err := a.asker.reconfigure(to)
	a.loop.Do(func(now time.Time, _ *radius.Output) {
		for i := range a.aside {
			a.aside[i].until = now
		}
	})
	a.wake()
	return err
}

// syncInterval is how much a machine that loses its power forgets.
const syncInterval = time.Second

// syncAgain has what was written reach the disk, again and again.
func (a *accountant) syncAgain(ctx context.Context) {
	host.Repeat(ctx, syncInterval, func() error {
		a.wake() // what was set aside may be due
		if err := a.spool.Flush(); err != nil {
			return err
		}
		return a.spool.Sync()
	}, func(err error) { a.log.Error("accounting would be lost with this process", "error", err) })
}

// add takes what accounts are to be told; the loop of the engine has its mutex, and what comes out
// has not left yet. If it cannot be written, calls go on, and syncAgain tells of it.
func (a *accountant) add(events []ggsn.Event) {
	told := false
	for i := range events {
		if e := &events[i]; e.Kind <= ggsn.ContextDeleted && e.Context.Account != nil && e.Context.Account.Servers {
			attributes := a.attributes(e)
			a.put(e.Time, &attributes)
			told = true
		}
	}
	if told {
		a.flush()
	}
}

// put enters a record: when it happened, and the attributes.
func (a *accountant) put(at time.Time, attributes *radius.Attributes) {
	a.spool.Put(attributes.Append(binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano()))))
}

// flush writes what was put, and has it told.
func (a *accountant) flush() {
	_ = a.spool.Flush()
	a.wake()
}

func (a *accountant) wake() {
	select {
	case a.more <- struct{}{}:
	default:
	}
}

// send tells servers what may be under way. What repeats does not keep its order, so that of a session one
// record is under way at a time, for the spool has each in its line, and one of the whole node alone, between all
// that was put before it and all that comes behind: it ends what servers have of this node (RFC 2866 section 5.1).
func (a *accountant) send(now time.Time, out *radius.Output) {
	for ; len(a.aside) > 0 && !a.aside[0].until.After(now); a.aside = a.aside[1:] {
		if n := a.aside[0].number; !a.spool.GiveBack(n) {
			delete(a.doubts, n)
		}
	}
	for len(a.under) < a.window && !a.alone {
		n, record, ok := a.spool.Take()
		if !ok {
			return
		}
		request, err := requestOf(record)
		if err != nil { // it must not hold up the others
			if a.unfit++; a.unfit == 1 {
				a.log.Error("an accounting record is lost", "record", n, "error", err)
			}
			a.spool.Done(n)
			continue
		}
		session, _ := sessionOf(record)
		alone := session == wholeNode
		if alone && len(a.under) > 0 || a.client.Send(n, request, now, out) != nil {
			a.spool.GiveBack(n)
			return
		}
		a.under[n], a.alone = true, alone
	}
}

// wholeNode is the session of records that are of none.
const wholeNode = ""

// sessionOf is the session that a record is of. What an Interim-Update tells is passing: the next one, or the
// Stop, tells it as well (RFC 2869 section 2.1). It is asked for each record, and so looks at octets alone.
func sessionOf(record []byte) (session string, passing bool) {
	var status uint32
	for b := record[min(recordTime, len(record)):]; len(b) >= 2 && b[1] >= 2 && int(b[1]) <= len(b); b = b[b[1]:] {
		switch value := b[2:b[1]]; {
		case radius.Type(b[0]) == radius.AcctStatusType && len(value) == 4:
			status = binary.BigEndian.Uint32(value)
		case radius.Type(b[0]) == radius.AcctSessionID:
			session = string(value)
		}
	}
	if status == radius.AcctOn || status == radius.AcctOff {
		return wholeNode, false
	}
	return session, status == radius.AcctInterim
}

// recordTime is the length of the time before the attributes of a record.
const recordTime = 8

// requestOf is the Accounting-Request of a record.
func requestOf(record []byte) (r *radius.Request, err error) {
	r = &radius.Request{Code: radius.AccountingRequest}
	switch {
	case len(record) < recordTime: // by a journal with a right checksum: it never was one
		return nil, errNoRecord
	case len(record)-recordTime > radius.AccountingRoom:
		return nil, errLongRecord
	}
	r.Time = time.Unix(0, int64(binary.BigEndian.Uint64(record)))
	r.Attributes, err = radius.ParseAttributes(record[recordTime:])
	return r, err
}

// heard goes on by what servers have answered.
func (a *accountant) heard(answers []radius.Answer) {
	a.loop.Do(func(now time.Time, out *radius.Output) {
		a.judge(answers, now)
		a.send(now, out)
	})
}

// judge forgets what a server has, and has told again what none has answered.
func (a *accountant) judge(answers []radius.Answer, now time.Time) {
	for i := range answers {
		n := answers[i].Ticket
		delete(a.under, n)
		a.alone = a.alone && len(a.under) > 0
		if answers[i].Code == radius.AccountingResponse {
			a.taken(n)
		} else {
			a.givenUp(n, now)
		}
	}
	_ = a.spool.Flush() // syncAgain tells of an error
}

// taken forgets a record that a server has. If none was there before, what waits follows in its order.
func (a *accountant) taken(n uint64) {
	a.spool.Done(n)
	delete(a.doubts, n)
	a.answered++
	if a.window == 1 {
		a.spool.Restore()
	}
	a.window = maxUnderWay
}

// givenUp keeps a record that no server has answered. It may be that none is there: then one record at a
// time, of one session after the other, finds out by the client's times whether one is back. Or it is the
// record that they do not like, if it is not answered again though others were meanwhile: it must not
// hold these up, nor one of the whole node behind it, nor, being of the whole node, all that is behind it.
func (a *accountant) givenUp(n uint64, now time.Time) {
	before, again := a.doubts[n]
	if again && a.answered > before && a.spool.Aside(n) {
		if len(a.aside) == 0 {
			a.log.Warn("RADIUS servers answer other accounting records and not this one, which is kept and tried again later", "record", n, "after", asideTime)
		}
		a.aside = append(a.aside, setAside{n, now.Add(asideTime)})
		return
	}
	if a.doubts[n] = a.answered; !a.spool.Postpone(n) {
		delete(a.doubts, n)
	}
	a.window = 1
}

// whole tells that the node has started, or stops: servers end what they still have of it.
func (a *accountant) whole(status uint32) {
	now := time.Now()
	attributes := a.ofNode(status, now)
	a.put(now, &attributes)
	a.flush()
}

// collect reports what was told; of nil it does nothing.
func (a *accountant) collect(emit func(role.Metric)) {
	if a == nil {
		return
	}
	spool := a.spool.Info()
	emit(role.Level("accounting_records", "Accounting records that no server has yet.", float64(spool.Records)))
	emit(role.Level("accounting_octets", "Octets of these on disk.", float64(spool.Octets)))
	var aside int
	var unfit uint64
	a.loop.Do(func(time.Time, *radius.Output) { aside, unfit = len(a.aside), a.unfit })
	emit(role.Level("accounting_records_aside", "Of these, those that no server answers while they do others.", float64(aside)))
	emit(role.Count("accounting_lost_total", "Starts, Stops and records of the node lost, since accounting_size was reached.", spool.Refused))
	emit(role.Count("accounting_unfit_total", "Accounting records lost, since no request can be made of them.", unfit))
	emit(role.Count("accounting_updates_passed_total", "Interim-Updates not told, since a later record of the session replaced them or half of accounting_size was reached.", spool.Passed))
	a.asker.collect(emit, "accounting")
}
