// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"time"

	"github.com/isthmus-net/isthmus/sctp"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// leastReport is how often reports are sent at most.
const leastReport = 20 * time.Millisecond

// report tells the client how our paths are, as long as a transfer goes on.
func (s *session) report(t *sending) {
	tick := time.NewTicker(t.report)
	defer tick.Stop()
	for {
		s.write(s.reportNow(t))
		select {
		case <-tick.C:
		case <-t.ctx.Done():
			return
		}
	}
}

// drainLook is how often it is looked whether all is acknowledged.
const drainLook = 10 * time.Millisecond

// drain waits until the client has acknowledged all data that were written, while reports go on: what is sent, lost or moved of
// them until then belongs into the last one, which must come before the end. It reports whether all came to that.
func (s *session) drain(t *sending) bool {
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	for !s.drained() {
		select {
		case <-tick.C:
		case <-t.ctx.Done():
			return false
		}
	}
	return true
}

// drained reports whether all data are acknowledged. What else is in the send buffer, such as reports, does not count; an
// association that has ended has none of it any more.
func (s *session) drained() bool {
	st := s.conn.Status()
	s.lock.Lock()
	defer s.lock.Unlock()
	open := st.NextTSN - uint32(st.Unacknowledged)
	return st.State != "closed" && s.sent == s.written && int32(open-s.lastTSN) > 0 // serial numbers (RFC 1982)
}

// flush tells what no report has told of a transfer that ends.
func (s *session) flush(t *sending) {
	for waits := true; waits; {
		r := s.reportNow(t)
		s.write(r)
		s.lock.Lock()
		waits = len(s.marks) > 0
		s.lock.Unlock()
	}
}

// reportNow is how all is now, with marks that wait.
func (s *session) reportNow(t *sending) *transfer.Report {
	st := s.conn.Status()
	r := &transfer.Report{Transfer: t.number, At: time.Now(), NextTSN: st.NextTSN}
	for i := range st.Paths[:min(len(st.Paths), transfer.MaxReport)] {
		r.Paths = append(r.Paths, pathReport(&st, &st.Paths[i]))
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	c := s.counts
	r.Sent, r.Late, r.Fast, r.Copies, r.Moved = c.Sent, c.Late, c.Fast, c.Copies, c.Moved
	n := min(len(s.marks), transfer.MaxReport)
	for _, m := range s.marks[:n] {
		r.Marks = append(r.Marks, transfer.Mark{
			Kind: m.Kind, Local: m.Path.Local, Remote: m.Path.Remote, At: m.At, TSN: m.TSN, RTO: m.RTO,
		})
	}
	s.marks = append(s.marks[:0], s.marks[n:]...)
	r.Lost, s.lost = uint16(min(s.lost, 1<<16-1)), 0
	return r
}

func pathReport(st *sctp.Status, p *sctp.PathStatus) transfer.PathReport {
	return transfer.PathReport{
		Local: p.Local, Remote: p.Remote, State: uint8(p.State), Errors: uint8(min(p.Errors, 255)),
		Current: p.Pair == st.Current, Primary: p.Pair == st.Primary, Confirmed: p.Confirmed, InDoubt: p.Doubted,
		RTO: p.RTO, SRTT: p.SRTT, RTTVar: p.RTTVar, CWND: uint32(p.CWND), Flight: uint32(p.Flight),
	}
}
