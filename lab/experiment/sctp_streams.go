// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
	"github.com/isthmus-net/isthmus/lab/traffic"
	"github.com/isthmus-net/isthmus/sctp"
)

const sctpStreamsName = "sctp-streams"

// sctpStreamsExperiment is the experiment sctp-streams.
var sctpStreamsExperiment = lab.Experiment{
	Name:      sctpStreamsName,
	Summary:   "delay of control messages beside data that is lost: in the same stream, by four streams in turn, in a stream of their own, and by TCP",
	NeedsRoot: true,
	Run:       runSCTPStreams,
}

// Choices of sctp-streams.
const (
	streamsRate    = 10e6 // bit/s of the line
	streamsDelay   = 20 * time.Millisecond
	controlRate    = 50 // messages a second
	controlSize    = 100
	dataSize       = 1000
	streamsTime    = 20 * time.Second
	streamsShort   = 2 * time.Second
	streamsJudged  = 1 // of streamsLosses
	controlFlow    = 1
	dataFlow       = 2
	controlPercent = 99
)

// streamsLosses are probabilities of packets with data.
var streamsLosses = []float64{0.005, 0.01, 0.02}

// streamsLoad is how much data goes beside control.
type streamsLoad struct {
	name, title, figure string
	rate                float64 // messages a second
}

// Of the paced load, congestion control lets through about twice as much at the highest of the losses: control waits for
// what is lost, and hardly for a window. The other load fills every buffer.
var streamsLoads = []streamsLoad{
	{"paced", "paced", figureOwnStreamPaced, 80},
	{"full", "as fast as it goes", figureOwnStreamBulk, 5000},
}

// streamsWay is how control and data share a connection.
type streamsWay struct {
	title    string
	role     report.Role
	protocol traffic.Protocol
	together int  // streams that all messages go by in turn; 0: control goes by stream 0, data by 1 to 3
	usrsctp  bool // in the place of ours
	second   bool // after the others, and at the loss that is judged alone
}

var streamsWays = []streamsWay{
	streamsTCP:        {"TCP Reno", report.Reference, traffic.TCP, 1, false, false},
	streamsOne:        {"SCTP, one stream", report.OursTC, traffic.SCTP, 1, false, false},
	streamsOwn:        {"SCTP, a stream of its own", report.Ours, traffic.SCTP, 0, false, false},
	streamsTurn:       {"SCTP, four streams in turn", report.OursXDP, traffic.SCTP, sctpStreams, false, true},
	streamsOneUsrsctp: {"usrsctp, one stream", report.Published, traffic.SCTP, 1, true, true},
	streamsOwnUsrsctp: {"usrsctp, a stream of its own", report.Peer, traffic.SCTP, 0, true, true},
}

// Places in streamsWays.
const (
	streamsTCP = iota
	streamsOne
	streamsOwn
	streamsTurn
	streamsOneUsrsctp
	streamsOwnUsrsctp
)

// streamsCell is one load at one loss: the delays of control messages in ms, by way; nil where it was not measured.
type streamsCell struct {
	load   streamsLoad
	loss   float64
	delays [][]float64
}

// runSCTPStreams measures one load and loss after the other, three ways at once, each on a line of its own with the same seed.
func runSCTPStreams(ctx context.Context, e *lab.Env) (err error) {
	l, err := newTransportLab(ctx, e, sctpStreamsName)
	if err != nil {
		return err
	}
	defer closing(&err, l.lab.Close)
	length, losses := streamsTime, streamsLosses
	if e.Runs > 0 && e.Runs < longRun {
		length, losses = streamsShort, losses[streamsJudged:streamsJudged+1]
	}
	var cells []*streamsCell
	for _, load := range streamsLoads {
		for _, loss := range losses {
			e.Step("control beside data, %s, %.1f %% lost: three ways at once, %v", load.title, 100*loss, length)
			c := &streamsCell{load, loss, make([][]float64, len(streamsWays))}
			cells = append(cells, c)
			if err := c.measureWays(ctx, l, false, length); err != nil {
				return err
			}
			if loss != streamsLosses[streamsJudged] {
				continue
			}
			e.Step("  the same by other ways")
			if err := c.measureWays(ctx, l, true, length); err != nil {
				return err
			}
		}
	}
	return finish(e, streamsReport(cells))
}

// measureWays measures the first ways, or the second ones.
func (c *streamsCell) measureWays(ctx context.Context, l *transportLab, second bool, length time.Duration) error {
	wait, working := errgroup.WithContext(ctx)
	for i, way := range streamsWays {
		if way.second != second {
			continue
		}
		name := fmt.Sprintf("%s-%.0f-%d", c.load.name, 1000*c.loss, i)
		n, err := l.net(name, lossyData(c.loss, uint64(1000*c.loss)))
		if err != nil {
			return errors.Join(err, wait.Wait())
		}
		wait.Go(func() error { return c.measure(working, n, i, length) })
	}
	return wait.Wait()
}

