// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of relay-throughput: slices are short and take turns, so that whatever
// else the machine does falls on all paths alike.
const (
	throughputSlice  = 50 * time.Millisecond
	throughputDrain  = 15 * time.Millisecond
	throughputRounds = 30
)

// throughputSizes are those of the Miredo page, in bytes of the IPv6 packet.
var throughputSizes = []int{48, 1280}

// relayThroughput is the experiment relay-throughput.
var relayThroughput = lab.Experiment{
	Name:      "relay-throughput",
	Summary:   "packets per second through a relay: Isthmus, Miredo, plain kernel forwarding",
	NeedsRoot: true,
	Run:       runRelayThroughput,
}

// rates are the packets per second of one path in one case, one per round.
type rates struct{ offered, passed []float64 }

func runRelayThroughput(ctx context.Context, e *lab.Env) error {
	r, done, err := startRelayPaths(ctx, e, "relay-throughput")
	if err != nil {
		return err
	}
	defer done()
	rounds := throughputRounds
	if e.Runs > 0 {
		rounds = e.Runs
	}
	rep := relayReport("relay-throughput", "Packets per second through one relay, bare veth")
	table := report.Table{
		Title:   "thousand packets per second: median (lowest to highest round)",
		Columns: []string{"IPv6 packet", "offered", "kernel forwarding", "Miredo", "Isthmus"},
	}
	for _, d := range []relayDirection{encapsulating, decapsulating} {
		for _, size := range throughputSizes {
			e.Step("%s %d bytes: %d rounds of %v on each path", d, size, rounds, throughputSlice)
			measured, err := r.throughput(ctx, d, size, rounds)
			if err != nil {
				return err
			}
			label := fmt.Sprintf("%s, %d bytes", d, size)
			table.Rows = append(table.Rows, []string{
				label, thousands(measured["isthmus"].offered), thousands(measured["kernel"].passed),
				thousands(measured["miredo"].passed), thousands(measured["isthmus"].passed),
			})
			rep.addRatio(label, figureThroughput, measured["miredo"].passed, measured["isthmus"].passed)
			rep.addKernelRatio(label, figureThroughput, measured["kernel"].passed, measured["isthmus"].passed)
		}
	}
	rep.Tables = append(rep.Tables, table)
	rep.Notes = append(rep.Notes, "Published absolute figures: Miredo's page, 61,800 packets per second both ways at 1280 bytes on a 1.3 GHz PC.")
	return finish(e, &rep.Report)
}

// throughput measures one case on all paths, in rounds of one slice each.
func (r *relayPaths) throughput(ctx context.Context, d relayDirection, size, rounds int) (map[string]rates, error) {
	measured := map[string]rates{}
	for range rounds {
		for _, p := range r.paths {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			offered, passed, err := r.slice(p, d, size)
			if err != nil {
				return nil, err
			}
			m := measured[p.name]
			measured[p.name] = rates{append(m.offered, offered), append(m.passed, passed)}
		}
	}
	return measured, nil
}

// slice sends for one slice and counts what comes out, in packets per second.
// What is still under way when the sender stops is counted too: it was queued
// while the forwarder was behind.
func (r *relayPaths) slice(p *relayPath, d relayDirection, size int) (offered, passed float64, err error) {
	if err := p.touch(); err != nil {
		return 0, 0, err
	}
	before, err := r.received(p, d)
	if err != nil {
		return 0, 0, err
	}
	sender, frame := p.fromHost, p.toClient(size)
	if d == decapsulating {
		sender, frame = p.fromClient, p.toHost(size)
	}
	var sent int
	var took time.Duration
	err = onOneCPU(func() (err error) {
		sent, took, err = sender.Blast(frame, throughputSlice)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	time.Sleep(throughputDrain)
	after, err := r.received(p, d)
	if err != nil {
		return 0, 0, err
	}
	return float64(sent) / took.Seconds(), float64(after-before) / took.Seconds(), nil
}

// received is how many packets the path's far end has received so far.
func (r *relayPaths) received(p *relayPath, d relayDirection) (uint64, error) {
	end := r.client
	if d == decapsulating {
		end = r.host
	}
	link, err := end.Netlink().LinkByName(p.name)
	if err != nil {
		return 0, err
	}
	return link.Attrs().Statistics.RxPackets, nil
}

// onOneCPU runs f on a thread that stays on the first CPU, so that sender and
// relay do not push each other around.
func onOneCPU(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its affinity
		var set unix.CPUSet
		set.Set(0)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			done <- fmt.Errorf("staying on one CPU: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}
