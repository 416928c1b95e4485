// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of napt-bandwidth.
const (
	naptBandwidthName   = "napt-bandwidth"
	naptBandwidthRounds = 30
	naptBandwidthBytes  = 64 << 20 // of each transfer, as in 1998
	naptShortBytes      = 8 << 20  // in short form
	naptBandwidthLimit  = 2 * time.Minute
)

// naptBandwidthWays take turns in each round.
var naptBandwidthWays = []way{wayDirect4, wayDirect6, wayKernel, wayTayga, wayUser, wayTC, wayXDP}

// naptBandwidth is the experiment napt-bandwidth.
var naptBandwidth = lab.Experiment{
	Name:      naptBandwidthName,
	Summary:   "64 Mbytes by TCP through a translator, with offloads and without, and over Ethernet of 10 and 100 Mbit/s (1998, table 2)",
	NeedsRoot: true,
	Needs:     []string{"tayga"},
	Run:       runNAPTBandwidth,
}

// cables is what the cables do in hardware's place.
type cables string

// What cables do: all that virtual ones can, all but segmentation, so that each packet
// is handled by itself, or nothing, as a wire.
const (
	withOffloads cables = "with offloads"
	withoutGSO   cables = "without segmentation offload"
	asWires      cables = "without any offload"
)

// naptStreams is one row: a direction over cables of a kind.
type naptStreams struct {
	cables    cables
	direction streamDirection
	rates     map[way][]float64 // Mbit/s
	published float64           // translator / forwarder over such a line; 0: over none
}

// label names the row in tables.
func (s *naptStreams) label() string { return string(s.cables) + ", " + string(s.direction) }

func runNAPTBandwidth(ctx context.Context, e *lab.Env) error {
	rounds, size := naptBandwidthRounds, naptBandwidthBytes
	if e.Runs > 0 {
		rounds = e.Runs
	}
	if rounds < longRun {
		size = naptShortBytes
	}
	rep := naptBandwidthReport(rounds, size)
	if err := measureBare(ctx, e, rep, rounds, size); err != nil {
		return err
	}
	if err := measureLines(ctx, e, rep, size); err != nil {
		return err
	}
	return finish(e, rep)
}

// measureBare measures over bare cables, where the machine is the limit.
func measureBare(ctx context.Context, e *lab.Env, rep *report.Report, rounds, size int) error {
	n, done, err := startNAPT(ctx, e, naptBandwidthName, naptPlan{Ways: naptBandwidthWays, Offloads: true})
	if err != nil {
		return err
	}
	defer done()
	if err := n.checkTransfers(ctx, rep); err != nil {
		return err
	}
	rows, err := n.allStreams(ctx, e, rep, rounds, size)
	if err != nil {
		return err
	}
	describeStreams(rep, rows)
	if err := n.healthy(); err != nil {
		return err
	}
	return n.checkPaths(ctx, rep)
}

