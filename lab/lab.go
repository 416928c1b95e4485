// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Options say how a lab is run.
type Options struct {
	// Name of the run, "lab" if empty. A number is added if it is taken.
	Name string
	// Keep makes Close wait until the context ends, so that the topology can
	// be looked at.
	Keep bool
	// Dir receives the logs of the processes. If empty they lie with the run
	// and go with it.
	Dir string
	// Out receives progress, one line each; nothing is written if nil.
	Out io.Writer
	// Program is the path of the isthmus program, which shells in the nodes
	// have in their PATH. None have it if empty.
	Program string
}

// Lab is one run: a set of namespaces and what lives in them. Its methods may
// be called from several goroutines.
type Lab struct {
	options Options
	dir     string
	logs    string
	ctx     context.Context
	stop    func() bool

	mu      sync.Mutex
	state   runState
	err     error
	nodes   map[string]*Node
	procs   []*Proc
	closers []func() error // captures and wires, closed before the nodes
	macs    uint16
	wires   int            // wires made so far
	steps   sync.WaitGroup // of drawing, which are under way
	closing sync.Once
	closed  error
}

// New starts a run and removes what dead ones left. The run ends with Close
// or with ctx, whichever comes first.
func New(ctx context.Context, o Options) (*Lab, error) {
	if o.Name == "" {
		o.Name = "lab"
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("the lab needs root, or a user namespace of its own: use sudo, or the command isthmus lab")
	}
	root, err := stateRoot()
	if err != nil {
		return nil, err
	}
	dir, state, err := claimRun(root, o.Name)
	if err != nil {
		return nil, err
	}
	l := &Lab{options: o, dir: dir, logs: o.Dir, ctx: ctx, state: state, nodes: map[string]*Node{}}
	if l.logs == "" {
		l.logs = dir
	} else if err := os.MkdirAll(l.logs, 0o755); err != nil {
		l.teardown()
		return nil, fmt.Errorf("cannot make the folder for logs: %w", err)
	}
	if err := l.linkProgram(); err != nil {
		l.teardown()
		return nil, err
	}
	l.stop = context.AfterFunc(ctx, l.teardown)
	return l, nil
}

// Name is the unique name of the run.
func (l *Lab) Name() string { return l.state.Name }

// Dir is the folder of the run, for files that are to go with it.
func (l *Lab) Dir() string { return l.dir }

// Err is the first failure in drawing the topology.
func (l *Lab) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Lookup gives the node of that name, nil if there is none.
func (l *Lab) Lookup(name string) *Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nodes[name]
}

// Nodes lists the names of the nodes in the order of their making.
func (l *Lab) Nodes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.state.Nodes...)
}

// Close ends the processes, captures and wires and removes the namespaces and
// files of the run. With Options.Keep it first waits for the context to end.
// It may be called more than once.
func (l *Lab) Close() error {
	if l.options.Keep && l.ctx.Err() == nil {
		l.Progress("Lab %s stays until Ctrl-C. Open a shell with: %s lab shell --run %s NODE (nodes: %s)",
			l.Name(), Command(), l.Name(), strings.Join(l.Nodes(), ", "))
		<-l.ctx.Done()
	}
	l.stop()
	l.teardown()
	return l.closed
}

// linkProgram puts the program where shells find it by its usual name.
func (l *Lab) linkProgram() error {
	if l.options.Program == "" {
		return nil
	}
	dir := filepath.Join(l.dir, programDir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Symlink(l.options.Program, filepath.Join(dir, programName))
}

// Progress writes a line for the person in front of the lab.
func (l *Lab) Progress(format string, args ...any) {
	if l.options.Out != nil {
		fmt.Fprintf(l.options.Out, format+"\n", args...)
	}
}

func (l *Lab) teardown() {
	l.closing.Do(func() { l.closed = l.remove() })
}

// remove undoes the run in the order that keeps captures complete: processes,
// then captures and wires, then what is still inside, then the namespaces.
func (l *Lab) remove() error {
	l.mu.Lock()
	if l.err == nil {
		l.err = errors.New("the lab is closed")
	}
	l.mu.Unlock()
	l.steps.Wait() // what is being made is there, and goes with the rest
	l.mu.Lock()
	procs, closers := l.procs, l.closers
	l.mu.Unlock()

	var wait sync.WaitGroup
	for _, p := range procs {
		wait.Go(func() { _ = p.Stop() })
	}
	wait.Wait()
	var errs []error
	for i := len(closers) - 1; i >= 0; i-- {
		errs = append(errs, closers[i]())
	}
	l.mu.Lock()
	for _, n := range l.nodes {
		n.kernel.close()
	}
	state := l.state
	l.mu.Unlock()
	errs = append(errs, removeRun(filepath.Dir(l.dir), state))
	return errors.Join(errs...)
}

// begin begins a step, unless something failed or the lab is closed. A lab that closes waits for
// the end of each step; one within another that can no longer begin fails, and with it the outer.
func (l *Lab) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.steps.Add(1)
	}
	return l.err
}

// fail keeps the first failure.
func (l *Lab) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && err != nil {
		l.err = err
	}
}

// onClose has f called when the lab is closed. It fails if it is already.
func (l *Lab) onClose(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	l.closers = append(l.closers, f)
	return nil
}

// nextMAC numbers the interfaces of a run, so that addresses made from them
// are the same each time.
func (l *Lab) nextMAC() net.HardwareAddr {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.macs++
	return net.HardwareAddr{0x02, 0, 0, 0, byte(l.macs >> 8), byte(l.macs)}
}
