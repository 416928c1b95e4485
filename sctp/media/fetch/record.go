// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/internal/trace"
	"github.com/isthmus-net/isthmus/sctp"
	"github.com/isthmus-net/isthmus/sctp/media/measure"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// Recorder writes down what a transfer shows: tables of CSV, packets as pcapng, or both. Chunks, messages and packets
// are written behind a buffer; the watch holds a lock around all but packets.
type Recorder struct {
	tables struct{ tsn, messages, rate, paths, marks, failovers, summary *measure.Table }
	files  []*file

	second time.Time // of the rate
	octets uint64

	capturing sync.Mutex
	packets   *trace.Writer // nil: none are captured
	block     []byte
	failed    error
	over      bool
	ended     chan struct{} // closed with the last packet of an association
}

type file struct {
	*os.File
	*bufio.Writer
}

// Write implements [io.Writer].
func (f *file) Write(b []byte) (int, error) { return f.Writer.Write(b) }

// snap is how much of a packet is captured.
const snap = 1 << 16

// NewRecorder opens files: tables in a folder, which is made, and packets; an empty name is none. Its times count from
// start.
func NewRecorder(folder, capture string, start time.Time) (r *Recorder, err error) {
	r = &Recorder{second: start, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if folder != "" {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return r, err
		}
		t := &r.tables
		for _, one := range []struct {
			table   **measure.Table
			name    string
			columns []string
		}{
			{&t.tsn, "tsn", measure.TSNColumns}, {&t.messages, "messages", measure.MessageColumns}, {&t.rate, "rate", measure.RateColumns},
			{&t.paths, "paths", measure.PathColumns}, {&t.marks, "marks", measure.MarkColumns}, {&t.failovers, "failovers", measure.FailoverColumns},
			{&t.summary, "summary", measure.SummaryColumns},
		} {
			w, err := r.create(filepath.Join(folder, one.name+".csv"))
			if err != nil {
				return r, err
			}
			*one.table = measure.NewTable(w, start, one.columns...)
		}
	}
	if capture != "" {
		w, err := r.create(capture)
		if err != nil {
			return r, err
		}
		if r.packets, err = trace.NewWriter(w, "isthmus sctp get"); err != nil {
			return r, err
		}
		r.packets.Snap = snap
	}
	return r, nil
}

func (r *Recorder) create(name string) (io.Writer, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	one := &file{f, bufio.NewWriterSize(f, 1<<16)}
	r.files = append(r.files, one)
	return one, nil
}

// Close writes what is left, and returns what has failed.
func (r *Recorder) Close() error {
	r.capturing.Lock()
	err := r.failed
	r.packets = nil
	r.capturing.Unlock()
	t := &r.tables
	for _, one := range []*measure.Table{t.tsn, t.messages, t.rate, t.paths, t.marks, t.failovers, t.summary} {
		if one != nil {
			err = errors.Join(err, one.Close())
		}
	}
	for _, f := range r.files {
		err = errors.Join(err, f.Flush(), f.File.Close())
	}
	r.files = nil
	return err
}

func (r *Recorder) chunk(c *measure.Chunk) {
	if t := r.tables.tsn; t != nil {
		t.Row(c.At, c.Path.Local, c.Path.Remote, c.TSN, c.Stream, c.Octets, c.Again)
	}
}

func (r *Recorder) message(d *transfer.Data, stream uint16, now time.Time, delay *measure.Delay) {
	if t := r.tables.messages; t != nil {
		t.Row(now, stream, d.Offset, len(d.Media), now.Sub(d.Written), delay.Jitter())
	}
	if t := r.tables.rate; t != nil {
		for ; now.Sub(r.second) >= time.Second; r.second = r.second.Add(time.Second) {
			t.Row(r.second, r.octets, float64(r.octets)*8/1e6)
			r.octets = 0
		}
		r.octets += uint64(len(d.Media))
	}
}

func (r *Recorder) mark(m *measure.Mark) {
	if t := r.tables.marks; t != nil {
		t.Row(m.At, m.Path.Local, m.Path.Remote, m.Kind, m.TSN, m.RTO)
	}
}

func (r *Recorder) paths(report *transfer.Report) {
	t := r.tables.paths
	for i := range report.Paths {
		if p := &report.Paths[i]; t != nil {
			t.Row(report.At, p.Local, p.Remote, sctp.PathState(p.State), p.Current, int(p.Errors), p.RTO, p.SRTT, p.CWND, p.Flight, report.NextTSN)
		}
	}
}

func (r *Recorder) failovers(list []measure.Failover) {
	t := r.tables.failovers
	for i := range list {
		if f := &list[i]; t != nil {
			t.Row(f.LastOld, f.Change.From.Local, f.Change.From.Remote, f.To.Local, f.To.Remote, f.Gap, f.First, f.New, f.Down, f.RTO)
		}
	}
}

// summary writes down what a result says of the whole transfer; of the sender, if it has reported.
func (r *Recorder) summary(at time.Time, result *Result, reported bool) {
	t := r.tables.summary
	if t == nil {
		return
	}
	values := []any{
		result.Octets, result.Messages, result.Throughput, result.DelayMean, result.DelayDev, result.Jitter,
		result.Chunks, result.Duplicates, result.Gap, "", "", "", "", "", "",
	}
	if s := &result.Sender; reported {
		values = append(values[:9], s.Sent, s.Late, s.Fast, s.Copies, s.Moved, 100*result.Retransmitted)
	}
	t.Row(at, values...)
}
