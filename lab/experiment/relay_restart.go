// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of relay-restart.
const (
	restartName    = "relay-restart"
	restartRate    = 50_000 // packets per second, half each way
	restartClients = 500
	restartRounds  = 5
	restartLong    = time.Minute            // more than a restart takes
	restartBefore  = 200 * time.Millisecond // of load, before the end of the old process
	restartAfter   = 500 * time.Millisecond // of load, when the new one serves
)

// ending is how a relay's process ends.
type ending struct {
	name   string
	signal unix.Signal
}

// The endings: the first leaves everything to a successor, as an upgrade by
// systemd does, the second comes without warning.
var endings = []ending{{"handover", unix.SIGUSR2}, {"kill -9", unix.SIGKILL}}

// relayRestart is the experiment relay-restart.
var relayRestart = lab.Experiment{
	Name:      restartName,
	Summary:   "packets that established peers lose when the relay's process is replaced",
	NeedsRoot: true,
	Run:       runRelayRestart,
}

func runRelayRestart(ctx context.Context, e *lab.Env) error {
	rounds := cmp.Or(e.Runs, restartRounds)
	rep := &report.Report{Experiment: restartName, Title: "A relay's process is replaced under load", Peer: "Isthmus user space"}
	table := report.Table{
		Title:   fmt.Sprintf("packets lost of %d a second, half each way, with %d established peers", restartRate, restartClients),
		Columns: []string{"end of the old process", wayUser.title, wayTC.title, wayXDP.title},
	}
	lost := map[way]map[string][]float64{}
	for _, w := range isthmusWays {
		var err error
		if lost[w], err = restarts(ctx, e, rep, w, rounds); err != nil {
			return fmt.Errorf("%s: %w", w.title, err)
		}
	}
	for _, x := range endings {
		row := []string{x.name}
		for _, w := range isthmusWays {
			row = append(row, plainNumbers(lost[w][x.name]))
		}
		table.Rows = append(table.Rows, row)
		for _, w := range []way{wayTC, wayXDP} {
			rep.Figures = append(rep.Figures, report.Figure{
				Name: w.title + ", " + x.name + ": " + figureRestart, Peer: report.Measured(lost[wayUser][x.name]...),
				Isthmus: report.Measured(lost[w][x.name]...), Must: must(restartName, figureRestart),
			})
		}
	}
	rep.Tables = append(rep.Tables, table)
	rep.Notes = append(rep.Notes, "Counted from before the old process ends until the new one has served for a while; the new one is started when the old one is gone.")
	return finish(e, rep)
}

// restarts replaces the process of one relay again and again. It returns the
// packets lost by ending.
func restarts(ctx context.Context, e *lab.Env, rep *report.Report, w way, rounds int) (lost map[string][]float64, err error) {
	c, err := newCrowd(ctx, e, restartName+"-"+w.name, w, restartClients)
	if err != nil {
		return nil, err
	}
	defer closing(&err, c.close)
	e.Step("%s: %d restarts of each kind", w.title, rounds)
	if err := c.start(ctx, 1<<20); err != nil {
		return nil, err
	}
	if err := c.fill(ctx, restartClients); err != nil {
		return nil, err
	}
	for _, iface := range []string{"in6", "out4"} {
		if err := c.router.EnableGRO(iface); err != nil {
			return nil, err
		}
	}
	c.table([]int{restartClients})
	lost = map[string][]float64{}
	gone := map[string][]float64{}
	for range rounds {
		for _, x := range endings {
			n, without, err := c.restart(ctx, x)
			if err != nil {
				return nil, err
			}
			lost[x.name], gone[x.name] = append(lost[x.name], float64(n)), append(gone[x.name], without.Seconds()*1e3)
			if err := c.reunite(ctx, rep, x); err != nil {
				return nil, err
			}
		}
	}
	for _, x := range endings {
		rep.Notes = append(rep.Notes, fmt.Sprintf("%s, %s: from the end of the old process to the new one's service %.0f ms (median).",
			w.title, x.name, report.Measured(gone[x.name]...).Median()))
	}
	return lost, nil
}

// restart replaces the process once, under load.
func (c *crowd) restart(ctx context.Context, x ending) (lost int, without time.Duration, err error) {
	before, err := c.goodArrived(loadDrain)
	if err != nil {
		return 0, 0, err
	}
	type outcome struct {
		sent load.Sent
		err  error
	}
	run := make(chan outcome, 1)
	go func() {
		var o outcome
		o.err = onCPU(senderCPU, func() (err error) {
			o.sent, err = c.generator.Run(c.strangerLanes(false), load.Pace{Rate: restartRate, Time: restartLong, Slack: strangersSlack})
			return err
		})
		run <- o
	}()
	time.Sleep(restartBefore)
	err = c.replace(ctx, x, &without)
	time.Sleep(restartAfter)
	err = errors.Join(err, c.generator.Stop())
	o := <-run
	if err := errors.Join(err, o.err); err != nil {
		return 0, 0, err
	}
	after, err := c.goodArrived(loadDrain)
	return int(o.sent.All()) - int(after-before), without, err
}

// replace ends the process and starts another.
func (c *crowd) replace(ctx context.Context, x ending, without *time.Duration) error {
	if err := c.process.Signal(x.signal); err != nil {
		return err
	}
	select {
	case <-c.process.Done():
	case <-time.After(daemonStart):
		return fmt.Errorf("the relay goes on %v after signal %v", daemonStart, x.signal)
	}
	gone := time.Now()
	err := c.launch(ctx)
	*without = time.Since(gone)
	return err
}

// reunite looks whether the new process knows the peers of the old one, and makes
// them known again if it does not.
func (c *crowd) reunite(ctx context.Context, rep *report.Report, x ending) error {
	values, err := c.isthmus.values(ctx)
	if err != nil {
		return err
	}
	if n := int(values["trusted_peers"]); n != restartClients {
		rep.Fault("%s, %s: of %d peers the new process knows %d", c.way.title, x.name, restartClients, n)
		return c.fill(ctx, restartClients)
	}
	return nil
}
