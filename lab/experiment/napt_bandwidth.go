// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
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
	*streamRow
	cables    cables
	published float64 // translator / forwarder over such a line; 0: over none
}

func newNAPTStreams(c cables, d streamDirection, published float64) *naptStreams {
	return &naptStreams{newStreamRow(string(c)+", "+string(d), d), c, published}
}

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
	rows, err := cableStreams(ctx, e, rep, naptBandwidthName, &translating{}, naptBandwidthWays, rounds, length, (*naptStreams).figures)
	if err != nil {
		return err
	}
	streamChart(rep, "TCP through a translator, Mbit/s", naptBandwidthWays, rows)
	return nil
}

// cableStreams measures TCP over cables that do what virtual ones can, and then over such
// as leave each packet by itself, once data has passed each way unchanged.
func cableStreams(ctx context.Context, e *lab.Env, rep *report.Report, name string, c *translating, ways []way,
	rounds int, length time.Duration, figures func(*naptStreams) []report.Figure) ([]*streamRow, error) {
	r, done, err := startRig(ctx, e, name, c, rigPlan{Ways: ways, Offloads: true})
	if err != nil {
		return nil, err
	}
	defer done()
	if err := r.checkTransfers(ctx, rep); err != nil {
		return nil, err
	}
	streams := r.streamWays()
	usage, err := countCPU(append(r.processes(), os.Getpid())...)
	if err != nil {
		return nil, err
	}
	defer usage.close()
	var rows []*streamRow
	for _, c := range []cables{withOffloads, withoutGSO, asWires} {
		if err := errors.Join(r.recable(c), r.offloadFacts(rep, c)); err != nil {
			return nil, err
		}
		for _, d := range []streamDirection{sending, receiving} {
			row := newNAPTStreams(c, d, 0)
			e.Step("%s: %d rounds of %v on each way", row.label, rounds, length)
			if err := row.measure(ctx, streams, rounds, length, usage); err != nil {
				return nil, err
			}
			rows = append(rows, row.streamRow)
			rep.Figures = append(rep.Figures, figures(row)...)
		}
	}
	streamTables(rep, ways, rows)
	return rows, r.checkPaths(ctx, rep)
}

