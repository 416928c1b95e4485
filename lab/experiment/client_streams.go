// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// streamDirection is which end sends.
type streamDirection string

// The two directions.
const (
	sending   streamDirection = "client sends"
	receiving streamDirection = "client receives"
)

// checkStreams looks whether data passes each way unchanged.
func checkStreams(ctx context.Context, e *lab.Env, rep *report.Report, ways []streamWay) error {
	for _, w := range ways {
		e.Step("%s: a transfer that is checked byte by byte", w.way.title)
		for _, c := range []lab.TransferConfig{
			{Server: w.pair.host, Addr: w.host, Client: w.pair.client, Bytes: clientBytes},
			{Server: w.pair.client, Addr: w.client, Client: w.pair.host, Bytes: clientBytes},
		} {
			r, err := lab.Transfer(ctx, c)
			if err != nil {
				return fmt.Errorf("%s: %w", w.way.title, err)
			}
			if !r.Intact {
				rep.Fault("%s: data changed on its way from %s", w.way.title, c.Server.Name())
			}
		}
	}
	return nil
}

// measureStreams measures TCP streams over all ways in turn.
func measureStreams(ctx context.Context, e *lab.Env, rep *report.Report, ways []streamWay, rounds int, length time.Duration) error {
	usage, err := countCPU(streamProcesses(ways)...)
	if err != nil {
		return err
	}
	defer usage.close()
	bars := &report.Bars{Unit: "Mbit/s"}
	var labels []string
	var results []streamResults
	for _, d := range []streamDirection{sending, receiving} {
		e.Step("%s: %d rounds of %v on each way", d, rounds, length)
		result := newStreamResults()
		for round := range rounds {
			for i := range ways {
				w := ways[(i+round)%len(ways)]
				s, err := w.stream(ctx, d, length, usage)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", w.way.title, d, err)
				}
				result.add(w.way, s)
			}
		}
		group := report.Group{Label: string(d)}
		for _, w := range ways {
			group.Bars = append(group.Bars, report.Bar{Name: w.way.title, Role: w.way.role, Value: report.Measured(result.rates[w.way]...)})
		}
		labels, results, bars.Groups = append(labels, string(d)), append(results, result), append(bars.Groups, group)
		miredo, tc := result.rates[wayMiredo], result.rates[wayTC]
		rep.Figures = append(rep.Figures,
			ratioFigure(clientName, string(d), figureClientTC, pairs(result.rates[wayPlain], tc)),
			ratioFigure(clientName, string(d), figureClientUser, pairs(miredo, result.rates[wayUser])),
			report.Figure{Name: string(d) + ": Mbit/s by tc", Peer: report.Measured(miredo...), Isthmus: report.Measured(tc...)},
		)
	}
	rep.Tables = append(rep.Tables, streamTables(slices.Concat([]way{wayPlain}, clientWays), labels, results)...)
	rep.AddChart(report.Chart{Name: "streams", Title: "TCP through a client, Mbit/s", Bars: bars})
	rep.Notes = append(rep.Notes, streamNote(rounds, length),
		"Plain IPv6 takes the same cable as the tc client. The far end of all clients is a host-specific relay of Isthmus by tc.",
	)
	return nil
}

// streamProcesses are hosts and clients of all ways: this process plays the hosts.
func streamProcesses(ways []streamWay) []int {
	pids := []int{os.Getpid()}
	for _, w := range ways {
		for _, daemon := range w.pair.daemons {
			pids = append(pids, daemon.PID())
		}
	}
	return pids
}

// stream sends by TCP for a while.
func (w *streamWay) stream(ctx context.Context, d streamDirection, length time.Duration, u *usage) (streamed, error) {
	from, to, at := w.pair.client, w.pair.host, w.host
	if d == receiving {
		from, to, at = w.pair.host, w.pair.client, w.client
	}
	out, in, err := connectVia(ctx, from, to, at, at)
	if err != nil {
		return streamed{}, err
	}
	return sendStream(ctx, out, in, length, u)
}
