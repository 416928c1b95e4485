// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// walk is a tour by steps that check themselves, in a topology of its own.
type walk struct {
	env     *lab.Env
	lab     *lab.Lab
	dir     string // for configurations, control sockets and what servers have
	begin   time.Time
	taken   []takenStep
	running []*lab.Proc
}

// walkStep is a step: what it is, and what does it and says what was seen.
type walkStep struct {
	what string
	do   func(context.Context) (said string, err error)
}

// takenStep is what was shown.
type takenStep struct {
	what, said string
	took       time.Duration
	fault      error
}

// newWalk makes a lab for a tour. It is for the caller to draw in, and to close.
func newWalk(ctx context.Context, e *lab.Env, name string) (*walk, error) {
	l, err := e.New(ctx, name)
	if err != nil {
		return nil, err
	}
	w := &walk{env: e, lab: l, begin: time.Now()}
	if w.dir, err = l.TempDir(0o755); err != nil { // the servers are no one
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *walk) socket(node string) string { return filepath.Join(w.dir, node+".sock") }

// start starts a program that runs until the end.
func (w *walk) start(ctx context.Context, node *lab.Node, what lab.Process) error {
	p, err := node.Start(ctx, what)
	if err == nil {
		w.running = append(w.running, p)
	}
	return err
}

// serve starts an Isthmus with these sections, and waits until all of it serves.
func (w *walk) serve(ctx context.Context, node *lab.Node, sections string) error {
	p, err := instance{node, w.env.Binary, w.dir, node.Name()}.run(ctx, sections)
	if err != nil {
		return err
	}
	w.running = append(w.running, p)
	return running(ctx, p)
}

// run runs a program in a node, within a time.
func (w *walk) run(ctx context.Context, node *lab.Node, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programLimit)
	defer cancel()
	out, err := node.Run(ctx, argv...)
	return string(out), err
}

// peer runs one of the peers in a node.
func (w *walk) peer(ctx context.Context, node *lab.Node, program string, args ...string) (string, error) {
	path, err := peersOf(w.env).Program(program)
	if err != nil {
		return "", err
	}
	return w.run(ctx, node, append([]string{path}, args...)...)
}

// ping pings somebody three times.
func (w *walk) ping(ctx context.Context, node *lab.Node, to netip.Addr) (string, error) {
	r, err := node.Ping(ctx, lab.Ping{To: to, Count: 3, Interval: 10 * time.Millisecond, Timeout: answerWait})
	if err == nil && r.Lost() > 0 {
		err = fmt.Errorf("%d of %d were lost", r.Lost(), r.Sent())
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s answered after %.2f ms, then %.2f ms", to, milliseconds(r.RTT[0]), milliseconds(r.RTT[2])), nil
}

// take takes the steps in order, and tells about each. The first failure ends the tour, since
// what comes later builds on it.
func (w *walk) take(ctx context.Context, steps []walkStep) {
	for _, s := range steps {
		began := time.Now()
		said, err := s.do(ctx)
		t := takenStep{what: s.what, said: strings.TrimSpace(said), took: time.Since(began), fault: err}
		w.taken = append(w.taken, t)
		result := fmt.Sprintf("%.1f ms", milliseconds(t.took))
		if err != nil {
			result = "FAILED: " + err.Error()
		}
		w.env.Step("  %6.3f s  %s: %s", time.Since(w.begin).Seconds(), t.what, result)
		for line := range strings.Lines(t.said) {
			w.env.Step("              %s", strings.TrimRight(line, "\n"))
		}
		if err != nil {
			return
		}
	}
}

// tell adds the steps to a report.
func (w *walk) tell(r *report.Report) {
	table := report.Table{Title: "steps", Columns: []string{"step", "time, ms", "result"}}
	for _, s := range w.taken {
		result := "ok"
		if s.fault != nil {
			result = "FAILED"
			r.Fault("%s: %s", s.what, oneLine(s.fault))
		}
		table.Rows = append(table.Rows, []string{s.what, fmt.Sprintf("%.1f", milliseconds(s.took)), result})
	}
	r.Tables = append(r.Tables, table)
}

// close ends everything. A program that had ended by itself is an error.
func (w *walk) close() error {
	var err error
	for _, p := range w.running {
		select {
		case <-p.Done():
			err = errors.Join(err, fmt.Errorf("%s ended by itself: %w; it wrote:\n%s", p.Name(), errors.Join(p.Wait(), errEarly), lastLines(p.Log())))
		default:
		}
	}
	return errors.Join(err, w.lab.Close())
}