// lossyData is a line that loses packets with data, and no others.
func lossyData(loss float64, seed uint64) lab.WireConfig {
	lane := lab.LaneConfig{Rate: streamsRate, Delay: streamsDelay}
	lossy := lane
	lossy.Loss, lossy.Lossy = loss, func(frame []byte) bool { return len(frame) > dataSize }
	return lab.WireConfig{AtoB: lossy, BtoA: lane, Seed: seed}
}

// measure measures one way.
func (c *streamsCell) measure(ctx context.Context, n *transportNet, way int, length time.Duration) (err error) {
	if c.delays[way], err = n.control(ctx, streamsWays[way], c.load.rate, length); err == nil && len(c.delays[way]) == 0 {
		err = errors.New("no control message has come")
	}
	if err != nil {
		err = fmt.Errorf("%s, %.1f %% lost, %s: %w", streamsWays[way].title, 100*c.loss, c.load.title, err)
	}
	return err
}

// controlSink keeps the delays of control messages, in ms.
type controlSink struct {
	delays []float64
	ended  chan struct{}
}

// Got implements traffic.Sink.
func (c *controlSink) Got(r *traffic.Record) {
	if r.Flow == controlFlow {
		c.delays = append(c.delays, inMilliseconds(r.Delay()))
	}
}

// Ended implements traffic.Sink.
func (c *controlSink) Ended(flow uint32, _, _ netip.AddrPort, _ uint32) {
	if flow == controlFlow {
		select {
		case c.ended <- struct{}{}:
		default:
		}
	}
}

// controlLimit is for the end of the control messages, behind all data that is in buffers.
const controlLimit = 30 * time.Second

// control sends control and data by one connection, and gives the delays of control messages in ms.
func (n *transportNet) control(ctx context.Context, way streamsWay, data float64, length time.Duration) (delays []float64, err error) {
	sink := &controlSink{ended: make(chan struct{}, 1)}
	connect := n.connect
	if way.usrsctp {
		connect = n.connectUsrsctp
	}
	c, err := connect(ctx, way.protocol, sink)
	if err != nil {
		return nil, err
	}
	err = sink.exchange(ctx, way.writers(c.write), data, length)
	err = errors.Join(err, c.stop())
	return sink.delays, err
}

// streamsConn is a connection with its receiver.
type streamsConn struct {
	write func(stream uint16, b []byte) error
	stop  func() error // with the data that is still in its buffers; the sink gets nothing more
}

// connect makes one of our generator's.
func (n *transportNet) connect(ctx context.Context, p traffic.Protocol, sink traffic.Sink) (*streamsConn, error) {
	o := traffic.Options{Congestion: tcpControl, NoDelay: true, SCTP: sctpTransport()}
	r, err := n.receive(ctx, p, o, sink)
	if err != nil {
		return nil, err
	}
	conn, err := n.dial(ctx, p, r.Addr, o)
	if err != nil {
		return nil, errors.Join(err, r.stop())
	}
	if a, ok := conn.(*sctp.Conn); ok {
		return &streamsConn{
			func(stream uint16, b []byte) error { return a.WriteMessage(b, sctp.Message{Stream: stream}) },
			func() error { a.Abort("enough"); return r.stop() },
		}, nil
	}
	return &streamsConn{
		func(_ uint16, b []byte) error { _, err := conn.Write(b); return err },
		func() error { return errors.Join(conn.Close(), r.stop()) },
	}, nil
}

// connectUsrsctp makes one of usrsctp.
func (n *transportNet) connectUsrsctp(ctx context.Context, _ traffic.Protocol, sink traffic.Sink) (*streamsConn, error) {
	p, err := n.associateUsrsctp(ctx)
	if err != nil {
		return nil, err
	}
	var receiving errgroup.Group
	p.receive(&receiving, sink)
	return &streamsConn{p.source.Messages.WriteMessage, func() error { return errors.Join(p.stop(), receiving.Wait()) }}, nil
}

