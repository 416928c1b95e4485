// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"context"
	"crypto/sha256"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/sctp"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// sending is a transfer under way.
type sending struct {
	name   string
	number uint16
	ctx    context.Context
	stop   context.CancelFunc
	answer transfer.Answer
	offset uint64        // of the source, where the transfer begins
	sent   uint64        // octets, with the session's mutex
	report time.Duration // between reports; 0: there are none

	cancelled atomic.Bool // by the client
}

// sending returns the transfer under way; nil if there is none.
func (s *session) sending() *sending {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// begin answers a request, and begins to send.
func (s *session) begin(r *transfer.Request) {
	refuse := func(why transfer.Status, text string) {
		s.server.counters.drop(reasonOf[why])
		s.write(&transfer.Answer{Transfer: r.Transfer, Status: why, Text: text})
	}
	switch {
	case s.sending() != nil:
		refuse(transfer.Busy, transfer.Busy.String())
		return
	case s.conn.Status().Out < 2: // no more than the client takes (RFC 9260 section 5.1.1)
		refuse(transfer.Refused, "data need a stream beside that for control: take two or more")
		return
	}
	c := s.server.useCatalog()
	m, status := c.open(r.Name)
	c.users.Done()
	if status == transfer.OK && r.Offset > m.octets {
		_ = m.Close()
		status = transfer.Refused
	}
	if status != transfer.OK {
		refuse(status, status.String())
		return
	}
	t := &sending{name: r.Name, number: r.Transfer, offset: r.Offset, answer: s.agree(r, m)}
	if r.Report > 0 {
		t.report = max(time.Duration(r.Report)*time.Millisecond, leastReport)
	}
	t.ctx, t.stop = context.WithCancel(context.Background())
	s.mu.Lock()
	ended := s.ended
	if !ended {
		s.current = t
	}
	s.mu.Unlock()
	if ended {
		_ = m.Close()
		return
	}
	s.lock.Lock()
	s.seen = seen{}
	s.lock.Unlock()
	s.write(&t.answer)
	s.running.Go(func() { s.send(t, m) })
	if t.report > 0 {
		s.running.Go(func() { s.report(t) })
	}
}

// agree decides how a source is sent: by what the client asks for, as far as the source goes.
func (s *session) agree(r *transfer.Request, m *media) transfer.Answer {
	a := transfer.Answer{Transfer: r.Transfer, Streams: s.conn.Status().Out - 1, Size: uint32(m.size), Rate: uint32(m.rate), Total: m.octets - r.Offset}
	if r.Streams > 0 {
		a.Streams = min(a.Streams, r.Streams)
	}
	if r.Size > 0 {
		a.Size = r.Size
	}
	if r.Rate > 0 && (a.Rate == 0 || r.Rate < a.Rate) {
		a.Rate = r.Rate
	}
	if r.Limit > 0 {
		a.Total = min(a.Total, r.Limit)
	}
	return a
}

// cancel ends the transfer of that number for the client, or whichever there is because all ends.
func (s *session) cancel(number *uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.current; t != nil && (number == nil || *number == t.number) {
		if number != nil {
			t.cancelled.Store(true)
		}
		t.stop()
		_ = s.conn.SetWriteDeadline(time.Now()) // who waits for room
	}
}

// send sends a source, and its end.
func (s *session) send(t *sending, m *media) {
	defer m.Close()
	defer t.stop()
	end := s.sendData(t, m)
	arrived := t.report == 0 || end.Messages == 0 || s.drain(t)
	_ = s.conn.SetWriteDeadline(time.Time{})
	switch c := &s.server.counters; {
	case end.Status == transfer.OK && arrived:
		c.done.Add(1)
	case end.Status != transfer.OK && end.Status != transfer.Cancelled:
		c.drop(reasonOf[end.Status])
	case t.cancelled.Load():
		c.cancelled.Add(1)
	default:
		c.drop(reasonAssociationEnded)
	}
	if t.report > 0 {
		s.flush(t)
	}
	s.mu.Lock()
	s.current, s.active = nil, time.Now()
	_ = s.conn.SetWriteDeadline(time.Time{}) // it may have been cancelled when all was sent
	s.mu.Unlock()
	s.write(end)
}

// sendData sends the octets, message by message, by the streams in turn.
func (s *session) sendData(t *sending, m *media) *transfer.End {
	end := &transfer.End{Transfer: t.number}
	digest, media := sha256.New(), make([]byte, t.answer.Size)
	var b []byte
	pace := newPace(t.answer.Rate)
	for end.Octets < t.answer.Total {
		if !pace.wait(t.ctx) {
			end.Status = transfer.Cancelled
			return end
		}
		piece := media[:min(uint64(t.answer.Size), t.answer.Total-end.Octets)]
		if n, _ := m.ReadAt(piece, int64(t.offset+end.Octets)); n < len(piece) { // an error, or a file that has become shorter
			end.Status = transfer.Failed
			return end
		}
		digest.Write(piece)
		last := end.Octets+uint64(len(piece)) == t.answer.Total
		d := transfer.Data{Transfer: t.number, Offset: end.Octets, Written: time.Now(), Media: piece}
		b = d.Append(b[:0])
		stream := 1 + uint16(end.Messages%uint64(t.answer.Streams))
		if err := s.conn.WriteMessage(b, sctp.Message{Stream: stream, PPID: transfer.PPID, Immediate: last}); err != nil {
			end.Status = transfer.Cancelled
			return end
		}
		end.Octets += uint64(len(piece))
		end.Messages++
		s.lock.Lock()
		s.written += uint64(len(b))
		s.lock.Unlock()
		s.server.counters.messages.Add(1)
		s.server.counters.octets.Add(uint64(len(piece)))
		s.mu.Lock()
		t.sent, s.active = end.Octets, time.Now()
		s.mu.Unlock()
	}
	end.Digest = [transfer.DigestSize]byte(digest.Sum(nil))
	return end
}

// pace has messages leave at a rate.
type pace struct {
	every time.Duration // 0: at once
	next  time.Time
}

func newPace(rate uint32) pace {
	if rate == 0 {
		return pace{}
	}
	return pace{time.Second / time.Duration(rate), time.Now()}
}

// maxBehind is how far a source that was held up catches up; what is older is let go.
const maxBehind = time.Second

// wait waits for the turn of the next message. It returns false when ctx is done.
func (p *pace) wait(ctx context.Context) bool {
	if p.every == 0 {
		return ctx.Err() == nil
	}
	left := time.Until(p.next)
	if left < -maxBehind {
		p.next = time.Now()
	}
	p.next = p.next.Add(p.every)
	if left <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
