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

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of TCP streams.
const (
	streamTime  = 250 * time.Millisecond
	streamBlock = 256 << 10
	streamWarm  = 50 * time.Millisecond // the window grows
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
		e.Step("%s: a transfer that is checked byte by byte", w.title)
		for _, c := range []lab.TransferConfig{
			{Server: w.pair.host, Addr: w.host, Client: w.pair.client, Bytes: clientBytes},
			{Server: w.pair.client, Addr: w.client, Client: w.pair.host, Bytes: clientBytes},
		} {
			r, err := lab.Transfer(ctx, c)
			if err != nil {
				return fmt.Errorf("%s: %w", w.title, err)
			}
			if !r.Intact {
				rep.Fault("%s: data changed on its way from %s", w.title, c.Server.Name())
			}
		}
	}
	return nil
}

// measureStreams measures TCP streams over all ways in turn.
func measureStreams(ctx context.Context, e *lab.Env, rep *report.Report, ways []streamWay, rounds int) error {
	table := report.Table{Title: "TCP, Mbit/s: median (lowest to highest)", Columns: []string{"direction"}}
	for _, w := range ways {
		table.Columns = append(table.Columns, w.title)
	}
	bars := &report.Bars{Unit: "Mbit/s"}
	for _, d := range []streamDirection{sending, receiving} {
		e.Step("%s: %d rounds of %v on each way", d, rounds, streamTime)
		rates := make([][]float64, len(ways))
		for round := range rounds {
			for i := range ways {
				n := (i + round) % len(ways)
				r, err := ways[n].stream(ctx, d)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", ways[n].title, d, err)
				}
				rates[n] = append(rates[n], r)
			}
		}
		row, group := []string{string(d)}, report.Group{Label: string(d)}
		for i, w := range ways {
			row = append(row, plainNumbers(rates[i]))
			group.Bars = append(group.Bars, report.Bar{Name: w.title, Role: w.role, Value: report.Measured(rates[i]...)})
		}
		table.Rows, bars.Groups = append(table.Rows, row), append(bars.Groups, group)
		plain, miredo, user, tc := rates[0], rates[1], rates[2], rates[3]
		rep.Figures = append(rep.Figures,
			ratioFigure(clientName, string(d), figureClientTC, pairs(plain, tc)),
			ratioFigure(clientName, string(d), figureClientUser, pairs(miredo, user)),
			report.Figure{Name: string(d) + ": Mbit/s by tc", Peer: report.Measured(miredo...), Isthmus: report.Measured(tc...)},
		)
	}
	rep.Tables = append(rep.Tables, table)
	rep.AddChart(report.Chart{Name: "streams", Title: "TCP through a client, Mbit/s", Bars: bars})
	rep.Notes = append(rep.Notes,
		fmt.Sprintf("One TCP stream at a time, for %v after %v; ratios are those of streams that followed each other, %d rounds.", streamTime, streamWarm, rounds),
		"Plain IPv6 takes the same cable as the tc client. The far end of all clients is a host-specific relay of Isthmus by tc.",
	)
	return nil
}

// stream sends by TCP for a while and returns the rate at the receiver in Mbit/s.
func (w *streamWay) stream(ctx context.Context, d streamDirection) (float64, error) {
	from, to, at := w.pair.client, w.pair.host, w.host
	if d == receiving {
		from, to, at = w.pair.host, w.pair.client, w.client
	}
	out, in, err := connectVia(ctx, from, to, at, at)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	defer context.AfterFunc(ctx, func() {
		in.Close()
		out.Close()
	})()
	poured, enough := make(chan error, 1), make(chan struct{})
	go func() { poured <- pour(out, enough) }()
	n, took, err := drink(in, sync.OnceFunc(func() { close(enough) }))
	if err := errors.Join(err, <-poured); err != nil {
		return 0, err
	}
	return float64(n) * 8 / took.Seconds() / 1e6, nil
}

// pour sends until the receiver has counted enough. It ends first, so that nothing
// is sent to a receiver that has gone.
func pour(out net.Conn, enough <-chan struct{}) error {
	defer out.Close()
	if err := out.SetWriteDeadline(time.Now().Add(daemonStart)); err != nil {
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

// drink counts what arrives until streamTime, once the stream has grown, says that
// it is enough, and reads to the end.
func drink(in net.Conn, enough func()) (n int, took time.Duration, err error) {
	defer enough()
	block := make([]byte, streamBlock)
	begin := time.Now()
	if err := in.SetReadDeadline(begin.Add(daemonStart)); err != nil {
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
			if time.Since(begin) >= streamTime {
				took = time.Since(warm)
				enough()
			}
		}
	}
}
