// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// strays is the share of packets that may go another way than their column says: a
// fast path leaves some to the engine while the network around it changes.
const strays = 0.02

// taken is how many packets Isthmus has forwarded in the kernel, and through its
// engine.
type taken struct{ fast, engine float64 }

func (t taken) since(before taken) taken {
	return taken{t.fast - before.fast, t.engine - before.engine}
}

// by tells whether all but a share of the packets took the way.
func (t taken) by(w way, share float64) bool {
	other := t.engine
	if w == wayUser {
		other = t.fast
	}
	return t.fast+t.engine > 0 && other <= share*(t.fast+t.engine)
}

// judge finds packets that did not take the way that their column is named after.
func (t taken) judge(w way, rep *report.Report) {
	if !t.by(w, strays) {
		rep.Fault("%s forwarded %.0f packets in the kernel and %.0f through the engine", w.title, t.fast, t.engine)
	}
}

// awaitWay sends by probe, which returns when a packet each way has arrived or is
// late, until the packets take the way, and returns what was counted so far. A relay
// serves before its fast path does, and on a busy machine for long.
func (w way) awaitWay(ctx context.Context, count func() (taken, error), probe func() error) (taken, error) {
	before, err := count()
	for end := time.Now().Add(daemonStart); err == nil; {
		if err = errors.Join(ctx.Err(), probe()); err != nil {
			break
		}
		var now taken
		if now, err = count(); err != nil || now.since(before).by(w, 0) {
			return now, err
		}
		if time.Now().After(end) {
			return now, fmt.Errorf("packets do not take the way of %s within %v", w.title, daemonStart)
		}
		before = now
		time.Sleep(5 * time.Millisecond)
	}
	return taken{}, err
}

// forwarded is how many packets a program of eBPF has forwarded.
func forwarded(values map[string]float64) (fast float64) {
	for name, n := range values {
		if strings.HasPrefix(name, "fastpath_packets_total_forward_") {
			fast += n
		}
	}
	return fast
}

// counts is what the relay of the path has forwarded.
func (p *relayPath) counts(ctx context.Context, dir string) (taken, error) {
	status, err := control.NewClient(p.socket(dir)).Status(ctx)
	if err != nil {
		return taken{}, err
	}
	if len(status.Instances) != 1 {
		return taken{}, errors.New("the relay is not in its own status")
	}
	values := status.Instances[0].Values
	return taken{forwarded(values), values["to_clients_total"] + values["to_ipv6_total"]}, nil
}

// awaitWay waits until packets take the way that the path is named after.
func (p *relayPath) awaitWay(ctx context.Context, dir string) (err error) {
	p.before, err = p.way.awaitWay(ctx, func() (taken, error) { return p.counts(ctx, dir) }, func() error {
		for _, d := range []direction{toIPv4, toIPv6} {
			sender, meter := p.ends(d)
			meter.Forget(0, 1)
			if _, err := sender.Stream(p.frame(d, load.MinTaggedSize), 0, 1, 0); err != nil {
				return err
			}
			meter.Await(ctx, 0, 1, time.Second)
		}
		return nil
	})
	return err
}

// checkPaths looks whether packets took the ways that the columns are named
// after: in the kernel where the column says so, through the engine else.
func (r *relayPaths) checkPaths(ctx context.Context, rep *report.Report) error {
	for _, p := range r.paths {
		if !p.way.ours() {
			continue
		}
		now, err := p.counts(ctx, r.dir)
		if err != nil {
			return err
		}
		now.since(p.before).judge(p.way, rep)
	}
	return nil
}

// counts is what the translator of the way has forwarded.
func (p *naptPath) counts(ctx context.Context, n *naptPaths) (taken, error) {
	values, err := p.values(ctx, n)
	return taken{forwarded(values), values["to_ipv4_total"] + values["to_ipv6_total"]}, err
}

// awaitWay waits until packets take the way that the path is named after.
func (p *naptPath) awaitWay(ctx context.Context, n *naptPaths) (err error) {
	p.before, err = p.way.awaitWay(ctx, func() (taken, error) { return p.counts(ctx, n) }, func() error {
		p.echoes.Forget(0, 1)
		if err := p.sender.Echoes(p.echo(load.MinEcho), 0, 1, 0); err != nil {
			return err
		}
		p.echoes.Await(ctx, 0, 1, time.Second)
		return nil
	})
	return err
}

// checkPaths looks whether packets took the ways that the columns are named after: in
// the kernel where the column says so, through the engine else.
func (n *naptPaths) checkPaths(ctx context.Context, rep *report.Report) error {
	for _, p := range n.paths {
		if !p.way.ours() {
			continue
		}
		now, err := p.counts(ctx, n)
		if err != nil {
			return err
		}
		now.since(p.before).judge(p.way, rep)
	}
	return nil
}
