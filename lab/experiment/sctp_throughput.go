// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of sctp-throughput.
const (
	sctpThroughputName = "sctp-throughput"
	sctpRounds         = 5
	sctpSlice          = 5 * time.Second
	sctpWarm           = 500 * time.Millisecond // windows grow
	sctpLossySlice     = 20 * time.Second
	sctpLossyWarm      = 2 * time.Second
	sctpShort          = 300 * time.Millisecond // with fewer rounds
	sctpRate           = 28e6                   // bit/s of the line
	sctpDelay          = 10 * time.Millisecond  // of it, each way
	sctpLossySize      = 1400
)

var (
	// sctpSizes are those of messages: one fills a packet, one takes many.
	sctpSizes = []int{1400, 16 << 10}
	// sctpLosses are probabilities, in each direction.
	sctpLosses = []float64{0.001, 0.01, 0.03}
	// sctpMakers take turns in each round.
	sctpMakers = []sctpMaker{byUsrsctp, byUs}
)

// sctpThroughput is the experiment sctp-throughput.
var sctpThroughput = lab.Experiment{
	Name:      sctpThroughputName,
	Summary:   "messages by SCTP in UDP: Isthmus and usrsctp, over a bare cable and over a line that loses packets",
	NeedsRoot: true,
	Run:       runSCTPThroughput,
}

func runSCTPThroughput(ctx context.Context, e *lab.Env) (err error) {
	l, err := e.New(ctx, sctpThroughputName)
	if err != nil {
		return err
	}
	defer closing(&err, l.Close)
	rep := &report.Report{
		Experiment: sctpThroughputName, Title: "Messages by SCTP in UDP, by one association", Peer: "usrsctp",
		Notes: []string{
			fmt.Sprintf("Both have %d MiB of buffer at each end, packets of %d octets and %d streams. Ratios are those of associations that followed each other: median (lowest to highest).", sctpBuffer>>20, sctpMTU, sctpStreams),
			"CPU is all that both ends need for each packet of data, receiving in the kernel and acknowledgements included, of which repeats are part, too. The threads of a line are not in it, but what they have the process and the kernel do besides is. With offloads, packets that are handed to the kernel together cross the cable together.",
			fmt.Sprintf("The line has %d Mbit/s and %v each way, and loses packets at random in both directions.", int(sctpRate/1e6), sctpDelay),
		},
	}
	rounds := sctpRounds
	if e.Runs > 0 {
		rounds = e.Runs
	}
	cpu := report.Table{Title: "microseconds of CPU a packet: median (lowest to highest)", Columns: []string{"messages"}}
	for _, by := range sctpMakers {
		cpu.Columns = append(cpu.Columns, by.title)
	}
	bare, err := sctpBare(ctx, e, rep, l, rounds)
	if err != nil {
		return err
	}
	lossy, err := sctpLossy(ctx, e, rep, l, rounds)
	if err != nil {
		return err
	}
	for _, r := range append(bare, lossy...) {
		cpu.Rows = append(cpu.Rows, []string{r.label, spread(r.cpu[0], 2), spread(r.cpu[1], 2)})
	}
	rep.Tables = append(rep.Tables, cpu)
	return finish(e, rep)
}

// sctpLength is how long a slice is, and how long it warms up.
func sctpLength(rounds int, warm, length time.Duration) (w, l time.Duration) {
	if rounds < sctpRounds {
		return sctpShort, sctpShort
	}
	return warm, length
}

// sctpRow is what flows of one kind came to, by maker.
type sctpRow struct {
	label     string
	rate, cpu [][]float64
}

// measureMakers measures a row in rounds of one flow by each maker.
func (n *sctpNet) measureMakers(ctx context.Context, label string, size, rounds int, warm, length time.Duration) (*sctpRow, error) {
	n.env.Step("%s: %d rounds of %v each", label, rounds, length)
	r := &sctpRow{label, make([][]float64, len(sctpMakers)), make([][]float64, len(sctpMakers))}
	return r, inTurn(ctx, rounds, len(sctpMakers), func(_, at int) error {
		f, err := n.measureFlow(ctx, sctpMakers[at], size, warm, length)
		if err != nil {
			return fmt.Errorf("%s: %w", label, err)
		}
		r.rate[at] = append(r.rate[at], f.rate)
		if f.cpu > 0 {
			r.cpu[at] = append(r.cpu[at], f.cpu)
		}
		return nil
	})
}

