// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"time"

	"github.com/isthmus-net/isthmus/lab/report"
)

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

// describeStreams adds the table of all ways, its figures and its picture.
func describeStreams(rep *report.Report, rows []*naptStreams) {
	bars := &report.Bars{Unit: "Mbit/s"}
	var labels []string
	var results []streamResults
	for _, r := range rows {
		group := report.Group{Label: r.label()}
		for _, w := range naptBandwidthWays {
			group.Bars = append(group.Bars, report.Bar{Name: w.title, Role: w.role, Value: report.Measured(r.rates[w]...)})
		}
		labels, results, bars.Groups = append(labels, r.label()), append(results, r.streamResults), append(bars.Groups, group)
		rep.Figures = append(rep.Figures, r.figures()...)
	}
	rep.Tables = append(rep.Tables, streamTables(naptBandwidthWays, labels, results)...)
	rep.AddChart(report.Chart{Name: "streams", Title: "TCP through a translator, Mbit/s", Bars: bars})
}

// figures are the ratios of one row.
func (s *naptStreams) figures() []report.Figure {
	forwarding, tayga, published := s.rates[wayKernel], s.rates[wayTayga], 0.9
	if s.published != 0 {
		published = s.published
	}
	var figures []report.Figure
	for _, w := range []way{wayTC, wayXDP, wayUser} {
		label := fmt.Sprintf("%s, %s: ", s.label(), w.title)
		ratio := report.Figure{
			Name: label + figureStream, Decimals: 2, Published: report.Measured(published),
			Peer: report.Measured(pairs(forwarding, tayga)...), Isthmus: report.Measured(pairs(forwarding, s.rates[w])...),
		}
		against := report.Figure{Name: label + "bandwidth / tayga", Decimals: 1, Isthmus: report.Measured(pairs(tayga, s.rates[w])...)}
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
func (n *naptPaths) checkTransfers(ctx context.Context, rep *report.Report) error {
	data := make([]byte, naptCheckBytes)
	source := rand.NewChaCha8([32]byte{1})
	if _, err := source.Read(data); err != nil {
		return err
	}
	for _, p := range n.paths {
		inside, outside, err := p.connect(ctx, n)
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
