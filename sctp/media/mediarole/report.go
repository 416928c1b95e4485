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
