// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/isthmus-net/isthmus/sctp/media/measure"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// ErrRefused is the error of a source that the server does not send.
var ErrRefused = errors.New("the server does not send it")

// ErrDigest is that of octets which are not those of the server.
var ErrDigest = errors.New("what has come is not what was sent")

// errSize is that of a server which does not keep to what it has said, or was asked for.
var errSize = errors.New("the server sends another number of octets than it has said, or than was asked for")

// Result is what a transfer came to.
type Result struct {
	Name          string             `json:"name"`
	Octets        uint64             `json:"octets"`
	Messages      uint64             `json:"messages"`
	SHA256        string             `json:"sha256"`        // of what has come
	ServerSHA256  string             `json:"server_sha256"` // of what was sent
	Duration      time.Duration      `json:"duration_ns"`   // from the answer, or data that have overtaken it, to the last octet
	Streams       uint16             `json:"streams"`
	Throughput    float64            `json:"throughput_mbit_s"`
	DelayMin      time.Duration      `json:"delay_min_ns"` // one way, if the clocks of both ends are equal
	DelayMean     time.Duration      `json:"delay_mean_ns"`
	DelayMax      time.Duration      `json:"delay_max_ns"`
	DelayDev      time.Duration      `json:"delay_deviation_ns"`
	Jitter        time.Duration      `json:"jitter_ns"` // RFC 3550 section 6.4.1
	Chunks        uint64             `json:"chunks"`    // of data that came for the first time
	Duplicates    uint64             `json:"duplicate_chunks"`
	Gap           time.Duration      `json:"longest_gap_ns"`
	Sender        measure.Sender     `json:"sender"` // as the last report has it
	Retransmitted float64            `json:"retransmission_ratio"`
	MarksLost     int                `json:"marks_lost"`
	ChangesLost   int                `json:"changes_lost"`
	Failovers     []measure.Failover `json:"failovers"`
}

// Progress is how far a transfer is.
type Progress struct {
	Octets, Total uint64
	Rate          float64          // Mbit/s since the last one
	Sender        *transfer.Report // the last one; nil before
	From          measure.Path     // by which data came last
	TSN           uint32           // that came last
}

// Options say what is done with what comes.
type Options struct {
	Request  transfer.Request
	Output   io.Writer // nil: nothing is kept
	Progress func(Progress)
	Every    time.Duration // between two calls of Progress
}

// maxAhead bounds octets that come before others of other streams, and those of messages that are not whole.
const maxAhead = 64 << 20

// getting is a transfer under way.
type getting struct {
	options *Options
	client  *Client
	watch   *watch
	answer  *transfer.Answer
	end     *transfer.End
	order   transfer.Order
	digest  io.Writer
	sum     func() string

	began, last time.Time
	messages    uint64
	octets      uint64 // that have come, in order or not
	farthest    uint64 // offset that they reach to
	delay       measure.Delay
	shown       uint64 // octets at the last progress
	shownAt     time.Time
}

// Get gets a source. When ctx is done it is cancelled.
func (c *Client) Get(ctx context.Context, o Options) (*Result, error) {
	c.number++
	o.Request.Transfer = c.number
	h := sha256.New()
	g := &getting{options: &o, client: c, order: transfer.Order{Limit: maxAhead}, digest: h, sum: func() string { return hex.EncodeToString(h.Sum(nil)) }}
	g.watch = newWatch(c)
	defer g.watch.close()
	defer context.AfterFunc(ctx, func() {
		_ = c.write(&transfer.Cancel{Transfer: c.number})
		_ = c.conn.SetReadDeadline(time.Now().Add(cancelWait))
	})()
	if err := c.write(&o.Request); err != nil {
		return nil, err
	}
	for !g.complete() {
		if err := g.step(); err != nil {
			if ctx.Err() != nil {
				return g.result(), ctx.Err()
			}
			return g.result(), err
		}
	}
	g.show(time.Now())
	r := g.result()
	if r.SHA256 != r.ServerSHA256 {
		return r, fmt.Errorf("%w: SHA-256 %s, not %s", ErrDigest, r.SHA256, r.ServerSHA256)
	}
	return r, nil
}

