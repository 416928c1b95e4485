// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How long a process may take to end after SIGTERM. Each needs milliseconds; the
// rest is for a loaded machine, which whoever interrupts a run does not wait for.
const (
	stopGrace        = 10 * time.Second
	interruptedGrace = time.Second
)

// Process says what to run in a node.
type Process struct {
	// Name of the process, for the log and messages; the program's base name
	// if empty.
	Name string
	// Path of the program, looked up in PATH (that of Env, if given there) if
	// it has no slash.
	Path string
	Args []string
	// Env holds VARIABLE=value added to the lab's own environment.
	Env []string
	// Dir is the working directory, the lab's own if empty.
	Dir string
	// Input is the standard input, nothing if nil. Start leaves it to its owner to close it.
	Input *os.File
}

// Proc is a process that was started in a node.
type Proc struct {
	node    *Node
	name    string
	cmd     *exec.Cmd
	log     *processLog
	ended   chan struct{}
	err     error
	stopped sync.Once
	asked   chan struct{} // closed when Stop was called
	started time.Time
}

// Start runs a process in the node until it ends, Stop is called, ctx ends or
// the lab is closed. If the lab itself is killed, the kernel kills the process.
func (n *Node) Start(ctx context.Context, what Process) (*Proc, error) {
	if err := n.lab.begin(); err != nil {
		return nil, err
	}
	defer n.lab.steps.Done() // with it the lab knows the process, and ends it
	path, err := lookPath(what.Path, what.Env)
	if err != nil {
		return nil, err
	}
	if what.Name == "" {
		what.Name = filepath.Base(path)
	}
	log, output, err := newProcessLog(n.lab.logs, n.name+"-"+what.Name)
	if err != nil {
		return nil, fmt.Errorf("cannot make a log for %s: %w", what.Name, err)
	}
	defer output.Close()
	p := &Proc{node: n, name: what.Name, log: log, ended: make(chan struct{}), asked: make(chan struct{})}
	p.cmd = n.command(ctx, path, what.Args, what.Env)
	p.cmd.Dir = what.Dir
	if what.Input != nil {
		p.cmd.Stdin = what.Input
	}
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.started = time.Now()
	if err := n.start(p.cmd); err != nil {
		log.discard()
		return nil, fmt.Errorf("cannot start %s in node %s: %w", what.Name, n.name, err)
	}
	n.lab.adopt(p)
	go log.copy()
	go p.reap()
	return p, nil
}

// Run runs a program in the node and gives its standard output. A failure is
// an error that holds what it wrote on standard error.
func (n *Node) Run(ctx context.Context, argv ...string) ([]byte, error) {
	return n.runInput(ctx, "", argv...)
}

func (n *Node) runInput(ctx context.Context, input string, argv ...string) ([]byte, error) {
	if err := n.ready(); err != nil {
		return nil, err
	}
	path, err := lookPath(argv[0], nil)
	if err != nil {
		return nil, err
	}
	var stdout, stderr strings.Builder
	cmd := n.command(ctx, path, argv[1:], nil)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	if err = n.start(cmd); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		text := strings.TrimSpace(stderr.String())
		return []byte(stdout.String()), fmt.Errorf("%s in node %s: %w: %s", strings.Join(argv, " "), n.name, err, text)
	}
	return []byte(stdout.String()), nil
}

// command prepares a child: a process group of its own, so that Ctrl-C at the
// terminal reaches only the lab, which then ends its children in order.
func (n *Node) command(ctx context.Context, path string, args, env []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(append(os.Environ(), env...), runVariable+"="+n.lab.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = stopGrace
	return cmd
}

// systemPath holds administration programs; it is not in the PATH of ordinary
// users, who need them in a user namespace.
const systemPath = "/usr/local/sbin:/usr/sbin:/sbin"

// lookPath finds a program: in the PATH of env if it has one, else in the
// lab's own, then where administration programs are.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := os.Getenv("PATH")
	for _, v := range env {
		if dirs, ok := strings.CutPrefix(v, "PATH="); ok {
			path = dirs
		}
	}
	for _, dir := range append(filepath.SplitList(path), filepath.SplitList(systemPath)...) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("the program %s is not installed: %w", name, exec.ErrNotFound)
}

// Name is the name of the process.
func (p *Proc) Name() string { return p.name }

// PID is the process id.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

// Started is the time just before the process was made.
func (p *Proc) Started() time.Time { return p.started }

// Done is closed when the process has ended.
func (p *Proc) Done() <-chan struct{} { return p.ended }

// Signal sends a signal, for example SIGHUP for a reload.
func (p *Proc) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Wait waits for the end of the process. A process that Stop ended has no
// error; else a status other than 0 is one, with the end of the log.
func (p *Proc) Wait() error {
	<-p.ended
	return p.err
}

// Stop ends the process and what it left in its process group: SIGTERM, and
// SIGKILL if that does not end it within ten seconds, which is an error. Once the
// context of the lab has ended, someone waits, and it has a second.
func (p *Proc) Stop() error {
	p.stopped.Do(func() { close(p.asked) })
	_ = p.cmd.Process.Signal(unix.SIGTERM)
	interrupted, late := p.node.lab.ctx.Done(), time.NewTimer(stopGrace)
	defer late.Stop()
	for {
		select {
		case <-p.ended:
			return nil
		case <-interrupted:
			interrupted = nil
			late.Reset(interruptedGrace)
		case <-late.C:
			_ = unix.Kill(-p.PID(), unix.SIGKILL)
			<-p.ended
			return fmt.Errorf("%s in node %s did not end in time and was killed", p.name, p.node.name)
		}
	}
}

// reap waits for the process and ends what is left of its group.
func (p *Proc) reap() {
	err := p.cmd.Wait()
	// The group's number stays taken while a member lives; without one the
	// call fails and does no harm.
	_ = unix.Kill(-p.PID(), unix.SIGKILL)
	p.log.finish()
	select {
	case <-p.asked:
		err = nil
	default:
	}
	if err != nil {
		p.err = fmt.Errorf("%s in node %s: %w%s", p.name, p.node.name, err, p.log.tail())
	}
	p.node.lab.forget(p)
	close(p.ended)
}

// adopt and forget keep the list of children in memory and in the state file,
// from which a later run ends those that outlive a killed lab.
func (l *Lab) adopt(p *Proc) {
	id, err := identify(p.PID())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.procs = append(l.procs, p)
	if err == nil {
		l.state.Children = append(l.state.Children, childRecord{p.node.name + "-" + p.name, id})
		_ = l.state.write(l.dir)
	}
}

func (l *Lab) forget(p *Proc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	children := l.state.Children[:0:0]
	for _, c := range l.state.Children {
		if c.PID != p.PID() {
			children = append(children, c)
		}
	}
	l.state.Children = children
	_ = l.state.write(l.dir)
}

// spawner starts children. The kernel ties the death signal to the thread that
// made the child, so that one thread makes them all and never ends.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// spawn runs start on the thread of the spawner.
func spawn(start func() error) error {
	result := make(chan error, 1)
	spawner() <- func() { result <- start() }
	return <-result
}

// start starts a command inside the node.
func (n *Node) start(cmd *exec.Cmd) error {
	ns, err := n.kernel.namespace()
	if err != nil {
		return err
	}
	defer ns.Close()
	return spawn(func() error { return startHere(ns, cmd) })
}

func startHere(ns *os.File, cmd *exec.Cmd) error {
	home, err := os.Open(threadNamespace)
	if err != nil {
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	err = cmd.Start()
	return errors.Join(err, unix.Setns(int(home.Fd()), unix.CLONE_NEWNET))
}
