// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of napt-bandwidth.
const (
	naptBandwidthName = "napt-bandwidth"
	naptCheckLimit    = 2 * time.Minute // of a transfer that is checked byte by byte
)

// naptBandwidthWays take turns in each round.
var naptBandwidthWays = []way{wayDirect4, wayDirect6, wayKernel, wayTayga, wayUser, wayTC, wayXDP}

// naptBandwidth is the experiment napt-bandwidth.
var naptBandwidth = lab.Experiment{
	Name:      naptBandwidthName,
	Summary:   "TCP through a translator, with offloads and without, and over Ethernet of 10 and 100 Mbit/s (1998, table 2)",
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
	streamResults
	published float64 // translator / forwarder over such a line; 0: over none
}

// label names the row in tables.
func (s *naptStreams) label() string { return string(s.cables) + ", " + string(s.direction) }

func runNAPTBandwidth(ctx context.Context, e *lab.Env) error {
	rounds, length := streamForm(e.Runs)
	rep := naptBandwidthReport(rounds, length)
	if err := measureBare(ctx, e, rep, rounds, length); err != nil {
		return err
	}
	if err := measureLines(ctx, e, rep, rounds, length); err != nil {
		return err
	}
	return finish(e, rep)
}

// measureBare measures over bare cables, where the machine is the limit.
func measureBare(ctx context.Context, e *lab.Env, rep *report.Report, rounds int, length time.Duration) error {
	n, done, err := startNAPT(ctx, e, naptBandwidthName, naptPlan{Ways: naptBandwidthWays, Offloads: true})
	if err != nil {
		return err
	}
	defer done()
	if err := n.checkTransfers(ctx, rep); err != nil {
		return err
	}
	rows, err := n.allStreams(ctx, e, rep, rounds, length)
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
func (n *naptPaths) allStreams(ctx context.Context, e *lab.Env, rep *report.Report, rounds int, length time.Duration) ([]*naptStreams, error) {
	var rows []*naptStreams
	n.unmeter()
	usage, err := countCPU(append(n.processes(), os.Getpid())...)
	if err != nil {
		return nil, err
	}
	defer usage.close()
	for _, c := range []cables{withOffloads, withoutGSO, asWires} {
		if err := n.recable(c); err != nil {
			return nil, err
		}
		if err := n.offloadFacts(rep, c); err != nil {
			return nil, err
		}
		for _, d := range []streamDirection{sending, receiving} {
			row := &naptStreams{cables: c, direction: d, streamResults: newStreamResults()}
			e.Step("%s: %d rounds of %v on each way", row.label(), rounds, length)
			if err := n.streams(ctx, row, rounds, length, usage); err != nil {
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
		text, err := n.inside.Offloads(w.name)
		if err != nil {
			return err
		}
		rep.Fact(fmt.Sprintf("%s, inside's cable of %s", c, w.title), "%s", text)
	}
	return nil
}

// streams measures one row in rounds of one stream on each way.
func (n *naptPaths) streams(ctx context.Context, row *naptStreams, rounds int, length time.Duration, usage *usage) error {
	for round := range rounds {
		for i := range n.paths {
			p := n.paths[(i+round)%len(n.paths)]
			s, err := p.stream(ctx, n, row, length, usage)
			if err != nil {
				return err
			}
			row.add(p.way, s)
		}
	}
	return nil
}

// stream sends one stream of a row over the path.
func (p *naptPath) stream(ctx context.Context, n *naptPaths, row *naptStreams, length time.Duration, usage *usage) (s streamed, err error) {
	inside, outside, err := p.connect(ctx, n)
	if err == nil {
		out, in := inside, outside
		if row.direction == receiving {
			out, in = outside, inside
		}
		s, err = sendStream(ctx, out, in, length, usage)
	}
	if err != nil {
		return s, fmt.Errorf("%s, %s: %w", p.way.title, row.label(), err)
	}
	return s, nil
}

// processes are those of the translators.
func (n *naptPaths) processes() (pids []int) {
	for _, p := range n.paths {
		if p.process != nil {
			pids = append(pids, p.process.PID())
		}
	}
	return pids
}

// connect opens a TCP connection from inside to outside. Outside knows itself by
// the address far, which the translator leads to.
func (p *naptPath) connect(ctx context.Context, n *naptPaths) (inside, outside net.Conn, err error) {
	at := p.far
	if !p.way.runs() {
		at = p.target
	}
	return connectVia(ctx, n.inside, n.outside, at, p.target)
}
