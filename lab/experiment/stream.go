// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of TCP streams. A machine that has two speeds changes between them within
// seconds: what is shorter meets one of them and not the other.
const (
	streamRounds = 3
	streamTime   = 5 * time.Second
	streamShort  = 50 * time.Millisecond // with fewer rounds
	streamWarm   = 50 * time.Millisecond // the window grows
	streamBlock  = 256 << 10
)

// streamForm is how many rounds of streams there are, and how long each stream is.
func streamForm(runs int) (rounds int, length time.Duration) {
	switch {
	case runs == 0:
		return streamRounds, streamTime
	case runs < streamRounds:
		return runs, streamShort
	}
	return runs, streamTime
}

// streamed is what one stream came to.
type streamed struct {
	rate float64 // Mbit/s at the receiver
	cpu  float64 // microseconds for each segment, 0 if no one counts
}

// spent is the CPU of a stream, or that no one has counted it.
func (s streamed) spent() report.Value {
	if s.cpu <= 0 {
		return report.None("not counted")
	}
	return report.Measured(s.cpu)
}

// sendStream sends over a connection of TCP for so long, once the window has grown, and closes
// both ends.
func sendStream(ctx context.Context, out, in net.Conn, length time.Duration, u *usage) (s streamed, err error) {
	hangUp := func() {
		in.Close()
		out.Close()
	}
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)()
	before := u.time()
	poured, enough := make(chan error, 1), make(chan struct{})
	go func() { poured <- pour(out, length, enough) }()
	n, took, err := drink(in, length, sync.OnceFunc(func() { close(enough) }))
	if err := errors.Join(err, <-poured); err != nil {
		return s, err
	}
	s.rate = float64(n) * 8 / took.Seconds() / 1e6
	if u == nil {
		return s, nil
	}
	cpu := float64(u.time()-before) / float64(time.Microsecond)
	segments, err := segmentsOf(out)
	s.cpu = cpu / float64(max(segments, 1))
	return s, err
}

// segmentsOf is how many segments with data TCP has sent by a connection: each by itself, also of
// those that went to the device as one frame.
func segmentsOf(c net.Conn) (segments uint32, err error) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			segments = info.Data_segs_out
		}
	})
	return segments, errors.Join(err, failed)
}

// pour sends until the receiver has counted enough. It ends first, so that nothing
// is sent to a receiver that has gone.
func pour(out net.Conn, length time.Duration, enough <-chan struct{}) (err error) {
	defer closing(&err, out.(*net.TCPConn).CloseWrite)
	if err := out.SetWriteDeadline(time.Now().Add(length + daemonStart)); err != nil {
		return err
	}
	block := make([]byte, streamBlock)
	for {
		select {
		case <-enough:
			return nil
		default:
		}
		if _, err := out.Write(block); err != nil {
			return err
		}
	}
}

// drink counts what arrives for so long, once the stream has grown, says that it is
// enough, and reads to the end.
func drink(in net.Conn, length time.Duration, enough func()) (n int, took time.Duration, err error) {
	defer enough()
	block := make([]byte, streamBlock)
	begin := time.Now()
	if err := in.SetReadDeadline(begin.Add(length + daemonStart)); err != nil {
		return 0, 0, err
	}
	var warm time.Time
	for {
		got, err := in.Read(block)
		switch {
		case errors.Is(err, io.EOF) && took > 0:
			return n, took, nil
		case err != nil:
			return 0, 0, err
		case took > 0: // counted
		case warm.IsZero():
			if time.Since(begin) >= streamWarm {
				warm = time.Now()
			}
		default:
			n += got
			if since := time.Since(warm); since >= length {
				took = since
				enough()
			}
		}
	}
}

// streamDirection is which end sends.
type streamDirection string

// The two directions.
const (
	sending   streamDirection = "client sends"
	receiving streamDirection = "client receives"
)

// streamWay is a way that TCP streams take.
type streamWay struct {
	way way
	// connect opens a connection for a stream in that direction.
	connect func(ctx context.Context, d streamDirection) (out, in net.Conn, err error)
}

// streamRow is the streams of one row, by way.
type streamRow struct {
	label      string
	direction  streamDirection
	rates, cpu map[way][]float64
}

func newStreamRow(label string, d streamDirection) *streamRow {
	return &streamRow{label, d, map[way][]float64{}, map[way][]float64{}}
}

// measure measures the row in rounds of one stream on each way.
func (r *streamRow) measure(ctx context.Context, ways []streamWay, rounds int, length time.Duration, u *usage) error {
	return inTurn(ctx, rounds, len(ways), func(_, at int) error {
		s, err := r.stream(ctx, ways[at], length, u)
		if err == nil {
			r.add(ways[at].way, s)
		}
		return err
	})
}

// stream sends one stream of the row.
func (r *streamRow) stream(ctx context.Context, w streamWay, length time.Duration, u *usage) (s streamed, err error) {
	out, in, err := w.connect(ctx, r.direction)
	if err == nil {
		s, err = sendStream(ctx, out, in, length, u)
	}
	if err != nil {
		return s, fmt.Errorf("%s, %s: %w", w.way.title, r.label, err)
	}
	return s, nil
}

func (r *streamRow) add(w way, s streamed) {
	r.rates[w] = append(r.rates[w], s.rate)
	if s.cpu > 0 {
		r.cpu[w] = append(r.cpu[w], s.cpu)
	}
}

// streamTables adds the rates of rows, and what they cost.
func streamTables(rep *report.Report, ways []way, rows []*streamRow) {
	rates := wayTable("TCP, Mbit/s: median (lowest to highest)", ways, "stream")
	for _, r := range rows {
		rates.Rows = append(rates.Rows, cells(ways, func(w way) string { return spread(r.rates[w], 0) }, r.label))
	}
	rep.Tables = append(rep.Tables, rates)
	streamCPU(rep, ways, rows)
}

// streamCPU adds what the streams of rows cost, if anyone has counted it.
func streamCPU(rep *report.Report, ways []way, rows []*streamRow) {
	cpu := wayTable("TCP, microseconds of CPU a packet: median (lowest to highest)", ways, "stream")
	cpu.Notes = []string{"All that hosts, router and program need on all CPUs. Packets are the segments that the sender's TCP counts: with offloads many cross a cable as one frame, and a smaller MTU makes smaller ones, of 1,208 octets by Teredo where plain IPv6 has 1,428."}
	for _, r := range rows {
		if len(r.cpu) > 0 {
			cpu.Rows = append(cpu.Rows, cells(ways, func(w way) string { return spread(r.cpu[w], 2) }, r.label))
		}
	}
	if len(cpu.Rows) > 0 {
		rep.Tables = append(rep.Tables, cpu)
	}
}

// streamChart adds the picture of rows.
func streamChart(rep *report.Report, title string, ways []way, rows []*streamRow) {
	bars := &report.Bars{Unit: "Mbit/s"}
	for _, r := range rows {
		bars.Groups = append(bars.Groups, wayBars(r.label, ways, func(w way) []float64 { return r.rates[w] }))
	}
	rep.AddChart(report.Chart{Name: "streams", Title: title, Bars: bars})
}

// streamNote says how long streams were.
func streamNote(rounds int, length time.Duration) string {
	return fmt.Sprintf("One TCP stream at a time, for %v after %v; ratios are those of streams that followed each other, %d rounds: median (lowest to highest).", length, streamWarm, rounds)
}
