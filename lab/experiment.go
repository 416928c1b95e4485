// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/lab/peers"
)

// Experiment is something the lab can run: it draws a topology, works in it,
// and reports. Each stands for one published table or figure, or for a tour.
type Experiment struct {
	Name    string
	Summary string // one line
	// NeedsRoot says that nothing of it works in a user namespace.
	NeedsRoot bool
	// Needs lists the programs without which it cannot begin: of the peers, or tools that
	// the system may have itself. What only adds a column is not among them.
	Needs []string
	// Run does the whole experiment. An error means wrong behaviour.
	Run func(context.Context, *Env) error
	// Up draws the topology, starts what runs in it and leaves it to the
	// caller, who closes it. Nil if the experiment has no such state.
	Up func(context.Context, *Env) (*Lab, error)
}

// Env is what an experiment is given.
type Env struct {
	// Binary is the path of the isthmus program, to run as daemons.
	Binary string
	// Peers is the folder with the unpacked programs to compare with; it may
	// be missing.
	Peers string
	// Out receives the tables, and progress through Step.
	Out io.Writer
	// Progress receives the lines of Step and of labs; Out if nil. With JSON
	// the two differ, so that Out holds nothing else.
	Progress io.Writer
	// Live says that a person looks at progress on a terminal, for Status.
	Live bool
	// Dir receives results (CSV, SVG, HTML) and logs; none are kept if empty.
	Dir string
	// PcapDir receives captures; none are made if empty.
	PcapDir string
	// Keep leaves the topology up after the experiment, until Ctrl-C.
	Keep bool
	// Strict makes a figure outside its must an error.
	Strict bool
	// JSON asks for results as JSON on Out.
	JSON bool
	// Runs is how often to repeat what is measured; 0 is the experiment's own
	// choice.
	Runs int
	// Time, Seed and Ways are for experiments with faults: how long they go on, what their
	// order is drawn from, and which fast paths they happen to; 0 and none are the
	// experiment's own choice.
	Time time.Duration
	Seed uint64
	Ways []string
	// Limited says that the lab runs in a user namespace, where peers and
	// eBPF do not work.
	Limited bool
	// Turns is set for experiments side by side.
	Turns *Turns

	began  time.Time // of the experiment that runs
	others otherTime // until then
}

// Escapes of a terminal: from the line's begin on, and whether a long line goes on in the next one.
const (
	lineAgain       = "\r\x1b[K"
	noWrap, wrapped = "\x1b[?7l", "\x1b[?7h"
)

// Step prints one line of progress.
func (e *Env) Step(format string, args ...any) {
	if e.Live {
		format = lineAgain + format
	}
	fmt.Fprintf(e.progress(), format+"\n", args...)
}

// Status shows what is so at the moment, in a line of a terminal that the next Step or Status takes.
// Elsewhere it shows nothing.
func (e *Env) Status(text string) {
	if e.Live {
		fmt.Fprint(e.progress(), lineAgain+noWrap+text+wrapped)
	}
}

func (e *Env) progress() io.Writer {
	if e.Progress != nil {
		return e.Progress
	}
	return e.output()
}

func (e *Env) output() io.Writer {
	if e.Out != nil {
		return e.Out
	}
	return io.Discard
}

// New starts a lab with the options of the person who runs the experiment.
func (e *Env) New(ctx context.Context, name string) (*Lab, error) {
	o := Options{Name: name, Keep: e.Keep, Out: e.progress(), Program: e.Binary}
	if e.Dir != "" {
		o.Dir = filepath.Join(e.Dir, "logs")
	}
	return New(ctx, o)
}

// Capture records an interface if captures were asked for, into a file named
// after the run, the node and the interface.
func (e *Env) Capture(n *Node, iface string) error {
	if e.PcapDir == "" {
		return nil
	}
	file := n.lab.Name() + "-" + n.name + "-" + iface + ".pcap"
	_, err := n.lab.Capture(n, iface, filepath.Join(e.PcapDir, file))
	return err
}

// Find gives the experiments of these names.
func Find(all []Experiment, names ...string) ([]Experiment, error) {
	var found []Experiment
	for _, name := range names {
		i := indexOf(all, name)
		if i < 0 {
			known := make([]string, len(all))
			for i, e := range all {
				known[i] = e.Name
			}
			return nil, fmt.Errorf("there is no experiment %q; there are: %s", name, strings.Join(known, ", "))
		}
		found = append(found, all[i])
	}
	return found, nil
}

func indexOf(all []Experiment, name string) int {
	for i, e := range all {
		if e.Name == name {
			return i
		}
	}
	return -1
}

// RunAll runs the experiments one after the other, the later ones also when
// an earlier one failed. It stops when ctx ends.
func RunAll(ctx context.Context, experiments []Experiment, e *Env) error {
	var errs []error
	for _, x := range experiments {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		if x.NeedsRoot && e.Limited {
			errs = append(errs, fmt.Errorf("the experiment %s needs root: run it with sudo", x.Name))
			continue
		}
		begin := time.Now()
		e.begin()
		err := x.missing(e)
		if err == nil {
			err = x.Run(ctx, e)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", x.Name, err))
			continue
		}
		e.Step("%s: done in %.1f s", x.Name, time.Since(begin).Seconds())
	}
	return errors.Join(errs...)
}

// missing says in one sentence which programs the experiment lacks; nil if none.
func (x *Experiment) missing(e *Env) error {
	var names []string
	folder := peers.Peers{Dir: e.Peers}
	for _, name := range x.Needs {
		_, system := exec.LookPath(name)
		if _, private := folder.Program(name); system != nil && (e.Peers == "" || private != nil) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("this experiment needs programs that are not here (%s): %w; if that does not fetch them, this system's release does not carry them",
		strings.Join(names, ", "), peers.ErrMissing)
}

// Up draws the topology of an experiment and keeps it until ctx ends.
func Up(ctx context.Context, x Experiment, e *Env) error {
	if x.Up == nil {
		return fmt.Errorf("the experiment %s has no topology to look at; use: %s lab run %s", x.Name, Command(), x.Name)
	}
	if x.NeedsRoot && e.Limited {
		return fmt.Errorf("the experiment %s needs root: run it with sudo", x.Name)
	}
	if err := x.missing(e); err != nil {
		return fmt.Errorf("%s: %w", x.Name, err)
	}
	staying := *e
	staying.Keep = true
	staying.begin()
	l, err := x.Up(ctx, &staying)
	if err != nil {
		return err
	}
	return l.Close()
}
