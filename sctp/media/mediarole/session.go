// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/sctp"
	"github.com/isthmus-net/isthmus/sctp/media/measure"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// session is an association with a client.
type session struct {
	server *Instance
	conn   *sctp.Conn
	peer   []netip.Prefix // that it is counted by; the server's mutex guards it
	began  time.Time

	mu      sync.Mutex // guards what follows
	current *sending   // nil: none
	active  time.Time  // when something was asked, or taken, last
	taken   uint32     // the first TSN that was not acknowledged then
	ended   bool       // no transfer begins any more
	running sync.WaitGroup

	lock    sync.Mutex // guards what follows; the engine's is held when it is taken
	written uint64     // octets of data messages that the association has taken
	sent    uint64     // of these
	lastTSN uint32     // of the chunk that was sent last for the first time
	seen
}

// seen is what the engine has told of what it sends for a transfer.
type seen struct {
	counts measure.Sender
	marker measure.Marker
	marks  []measure.Mark
	lost   int // marks that there was no room for
}

// maxMarks is how many wait for a report.
const maxMarks = 256

func newSession(i *Instance, c *sctp.Conn, peer []netip.Prefix) *session {
	return &session{server: i, conn: c, peer: peer, began: time.Now(), active: time.Now()}
}

// run serves until the association has ended, or its peer has shut it down and taken what was written to it: as long it
// keeps that (RFC 9260 section 9.2), so it counts, and may be stalled.
func (s *session) run(ctx context.Context) {
	cfg := s.server.now()
	_ = s.tune(&cfg) // of one that has ended already, reading tells
	s.conn.Observe(s.observe)
	s.running.Go(s.follow)
	stop := context.AfterFunc(ctx, func() { s.cancel(nil) })
	s.read()
	stop()
	s.mu.Lock()
	s.ended, s.active = true, time.Now()
	s.mu.Unlock()
	s.cancel(nil)
	_ = s.conn.Close() // or it has ended
	s.running.Wait()
}

// tune gives the association the parameters of a configuration.
func (s *session) tune(cfg *Settings) error {
	if err := s.conn.SetParameters(cfg.parameters()); err != nil {
		return err
	}
	s.prefer(cfg.Primary)
	return nil
}

// prefer has data go from an address, if it has a path that works.
func (s *session) prefer(local netip.Addr) {
	st := s.conn.Status()
	if !local.IsValid() || st.Primary.Local == local {
		return
	}
	for _, p := range st.Paths {
		if p.Local == local && p.Confirmed && s.conn.SetPrimary(p.Pair) == nil {
			return
		}
	}
}

// read takes what the client asks for, one message after the other.
func (s *session) read() {
	b := make([]byte, transfer.MaxControl+1)
	for {
		n, info, err := s.conn.ReadMessage(b)
		if err != nil {
			return
		}
		m, err := transfer.Parse(b[:n])
		if err != nil || !info.First || !info.Last || info.PPID != transfer.PPID || info.Stream != transfer.ControlStream {
			s.server.counters.drop(reasonBadMessage)
			s.conn.Abort("not a message of a media transfer")
			return
		}
		s.touch()
		switch m := m.(type) {
		case *transfer.Request:
			s.server.counters.requests.Add(1)
			s.begin(m)
		case *transfer.Cancel:
			s.cancel(&m.Transfer)
		case *transfer.List:
			s.server.counters.lists.Add(1)
			c := s.server.useCatalog()
			list, more := c.entries(m.After, time.Now())
			c.users.Done()
			s.write(&transfer.Entries{Transfer: m.Transfer, More: more, List: list})
		default: // what servers send
			s.server.counters.drop(reasonBadMessage)
			s.conn.Abort("a message for clients")
			return
		}
	}
}

func (s *session) touch() {
	s.mu.Lock()
	s.active = time.Now()
	s.mu.Unlock()
}

// write sends a message of control. What fails, reading will find out.
func (s *session) write(m transfer.Message) {
	_ = s.conn.WriteMessage(m.Append(nil), sctp.Message{Stream: transfer.ControlStream, PPID: transfer.PPID})
}

// look is how often a session is looked at.
const look = 250 * time.Millisecond

// follow keeps what happens to paths, and ends a session that does nothing, until it is over.
func (s *session) follow() {
	tick := time.NewTicker(look)
	defer tick.Stop()
	events := s.conn.Events()
	for {
		select {
		case ev, open := <-events:
			if !open {
				return
			}
			s.note(ev)
		case now := <-tick.C:
			if s.over() {
				return
			}
			s.expire(now)
		}
	}
}

// over reports whether nothing is served any more, and nothing waits for the client. That its last message has come,
// without which it would be asked for minutes, is a matter of the association alone (T2-shutdown, RFC 9260 section 9.2).
func (s *session) over() bool {
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	return ended && s.conn.Status().Queued == 0
}

// note keeps an event.
func (s *session) note(ev sctp.Event) {
	if ev.Kind == sctp.PathConfirmed {
		s.prefer(s.server.now().Primary)
		s.server.count(s)
	}
	kind, there := map[sctp.EventKind]transfer.MarkKind{
		sctp.PathFailing: transfer.Failing, sctp.PathInactive: transfer.Down, sctp.PathActive: transfer.Up,
	}[ev.Kind]
	if !there {
		return
	}
	m := measure.Mark{Kind: kind, Path: measure.Path(ev.Pair), At: time.Now()}
	for _, p := range s.conn.Status().Paths {
		if p.Pair == ev.Pair {
			m.RTO = p.RTO
		}
	}
	s.lock.Lock()
	s.keep([]measure.Mark{m})
	s.lock.Unlock()
}

// expire ends a session that asks for nothing, or takes nothing of what is sent. Who takes little does take, and it is not the
// client's fault if nothing waits for it in the middle of a transfer.
func (s *session) expire(now time.Time) {
	cfg, st := s.server.now(), s.conn.Status()
	open := st.NextTSN - uint32(st.Unacknowledged)
	s.mu.Lock()
	if open != s.taken || st.Queued == 0 && s.current != nil {
		s.taken, s.active = open, now
	}
	late := now.Sub(s.active) > cfg.IdleTimeout
	s.mu.Unlock()
	switch {
	case !late:
	case st.Queued > 0:
		s.server.counters.drop(reasonStalled)
		s.conn.Abort("nothing is taken")
	default:
		s.server.counters.drop(reasonIdle)
		s.conn.Abort("nothing is asked for")
	}
}

// observe counts chunks of data that leave; the engine calls it.
func (s *session) observe(at time.Time, p *sctp.Passage) {
	if p.Stream == transfer.ControlStream {
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	switch p.How {
	case sctp.SentNew:
		s.counts.Sent++
		s.sent += uint64(p.Octets)
		s.lastTSN = p.TSN
	case sctp.SentLate:
		s.counts.Late++
	case sctp.SentFast:
		s.counts.Fast++
	case sctp.SentCopy:
		s.counts.Copies++
	case sctp.SentMoved:
		s.counts.Moved++
	default:
		return
	}
	var room [2]measure.Mark
	s.keep(s.marker.Add(room[:0], &measure.Chunk{At: at, Path: measure.Path(p.Pair), TSN: p.TSN, Again: p.How != sctp.SentNew}))
}

// keep has marks wait for a report, if there is room; the lock is held.
func (s *session) keep(marks []measure.Mark) {
	for i := range marks {
		if len(s.marks) == maxMarks {
			s.lost++
			continue
		}
		s.marks = append(s.marks, marks[i])
	}
}