// exchange sends control and data by these writers, and waits for the end of control.
func (c *controlSink) exchange(ctx context.Context, writers [2]io.Writer, data float64, length time.Duration) error {
	flows := [2]traffic.Flow{
		{ID: controlFlow, Rate: controlRate, Poisson: true, Seed: 1, Duration: length, Size: traffic.Size{Kind: traffic.Constant, Mean: controlSize}},
		{ID: dataFlow, Rate: data, Duration: length, Size: traffic.Size{Kind: traffic.Constant, Mean: dataSize}},
	}
	sending, working := errgroup.WithContext(ctx)
	for i := range flows {
		sending.Go(func() error {
			_, err := flows[i].Send(working, writers[i])
			return err
		})
	}
	if err := sending.Wait(); err != nil {
		return err
	}
	select {
	case <-c.ended:
		return nil
	case <-time.After(controlLimit):
		return errors.New("the end of the control messages has not come")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writers are those of control and of data.
func (w *streamsWay) writers(write func(stream uint16, b []byte) error) [2]io.Writer {
	if w.together > 0 {
		shared := &oneByOne{to: &streamWriter{write: write, streams: w.together}}
		return [2]io.Writer{shared, shared}
	}
	return [2]io.Writer{&streamWriter{write: write, streams: 1}, &streamWriter{write: write, from: 1, streams: sctpStreams - 1}}
}

// oneByOne keeps messages of two senders whole in one stream of octets.
type oneByOne struct {
	mu sync.Mutex
	to io.Writer
}

// Write implements io.Writer.
func (w *oneByOne) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}

// streamWriter sends each message by the next of some streams.
type streamWriter struct {
	write         func(stream uint16, b []byte) error
	from, streams int
	next          int
}

// Write implements io.Writer.
func (w *streamWriter) Write(b []byte) (int, error) {
	stream := w.from + w.next%w.streams
	w.next++
	return len(b), w.write(uint16(stream), b)
}

// passedBy is the delay that so many percent do not go over.
func passedBy(delays []float64, percent int) float64 {
	sorted := slices.Sorted(slices.Values(delays))
	return sorted[(len(sorted)*percent+99)/100-1]
}

// streamsReport shows the delays by load, loss and way.
func streamsReport(cells []*streamsCell) *report.Report {
	r := &report.Report{
		Experiment: sctpStreamsName, Title: "Control messages beside data", Peer: "usrsctp",
		Notes: []string{
			fmt.Sprintf("%d messages of %d octets a second at Poisson times are control, messages of %d octets are data, by one connection over %d Mbit/s and %v each way. Data is paced at %.0f messages a second, or as fast as it goes. Only packets of more than %d octets are lost, so that control waits for data, not for itself, but where one packet carries both.", controlRate, controlSize, dataSize, int(streamsRate/1e6), streamsDelay, streamsLoads[0].rate, dataSize),
			fmt.Sprintf("The study's claim (section 3.3): control in a stream of its own does not wait for data that is lost, as it does in one connection of TCP. TCP is %s without Nagle's algorithm, with buffers that the kernel fits to the line; the send buffer of SCTP has %d KiB.", tcpControl, sctpTransport().Parameters.SendBuffer>>10),
			"A delay is from a message's write to its arrival; what comes due while the sender still waits with another is written, and counted, later. In one stream beside data as fast as it goes, that makes delays look shorter than they are.",
			fmt.Sprintf("usrsctp has the same buffers; its messages go from our generator to its process one after the other, so that control may wait behind data that waits for room. With four streams in turn, data and control go round by all of them: a message waits for what is lost of its own stream alone. These ways are measured after the others, at %.1f %% lost.", 100*streamsLosses[streamsJudged]),
			fmt.Sprintf("The musts are of %.1f %% lost.", 100*streamsLosses[streamsJudged]),
		},
	}
	table := report.Table{Title: "delay of control messages, ms", Columns: []string{"data", "lost, %", "way", "messages", "median", "90 %", "99 %", "longest"}}
	for i, c := range cells {
		h := &report.Histogram{Unit: "ms", Bin: 2}
		for k, way := range streamsWays {
			d := c.delays[k]
			if d == nil {
				continue
			}
			row := []string{c.load.title, fmt.Sprintf("%.1f", 100*c.loss), way.title, fmt.Sprint(len(d))}
			for _, percent := range []int{50, 90, controlPercent, 100} {
				row = append(row, fmt.Sprintf("%.1f", passedBy(d, percent)))
			}
			table.Rows = append(table.Rows, row)
			h.Add(way.title, way.role, d)
		}
		r.AddChart(report.Chart{Name: fmt.Sprintf("control-%d", i+1), Title: fmt.Sprintf("Delay of control messages, data %s, %.1f %% of it lost", c.load.title, 100*c.loss), Histogram: h})
		if c.loss == streamsLosses[streamsJudged] {
			r.Figures = append(r.Figures, c.figures()...)
		}
	}
	r.Tables = append(r.Tables, table)
	return r
}

// figures compares the ways.
func (c *streamsCell) figures() []report.Figure {
	by := func(way int) float64 { return passedBy(c.delays[way], controlPercent) }
	beside, of := "99 % of control messages, data "+c.load.title+": ", report.Measured
	return []report.Figure{
		{Name: beside + "one stream", Unit: "ms", Decimals: 1, Peer: of(by(streamsOneUsrsctp)), Isthmus: of(by(streamsOne))},
		{Name: beside + "four streams in turn", Unit: "ms", Decimals: 1, Isthmus: of(by(streamsTurn))},
		{Name: beside + "a stream of their own", Unit: "ms", Decimals: 1, Peer: of(by(streamsOwnUsrsctp)), Isthmus: of(by(streamsOwn))},
		{Name: beside + "TCP / a stream of their own", Decimals: 2, Peer: of(by(streamsTCP) / by(streamsOwnUsrsctp)), Isthmus: of(by(streamsTCP) / by(streamsOwn))},
		{
			Name: c.load.figure, Decimals: 2, Peer: of(by(streamsOneUsrsctp) / by(streamsOwnUsrsctp)), Isthmus: of(by(streamsOne) / by(streamsOwn)),
			Must: must(sctpStreamsName, c.load.figure),
		},
	}
}