// recable switches off what cables of that kind do not do.
func (r *rig) recable(c cables) error {
	for _, p := range r.paths {
		for _, end := range p.ends() {
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
	return r.takeFrames()
}

// offloadFacts notes what the cables of two ways have.
func (r *rig) offloadFacts(rep *report.Report, c cables) error {
	for _, w := range []way{wayKernel, wayXDP} {
		if r.path(w) == nil {
			continue
		}
		text, err := r.left.Offloads(w.name)
		if err != nil {
			return err
		}
		rep.Fact(fmt.Sprintf("%s, inside's cable of %s", c, w.title), "%s", text)
	}
	return nil
}

// streamWays are the ways of a rig for streams. The meters go: they would look at every
// packet.
func (r *rig) streamWays() (ways []streamWay) {
	for _, p := range r.paths {
		p.unmeter()
		ways = append(ways, streamWay{p.way, p.connect})
	}
	return ways
}

// connect opens a TCP connection, always from inside to outside. Outside knows itself by
// the address far, which the translator leads to.
func (p *rigPath) connect(ctx context.Context, d streamDirection) (out, in net.Conn, err error) {
	at := p.far
	if !p.way.runs() {
		at = p.target
	}
	out, in, err = lab.Connect(ctx, p.rig.left, p.rig.right, at, p.target)
	if d == receiving {
		out, in = in, out
	}
	return out, in, err
}

// naptBandwidthReport begins the report with the table of 1998.
func naptBandwidthReport(rounds int, length time.Duration) *report.Report {
	return &report.Report{
		Experiment: naptBandwidthName, Title: "TCP through one translator, bare veth and lines", Peer: "tayga",
		Tables: []report.Table{{
			Title:   "1998, 64 Mbytes, kbyte/s",
			Columns: []string{"link", "v4-v4", "v6-v6", "forwarder", "translator", "translator / forwarder"},
			Rows: [][]string{
				{"Ethernet", "1095", "1092", "1093", "1089", "0.996"},
				{"Fast Ethernet", "11003", "9076", "8005", "7210", "0.90"},
			},
		}},
		Notes: []string{
			streamNote(rounds, length),
			"Inside opens all connections.",
			"Without segmentation offload each packet is handled by itself, and checksums are still left to hardware, which a program in user space has to work out; without any offload hosts do that on all ways.",
			"Native XDP takes frames, not what is to be cut later: with it the far ends of its cables have no segmentation offload.",
			"Published beside the ratios of bare cables is that of Fast Ethernet in 1998.",
		},
	}
}

// overForwarding is how a way's streams compare with forwarding, beside tayga's.
func (s *naptStreams) overForwarding(w way) report.Figure {
	forwarding := s.rates[wayKernel]
	return report.Figure{
		Name: fmt.Sprintf("%s, %s: %s", s.label, w.title, figureStream), Decimals: 2,
		Peer: report.Measured(pairs(forwarding, s.rates[wayTayga])...), Isthmus: report.Measured(pairs(forwarding, s.rates[w])...),
	}
}

// figures are the ratios of one row.
func (s *naptStreams) figures() (figures []report.Figure) {
	for _, w := range []way{wayTC, wayXDP, wayUser} {
		ratio := s.overForwarding(w)
		ratio.Published = report.Measured(cmp.Or(s.published, 0.9))
		against := report.Figure{
			Name: fmt.Sprintf("%s, %s: bandwidth / tayga", s.label, w.title), Decimals: 1,
			Isthmus: report.Measured(pairs(s.rates[wayTayga], s.rates[w])...),
		}
		switch {
		case w != wayTC: // shown beside
		case s.cables == withOffloads:
			ratio.Must, against.Must = must(naptBandwidthName, figureStreamOffloads), must(naptBandwidthName, figureStreamTaygaOffloads)
		case s.cables == withoutGSO:
			ratio.Must, against.Must = must(naptBandwidthName, figureStreamPlain), must(naptBandwidthName, figureStreamTayga)
		case s.cables == asWires, s.published != 0:
			// How many times tayga it is was stated without segmentation.
			ratio.Must = must(naptBandwidthName, figureStreamPlain)
		}
		figures = append(figures, ratio, against)
	}
	return figures
}

// naptCheckBytes is the length of the transfer that is checked byte by byte.
const naptCheckBytes = 4 << 20

// checkTransfers looks whether data passes each way unchanged, both ways.
func (r *rig) checkTransfers(ctx context.Context, rep *report.Report) error {
	data := make([]byte, naptCheckBytes)
	source := rand.NewChaCha8([32]byte{1})
	if _, err := source.Read(data); err != nil {
		return err
	}
	for _, p := range r.paths {
		inside, outside, err := p.connect(ctx, sending)
		if err != nil {
			return fmt.Errorf("%s: %w", p.way.title, err)
		}
		deadline := time.Now().Add(naptCheckLimit)
		err = errors.Join(inside.SetDeadline(deadline), outside.SetDeadline(deadline))
		for _, d := range []struct {
			out io.Writer
			in  io.Reader
		}{{inside, outside}, {outside, inside}} {
			sent := make(chan error, 1)
			go func() { _, err := d.out.Write(data); sent <- err }()
			got := make([]byte, len(data))
			_, e := io.ReadFull(d.in, got)
			err = errors.Join(err, e, <-sent)
			if err == nil && crc32.ChecksumIEEE(got) != crc32.ChecksumIEEE(data) {
				rep.Fault("%s changed data on its way", p.way.title)
			}
		}
		inside.Close()
		outside.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", p.way.title, err)
		}
	}
	return nil
}