// figures are those of a row, of which the ratio has a must.
func (r *sctpRow) figures(figure string) []report.Figure {
	return []report.Figure{
		{Name: r.label, Unit: "Mbit/s", Decimals: 1, Peer: report.Measured(r.rate[0]...), Isthmus: report.Measured(r.rate[1]...)},
		ratioFigure(sctpThroughputName, r.label, figure, pairs(r.rate[0], r.rate[1])),
	}
}

// sctpBare measures over a bare cable, where the machine is the limit.
func sctpBare(ctx context.Context, e *lab.Env, rep *report.Report, l *lab.Lab, rounds int) (rows []*sctpRow, err error) {
	n, err := newSCTPNet(e, l, "bare", func(left, right *lab.Node) error {
		l.Link(left, "eth0", right, "eth0")
		return l.Err()
	})
	if err != nil {
		return nil, err
	}
	bars := &report.Bars{Unit: "Mbit/s"}
	for _, kind := range []cables{withOffloads, asWires} {
		if err := n.recable(rep, kind); err != nil {
			return nil, err
		}
		for _, size := range sctpSizes {
			label := fmt.Sprintf("messages of %d octets, %s", size, kind)
			warm, length := sctpLength(rounds, sctpWarm, sctpSlice)
			r, err := n.measureMakers(ctx, label, size, rounds, warm, length)
			if err != nil {
				return nil, err
			}
			rep.Figures = append(rep.Figures, r.figures(figureSCTPRate)...)
			rows, bars.Groups = append(rows, r), append(bars.Groups, r.bars())
		}
	}
	rep.AddChart(report.Chart{Name: "sctp", Title: "Messages by SCTP over a bare cable, Mbit/s", Bars: bars})
	return rows, nil
}

// recable switches off what a cable of that kind does not do.
func (n *sctpNet) recable(rep *report.Report, kind cables) error {
	for _, node := range []*lab.Node{n.left, n.right} {
		if kind != asWires {
			continue
		}
		if err := node.DisableOffloads("eth0"); err != nil {
			return err
		}
	}
	offloads, err := n.right.Offloads("eth0")
	rep.Fact(string(kind)+", the cable", "%s", offloads)
	return err
}

// bars are the rates of a row, drawn.
func (r *sctpRow) bars() report.Group {
	group := report.Group{Label: r.label}
	for i, by := range sctpMakers {
		group.Bars = append(group.Bars, report.Bar{Name: by.title, Role: by.role, Value: report.Measured(r.rate[i]...)})
	}
	return group
}

// sctpLossy measures over lines that lose packets.
func sctpLossy(ctx context.Context, e *lab.Env, rep *report.Report, l *lab.Lab, rounds int) (rows []*sctpRow, err error) {
	warm, length := sctpLength(rounds, sctpLossyWarm, sctpLossySlice)
	for i, loss := range sctpLosses {
		lane := lab.LaneConfig{Rate: sctpRate, Delay: sctpDelay, Loss: loss}
		n, err := newSCTPNet(e, l, fmt.Sprintf("line-%d", i+1), func(left, right *lab.Node) error {
			_, err := l.Wire(left, "eth0", right, "eth0", lab.WireConfig{AtoB: lane, BtoA: lane, Seed: uint64(i + 1)})
			return err
		})
		if err != nil {
			return nil, err
		}
		r, err := n.measureMakers(ctx, fmt.Sprintf("%.1f %% lost", 100*loss), sctpLossySize, rounds, warm, length)
		if err != nil {
			return nil, err
		}
		rep.Figures, rows = append(rep.Figures, r.figures(figureSCTPLossy)...), append(rows, r)
	}
	return rows, nil
}