// allStreams measures both directions with offloads, and then with less and less.
func (n *naptPaths) allStreams(ctx context.Context, e *lab.Env, rep *report.Report, rounds, size int) ([]*naptStreams, error) {
	var rows []*naptStreams
	n.unmeter()
	for _, c := range []cables{withOffloads, withoutGSO, asWires} {
		if err := n.recable(c); err != nil {
			return nil, err
		}
		if err := n.offloadFacts(rep, c); err != nil {
			return nil, err
		}
		for _, d := range []streamDirection{sending, receiving} {
			row := &naptStreams{cables: c, direction: d, rates: map[way][]float64{}}
			e.Step("%s: %d rounds of %d Mbytes on each way", row.label(), rounds, size>>20)
			if err := n.streams(ctx, row, rounds, size); err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// recable switches off what cables of that kind do not do.
func (n *naptPaths) recable(c cables) error {
	for _, p := range n.paths {
		for _, end := range p.ends(n) {
			var err error
			switch c {
			case withoutGSO:
				err = end.node.DisableSegmentation(end.iface)
			case asWires:
				err = end.node.DisableOffloads(end.iface)
			}
			if err != nil {
				return err
			}
		}
	}
	return n.takeFrames()
}

// unmeter takes the meters off the cables: they would look at every packet.
func (n *naptPaths) unmeter() {
	for _, p := range n.paths {
		for _, c := range p.closers {
			_ = c.Close()
		}
		p.closers = nil
	}
}

// offloadFacts notes what the cables of two ways have.
func (n *naptPaths) offloadFacts(rep *report.Report, c cables) error {
	for _, w := range []way{wayKernel, wayXDP} {
		if n.path(w) == nil {
			continue
		}
		text, err := n.inside.Offloads(string(w))
		if err != nil {
			return err
		}
		rep.Fact(fmt.Sprintf("%s, inside's cable of %s", c, w.title()), "%s", text)
	}
	return nil
}

// streams measures one row in rounds of one transfer on each way.
func (n *naptPaths) streams(ctx context.Context, row *naptStreams, rounds, size int) error {
	for round := range rounds {
		for i := range n.paths {
			p := n.paths[(i+round)%len(n.paths)]
			took, err := p.transfer(ctx, n, row.direction, size)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", p.way.title(), row.label(), err)
			}
			row.rates[p.way] = append(row.rates[p.way], float64(size)*8/took.Seconds()/1e6)
		}
	}
	return nil
}

// connect opens a TCP connection from inside to outside. Outside knows itself by
// the address far, which the translator leads to.
func (p *naptPath) connect(ctx context.Context, n *naptPaths) (inside, outside net.Conn, err error) {
	at := p.far
	if !p.way.translates() {
		at = p.target
	}
	return connectVia(ctx, n.inside, n.outside, at, p.target)
}

// connectVia connects two nodes: one listens at an address, the other dials another
// one that leads there.
func connectVia(ctx context.Context, from, to *lab.Node, at, dial netip.Addr) (out, in net.Conn, err error) {
	var listener net.Listener
	err = to.Do(func() (err error) {
		// Multipath TCP, Go's default for listeners, is not what is measured.
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		listener, err = config.Listen(ctx, "tcp", netip.AddrPortFrom(at, 0).String())
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	accepted := make(chan error, 1)
	go func() {
		var err error
		in, err = listener.Accept()
		accepted <- err
	}()
	err = from.Do(func() (err error) {
		dialer := net.Dialer{Timeout: daemonStart}
		out, err = dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(dial, port).String())
		return err
	})
	if err != nil {
		listener.Close()
	}
	return out, in, errors.Join(err, <-accepted)
}

// transfer sends so many bytes and returns the time until all have arrived.
func (p *naptPath) transfer(ctx context.Context, n *naptPaths, d streamDirection, size int) (time.Duration, error) {
	inside, outside, err := p.connect(ctx, n)
	if err != nil {
		return 0, err
	}
	hangUp := func() {
		inside.Close()
		outside.Close()
	}
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)()
	out, in := inside, outside
	if d == receiving {
		out, in = outside, inside
	}
	deadline := time.Now().Add(naptBandwidthLimit)
	if err := errors.Join(out.SetDeadline(deadline), in.SetDeadline(deadline)); err != nil {
		return 0, err
	}
	begin := time.Now()
	sent := make(chan error, 1)
	go func() {
		block := make([]byte, streamBlock)
		var err error
		for left := size; left > 0 && err == nil; left -= len(block) {
			_, err = out.Write(block[:min(left, len(block))])
		}
		sent <- errors.Join(err, out.Close())
	}()
	// Plain reads and writes: no shortcut that one family of addresses would have.
	got, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{in}, make([]byte, streamBlock))
	took := time.Since(begin)
	if err := errors.Join(err, <-sent); err != nil {
		return 0, err
	}
	if got != int64(size) {
		return 0, fmt.Errorf("%d of %d bytes arrived", got, size)
	}
	return took, nil
}