// complete reports whether the end and all octets before it are there.
func (g *getting) complete() bool { return g.end != nil && g.order.Next() == g.end.Octets }

// step takes one message.
func (g *getting) step() error {
	m, stream, err := g.client.next()
	if err != nil {
		return err
	}
	now := time.Now()
	switch m := m.(type) {
	case *transfer.Data:
		if m.Transfer == g.client.number {
			err = g.take(m, stream, now)
		}
	case *transfer.Answer:
		if m.Transfer != g.client.number || g.answer != nil {
			return transfer.ErrMessage
		}
		if m.Status != transfer.OK {
			return fmt.Errorf("%w: %s", ErrRefused, m.Why())
		}
		if limit := g.options.Request.Limit; limit > 0 && m.Total > limit || m.Total < g.farthest {
			return errSize
		}
		if g.answer = m; g.began.IsZero() {
			g.began, g.last, g.shownAt = now, now, now
		}
	case *transfer.End:
		if m.Transfer != g.client.number {
			break // of one that was cancelled
		}
		if m.Status != transfer.OK {
			return fmt.Errorf("the server has stopped at octet %d: %s", m.Octets, m.Status)
		}
		switch {
		case g.answer == nil || g.end != nil:
			return transfer.ErrMessage
		case m.Octets != g.answer.Total:
			return errSize
		}
		g.end = m
	case *transfer.Report:
		if m.Transfer == g.client.number {
			g.watch.report(m)
		}
	default:
		return transfer.ErrMessage
	}
	if err == nil && g.options.Progress != nil && g.answer != nil && now.Sub(g.shownAt) >= g.options.Every {
		g.show(now)
	}
	return err
}

// take takes data. They may overtake the answer, which goes by another stream.
func (g *getting) take(d *transfer.Data, stream uint16, now time.Time) error {
	if g.began.IsZero() {
		g.began, g.shownAt = now, now
	}
	g.farthest = max(g.farthest, d.Offset+uint64(len(d.Media)))
	if g.answer != nil && g.farthest > g.answer.Total {
		return errSize
	}
	g.messages++
	g.octets += uint64(len(d.Media))
	g.last = now
	g.delay.Add(d.Written, now)
	g.watch.message(d, stream, now, &g.delay)
	return g.order.Add(d, func(b []byte) error {
		_, _ = g.digest.Write(b) // never fails
		if g.options.Output == nil {
			return nil
		}
		_, err := g.options.Output.Write(b)
		return err
	})
}

// show tells how far the transfer is.
func (g *getting) show(now time.Time) {
	if g.options.Progress == nil || g.answer == nil {
		return
	}
	p := Progress{Octets: g.octets, Total: g.answer.Total}
	if d := now.Sub(g.shownAt).Seconds(); d > 0 {
		p.Rate = float64(g.octets-g.shown) * 8 / d / 1e6
	}
	p.Sender, p.From, p.TSN = g.watch.now()
	g.shown, g.shownAt = g.octets, now
	g.options.Progress(p)
}

// result is what there is until now.
func (g *getting) result() *Result {
	d := &g.delay
	r := &Result{
		Name: g.options.Request.Name, Octets: g.order.Next(), Messages: g.messages, SHA256: g.sum(), Duration: g.last.Sub(g.began),
		DelayMin: d.Least, DelayMean: d.Mean(), DelayMax: d.Most, DelayDev: d.Deviation(), Jitter: d.Jitter(),
	}
	if g.answer != nil {
		r.Streams = g.answer.Streams
	}
	if g.end != nil {
		r.ServerSHA256 = hex.EncodeToString(g.end.Digest[:])
	}
	if r.Duration > 0 {
		r.Throughput = float64(g.octets) * 8 / r.Duration.Seconds() / 1e6
	}
	g.watch.result(r)
	return r
}
