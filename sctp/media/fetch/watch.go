// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/sctp"
	"github.com/isthmus-net/isthmus/sctp/media/measure"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// watch is what is seen of an association beside its messages. The engine calls it, and so does who reads.
type watch struct {
	client   *Client
	recorder *Recorder

	mu       sync.Mutex
	receiver measure.Receiver
	marks    []measure.Mark
	rtos     map[measure.Path]time.Duration // that were reported last
	lost     int                            // marks
	last     *transfer.Report
	path     measure.Path
	tsn      uint32
}

// Bounds of what is kept of the server's reports.
const (
	maxMarks = 100_000 // for the failovers of a result
	maxPaths = 1000    // whose RTO is compared with the last one
)

func newWatch(c *Client) *watch {
	w := &watch{client: c, recorder: c.recorder, rtos: map[measure.Path]time.Duration{}}
	c.conn.Observe(w.passage)
	return w
}

func (w *watch) close() { w.client.conn.Observe(nil) }

// passage takes a chunk that has come.
func (w *watch) passage(at time.Time, p *sctp.Passage) {
	if p.How != sctp.Arrived && p.How != sctp.Duplicated || p.Stream == transfer.ControlStream {
		return
	}
	c := measure.Chunk{At: at, Path: measure.Path(p.Pair), TSN: p.TSN, Stream: p.Stream, Octets: p.Octets, Again: p.How == sctp.Duplicated}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.receiver.Add(&c)
	w.path, w.tsn = c.Path, c.TSN
	if w.recorder != nil {
		w.recorder.chunk(&c)
	}
}

// message writes a message down.
func (w *watch) message(d *transfer.Data, stream uint16, now time.Time, delay *measure.Delay) {
	if w.recorder == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recorder.message(d, stream, now, delay)
}

// report takes one of the sender.
func (w *watch) report(r *transfer.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = r
	w.lost += int(r.Lost)
	for _, m := range r.Marks {
		w.mark(measure.Mark{Kind: m.Kind, Path: measure.Path{Local: m.Local, Remote: m.Remote}, At: m.At, TSN: m.TSN, RTO: m.RTO})
	}
	for i := range r.Paths {
		p := &r.Paths[i]
		path := measure.Path{Local: p.Local, Remote: p.Remote}
		if last, known := w.rtos[path]; last != p.RTO && (known || len(w.rtos) < maxPaths) {
			w.rtos[path] = p.RTO
			w.mark(measure.Mark{Kind: transfer.NewRTO, Path: path, At: r.At, RTO: p.RTO})
		}
	}
	if w.recorder != nil {
		w.recorder.paths(r)
	}
}

// mark keeps a mark, if there is room.
func (w *watch) mark(m measure.Mark) {
	if len(w.marks) == maxMarks {
		w.lost++
		return
	}
	w.marks = append(w.marks, m)
	if w.recorder != nil {
		w.recorder.mark(&m)
	}
}

// now is what was seen last.
func (w *watch) now() (*transfer.Report, measure.Path, uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.path, w.tsn
}

// result puts what was seen into a result.
func (w *watch) result(r *Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Chunks, r.Duplicates, r.Gap, r.ChangesLost, r.MarksLost = w.receiver.Chunks, w.receiver.Again, w.receiver.Gap, w.receiver.Lost, w.lost
	if last := w.last; last != nil {
		r.Sender = measure.Sender{Sent: last.Sent, Late: last.Late, Fast: last.Fast, Copies: last.Copies, Moved: last.Moved}
		r.Retransmitted = r.Sender.Ratio()
	}
	r.Failovers = measure.Failovers(w.receiver.Changes, w.marks)
	if w.recorder != nil {
		w.recorder.failovers(r.Failovers)
		w.recorder.summary(time.Now(), r, w.last != nil)
	}
}
