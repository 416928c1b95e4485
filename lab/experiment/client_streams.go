// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// checkStreams looks whether data passes each way unchanged.
func checkStreams(ctx context.Context, e *lab.Env, rep *report.Report, ways []clientPath) error {
	for _, w := range ways {
		e.Step("%s: a transfer that is checked byte by byte", w.way.title)
		for _, c := range []lab.TransferConfig{
			{Server: w.pair.host, Addr: w.host, Client: w.pair.node, Bytes: clientBytes},
			{Server: w.pair.node, Addr: w.client, Client: w.pair.host, Bytes: clientBytes},
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
func measureStreams(ctx context.Context, e *lab.Env, rep *report.Report, ways []clientPath, rounds int, length time.Duration) error {
	usage, err := countCPU(streamProcesses(ways)...)
	if err != nil {
		return err
	}
	defer usage.close()
	var streams []streamWay
	var kinds []way
	for _, w := range ways {
		streams, kinds = append(streams, streamWay{w.way, w.connect}), append(kinds, w.way)
	}
	var rows []*streamRow
	for _, d := range []streamDirection{sending, receiving} {
		e.Step("%s: %d rounds of %v on each way", d, rounds, length)
		row := newStreamRow(string(d), d)
		if err := row.measure(ctx, streams, rounds, length, usage); err != nil {
			return err
		}
		rows = append(rows, row)
		miredo, tc := row.rates[wayMiredo], row.rates[wayTC]
		rep.Figures = append(rep.Figures,
			ratioFigure(clientName, string(d), figureClientTC, pairs(row.rates[wayPlain], tc)),
			ratioFigure(clientName, string(d), figureClientUser, pairs(miredo, row.rates[wayUser])),
			report.Figure{Name: string(d) + ": Mbit/s by tc", Peer: report.Measured(miredo...), Isthmus: report.Measured(tc...)},
		)
	}
	streamTables(rep, kinds, rows)
	streamChart(rep, "TCP through a client, Mbit/s", kinds, rows)
	rep.Notes = append(rep.Notes, streamNote(rounds, length),
		"Plain IPv6 takes the same cable as the tc client. The far end of all clients is a host-specific relay of Isthmus by tc.",
	)
	return nil
}

// streamProcesses are hosts and clients of all ways.
func streamProcesses(ways []clientPath) (pids []int) {
	for _, w := range ways {
		pids = append(pids, w.pair.daemons.processes()...)
	}
	return pids
}

// connect opens a TCP connection, from the end that sends.
func (w clientPath) connect(ctx context.Context, d streamDirection) (out, in net.Conn, err error) {
	if d == receiving {
		return lab.Connect(ctx, w.pair.host, w.pair.node, w.client, w.client)
	}
	return lab.Connect(ctx, w.pair.node, w.pair.host, w.host, w.host)
}
