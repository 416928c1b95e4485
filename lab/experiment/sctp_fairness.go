// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of sctp-fairness.
const (
	sctpFairnessName = "sctp-fairness"
	fairRounds       = 5
	fairSlice        = 30 * time.Second
	fairWarm         = 10 * time.Second // flows find their shares
	fairQueue        = 140_000          // octets: twice what is under way on the line
)

// byReno is TCP as the lab's nodes have it.
var byReno = sctpMaker{title: "TCP Reno", role: report.Reference, start: (*sctpNet).startTCP}

// fairPair are two flows that share a line.
type fairPair struct {
	name       string
	one, other sctpMaker
	figure     string // of the share of the first; "" is of none that is judged
}

var fairPairs = []fairPair{
	{"Isthmus beside TCP Reno", byUs, byReno, figureSCTPBesideTCP},
	{"Isthmus beside usrsctp", byUs, byUsrsctp, figureSCTPBesideUsrsctp},
	{"usrsctp beside TCP Reno", byUsrsctp, byReno, ""},
}

// sctpFairness is the experiment sctp-fairness.
var sctpFairness = lab.Experiment{
	Name:      sctpFairnessName,
	Summary:   "what an association of SCTP takes of a line that it shares with TCP or with usrsctp",
	NeedsRoot: true,
	Run:       runSCTPFairness,
}

func runSCTPFairness(ctx context.Context, e *lab.Env) (err error) {
	l, err := e.New(ctx, sctpFairnessName)
	if err != nil {
		return err
	}
	defer closing(&err, l.Close)
	n, err := newSCTPNet(e, l, "line", func(left, right *lab.Node) error {
		lane := lab.LaneConfig{Rate: sctpRate, Delay: sctpDelay, Queue: fairQueue}
		_, err := l.Wire(left, "eth0", right, "eth0", lab.WireConfig{AtoB: lane, BtoA: lane})
		return err
	})
	if err != nil {
		return err
	}
	rep := &report.Report{
		Experiment: sctpFairnessName, Title: "Two flows on one line", Peer: "usrsctp",
		Notes: []string{
			fmt.Sprintf("The line has %d Mbit/s and %v each way, and a queue of %d octets. Flows begin in turn: in every second round the other one is first.", int(sctpRate/1e6), sctpDelay, fairQueue),
		},
	}
	rounds, warm, length := fairRounds, fairWarm, fairSlice
	if e.Runs > 0 {
		rounds = e.Runs
	}
	if rounds < fairRounds {
		warm, length = sctpShort, sctpShort
	}
	shares, rates, costs := make([][]float64, len(fairPairs)), make([][]float64, len(fairPairs)), make([][]float64, len(fairPairs))
	e.Step("%d rounds of %v of each pair of flows", rounds, length)
	err = inTurn(ctx, rounds, len(fairPairs), func(round, at int) error {
		share, both, err := n.share(ctx, fairPairs[at], round%2 == 1, warm, length)
		if err != nil {
			return fmt.Errorf("%s: %w", fairPairs[at].name, err)
		}
		shares[at], rates[at] = append(shares[at], share), append(rates[at], both.rate)
		if both.cpu > 0 {
			costs[at] = append(costs[at], both.cpu)
		}
		return nil
	})
	if err != nil {
		return err
	}
	table := report.Table{
		Title: "both flows together: median (lowest to highest)", Columns: []string{"pair", "data, Mbit/s", "CPU a packet, microseconds"},
		Notes: []string{fmt.Sprintf("CPU is what both ends of both flows need for each %d octets of data, receiving in the kernel and acknowledgements included. The threads of the line are not in it, but what they have the process and the kernel do besides is.", sctpLossySize)},
	}
	for i, p := range fairPairs {
		table.Rows = append(table.Rows, []string{p.name, spread(rates[i], 1), spread(costs[i], 1)})
		rep.Figures = append(rep.Figures, p.result(shares[i]))
	}
	rep.Tables = append(rep.Tables, table)
	return finish(e, rep)
}

// result is the figure of a pair.
func (p *fairPair) result(shares []float64) report.Figure {
	f := report.Figure{Name: p.name + ": share of the line", Unit: "%", Decimals: 1}
	if p.figure == "" {
		f.Peer = report.Measured(shares...)
		return f
	}
	f.Name, f.Isthmus, f.Must = p.figure, report.Measured(shares...), must(sctpFairnessName, p.figure)
	return f
}

// share measures what the first of two flows takes of what both do, in percent, and what both come to.
func (n *sctpNet) share(ctx context.Context, p fairPair, otherFirst bool, warm, length time.Duration) (percent float64, both flowed, err error) {
	makers := [2]sctpMaker{p.one, p.other}
	var flows [2]sctpFlow
	pids := []int{os.Getpid()}
	for i := range flows {
		at := i
		if otherFirst {
			at = 1 - i
		}
		f, err := makers[at].start(n, ctx, sctpLossySize)
		if err != nil {
			return 0, both, fmt.Errorf("%s: %w", makers[at].title, err)
		}
		defer closing(&err, f.stop)
		flows[at], pids = f, append(pids, f.pids()...)
	}
	u, err := countCPU(pids...)
	if err != nil {
		return 0, both, err
	}
	defer u.close()
	var before, after [2]mark
	for i, f := range flows {
		if before[i], err = n.mark(ctx, f, u, warm*time.Duration(1-i)); err != nil {
			return 0, both, err
		}
	}
	for i, f := range flows {
		if after[i], err = n.mark(ctx, f, u, length*time.Duration(1-i)); err != nil {
			return 0, both, err
		}
	}
	one, other := after[0].octets-before[0].octets, after[1].octets-before[1].octets
	if one+other <= 0 {
		return 0, both, errors.New("nothing has come by either flow")
	}
	first, last := before[1], after[1]
	first.octets, last.octets = 0, one+other
	return 100 * float64(one) / float64(one+other), first.until(last, sctpLossySize), nil
}

// tcpFlow is a connection of the kernel's TCP.
type tcpFlow struct {
	ownFlow
	out, in net.Conn
}

func (n *sctpNet) startTCP(ctx context.Context, _ int) (sctpFlow, error) {
	out, in, err := lab.Connect(ctx, n.left, n.right, sctpRight, sctpRight)
	if err != nil {
		return nil, err
	}
	f := &tcpFlow{newOwnFlow(), out, in}
	f.run(f.send)
	f.run(f.receive)
	return f, nil
}

func (f *tcpFlow) send() error {
	block := make([]byte, streamBlock)
	for {
		if _, err := f.out.Write(block); err != nil {
			return err
		}
	}
}

func (f *tcpFlow) receive() error {
	block := make([]byte, streamBlock)
	for {
		got, err := f.in.Read(block)
		if err != nil {
			return err
		}
		f.got.Add(int64(got))
	}
}

func (f *tcpFlow) stop() error {
	f.in.Close()
	f.out.Close()
	f.running.Wait()
	return nil
}
