// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

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

// by reports whether all but a share of the packets took the way.
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

// takenOf is what the counters of an Isthmus say. A GGSN's count what its programs carry as well.
func takenOf(values map[string]float64) (t taken) {
	var all float64
	for name, n := range values {
		switch {
		case strings.HasPrefix(name, "fastpath_packets_total_forward_"):
			t.fast += n
		case name == "to_clients_total", name == "to_ipv4_total", name == "to_ipv6_total":
			t.engine += n
		case name == "up_packets_total", name == "down_packets_total":
			all += n
		}
	}
	t.engine += max(all-t.fast, 0)
	return t
}

// isthmus is the way's Isthmus.
func (p *rigPath) isthmus() instance {
	return instance{p.router, p.rig.env.Binary, p.rig.dir, p.way.name}
}

// counts is what the way's Isthmus has forwarded.
func (p *rigPath) counts(ctx context.Context) (taken, error) {
	values, err := p.isthmus().values(ctx)
	return takenOf(values), err
}

// awaitWay waits until packets take the way that the path is named after. A role serves
// before its fast path does, and on a busy machine for long.
func (p *rigPath) awaitWay(ctx context.Context) error {
	before, err := p.counts(ctx)
	for end := time.Now().Add(daemonStart); err == nil; time.Sleep(5 * time.Millisecond) {
		if err := errors.Join(ctx.Err(), p.rig.probe(ctx, p)); err != nil {
			return err
		}
		if p.before, err = p.counts(ctx); err != nil || p.before.since(before).by(p.way, 0) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("packets do not take the way of %s within %v", p.way.title, daemonStart)
		}
		before = p.before
	}
	return err
}

// checkPaths tells of programs that ended, and looks whether packets took the ways that the
// columns are named after: in the kernel where the column says so, through the engine else.
func (r *rig) checkPaths(ctx context.Context, rep *report.Report) error {
	if err := r.healthy(); err != nil {
		return err
	}
	for _, p := range r.paths {
		if !p.way.ours() {
			continue
		}
		now, err := p.counts(ctx)
		if err != nil {
			return err
		}
		now.since(p.before).judge(p.way, rep)
	}
	return nil
}
