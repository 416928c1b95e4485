// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/experiment"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// LabCmd groups the commands of the lab.
type LabCmd struct {
	List    LabListCmd    `cmd:"" help:"List the experiments, and the labs that are up."`
	Run     LabRunCmd     `cmd:"" help:"Run experiments."`
	Report  LabReportCmd  `cmd:"" help:"Gather the results of all runs into one page."`
	Compare LabCompareCmd `cmd:"" help:"Name the ratios that differ between two sets of results."`
	Up      LabUpCmd      `cmd:"" help:"Bring the topology of an experiment up, until Ctrl-C."`
	Shell   LabShellCmd   `cmd:"" help:"Open a shell in a node of a lab that is up."`
	Down    LabDownCmd    `cmd:"" help:"Take a lab down that is up."`
	Traffic LabTrafficCmd `cmd:"" help:"Generate and receive traffic as D-ITG does."`
}

// LabListCmd lists experiments and labs.
type LabListCmd struct {
	JSON bool `help:"Print JSON."`
}

// labList is what there is to run and what runs.
type labList struct {
	Experiments []labEntry `json:"experiments"`
	Running     []lab.Run  `json:"running"`
}

type labEntry struct {
	Name      string `json:"name"`
	Summary   string `json:"summary"`
	NeedsRoot bool   `json:"needs_root"`
}

// Run prints the list.
func (c *LabListCmd) Run(to streams) error {
	running, err := lab.Running()
	if err != nil {
		return err
	}
	list := labList{Running: running}
	for _, x := range experiment.All {
		list.Experiments = append(list.Experiments, labEntry{x.Name, x.Summary, x.NeedsRoot})
	}
	if c.JSON {
		return encode(to.out, list)
	}
	return list.print(to.out, time.Now())
}

func (l labList) print(w io.Writer, now time.Time) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "EXPERIMENT\tNEEDS\tWHAT IT SHOWS")
	for _, x := range l.Experiments {
		needs := "-"
		if x.NeedsRoot {
			needs = "root"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", x.Name, needs, x.Summary)
	}
	if len(l.Running) > 0 {
		fmt.Fprintln(tw, "\nLAB UP\tFOR\tNODES")
	}
	for _, r := range l.Running {
		name, up := r.Name, now.Sub(r.Started).Round(time.Second).String()
		for _, line := range wrap(r.Nodes, nodesWidth) {
			fmt.Fprintf(tw, "%s\t%s\t%s\n", name, up, line)
			name, up = "", ""
		}
	}
	return tw.Flush()
}

// nodesWidth is how wide a list of nodes is printed, in columns.
const nodesWidth = 60

// wrap joins words into lines of at most that width; there is at least one line.
func wrap(words []string, width int) []string {
	lines := []string{""}
	for _, word := range words {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// LabRunCmd runs experiments.
type LabRunCmd struct {
	Name   []string      `arg:"" help:"Experiments, as isthmus lab list names them."`
	Keep   bool          `help:"Leave the topology up after an experiment, until Ctrl-C."`
	Pcap   string        `type:"path" placeholder:"DIR" help:"Capture the links of the topology into this folder."`
	Out    string        `type:"path" placeholder:"DIR" help:"Write results and logs into this folder."`
	Runs   int           `placeholder:"N" help:"Repeat what is measured N times instead of the experiment's own number."`
	Time   time.Duration `placeholder:"TIME" help:"How long faults go on, for each way, for example 1m."`
	Seed   uint64        `placeholder:"N" help:"Draw the order of faults from this number, to repeat a run."`
	Ways   []string      `placeholder:"WAY,..." help:"Fast paths that faults happen to: off, tc, xdp; for ggsn-faults orderly, crashes."`
	Strict bool          `help:"Exit with status 1 if a figure misses its must."`
	JSON   bool          `help:"Print results as JSON, progress to standard error."`
}

// Validate is called by kong. No --runs leaves the number to the experiment.
func (c *LabRunCmd) Validate() error {
	if c.Runs < 0 {
		return fmt.Errorf("--runs=%d: write a number from 1", c.Runs)
	}
	return nil
}

// Run runs the experiments one after the other.
func (c *LabRunCmd) Run(to streams) error {
	if err := labFolders(c.Pcap, c.Out); err != nil {
		return err
	}
	chosen, err := lab.Find(experiment.All, c.Name...)
	if err != nil {
		return role.UsageError{Err: err}
	}
	return inLab(to, func(ctx context.Context, e *lab.Env) error {
		e.Keep, e.PcapDir, e.Dir, e.Runs, e.Strict, e.JSON = c.Keep, c.Pcap, c.Out, c.Runs, c.Strict, c.JSON
		e.Time, e.Seed, e.Ways = c.Time, c.Seed, c.Ways
		e.Live = onTerminal(to.out)
		if c.JSON {
			e.Progress, e.Live = to.err, onTerminal(to.err)
		}
		return lab.RunAll(ctx, chosen, e)
	})
}

// LabUpCmd brings a topology up.
type LabUpCmd struct {
	Name string `arg:"" help:"Experiment whose topology to bring up."`
	Pcap string `type:"path" placeholder:"DIR" help:"Capture the links of the topology into this folder."`
	Out  string `type:"path" placeholder:"DIR" help:"Write the logs into this folder."`
}

// Run keeps the topology until a signal or isthmus lab down.
func (c *LabUpCmd) Run(to streams) error {
	if err := labFolders(c.Pcap, c.Out); err != nil {
		return err
	}
	chosen, err := lab.Find(experiment.All, c.Name)
	if err != nil {
		return role.UsageError{Err: err}
	}
	return inLab(to, func(ctx context.Context, e *lab.Env) error {
		e.PcapDir, e.Dir = c.Pcap, c.Out
		return lab.Up(ctx, chosen[0], e)
	})
}

// inLab calls work with an environment for labs: as root, or in a user
// namespace. Signals end the context, upon which labs take themselves down.
func inLab(to streams, work func(context.Context, *lab.Env) error) error {
	readers, gone := context.WithCancelCause(context.Background())
	defer awaitBrokenPipe(gone)()
	begin := untilSignal
	if lab.Limited() {
		// In a user namespace each Ctrl-C comes twice, from the terminal and from the
		// program outside: a second one must not end the program at once.
		begin = signal.NotifyContext
	}
	ctx, stop := begin(readers, endSignals()...)
	defer stop()
	if os.Geteuid() != 0 {
		status, err := lab.Rootless(ctx)
		if err == nil && status != 0 {
			return quietError(status)
		}
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program's own file: %w", err)
	}
	e := &lab.Env{Binary: binary, Out: to.out, Limited: lab.Limited()}
	if e.Peers, err = addTools(); err != nil {
		return err
	}
	err = work(ctx, e)
	switch {
	case errors.Is(context.Cause(readers), errNoReader):
		return errNoReader
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted; the lab was taken down")
	}
	return err
}

// addTools puts the peers' programs behind PATH, if they have been fetched, and returns where they are: the lab's tools are
// among them, for a system that has none of its own.
func addTools() (dir string, err error) {
	found, err := peers.Find()
	if err != nil {
		return "", nil
	}
	return found.Dir, os.Setenv("PATH", os.Getenv("PATH")+":"+filepath.Join(found.Dir, "bin"))
}

var errNoReader = errors.New("no one reads the output any more; the lab was taken down")

// awaitBrokenPipe calls gone when an output has lost its reader, as behind head.
// It takes the signal for that until the end: to a program that does not, it is
// deadly, and a dead lab leaves its namespaces behind. A connection that an
// experiment writes to when its far end has gone raises the same signal.
func awaitBrokenPipe(gone context.CancelCauseFunc) (stop func()) {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-broken:
				if lostReader(os.Stdout) || lostReader(os.Stderr) {
					gone(errNoReader)
				}
			case <-ended:
				gone(nil)
				return
			}
		}
	}()
	return func() { close(ended) }
}

// lostReader reports whether nobody reads what is written to f.
func lostReader(f *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

// onTerminal reports whether a person reads what is written to w.
func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// LabShellCmd opens a shell in a node.
type LabShellCmd struct {
	Node    string   `arg:"" help:"Node, as isthmus lab list names it."`
	Command []string `arg:"" optional:"" passthrough:"" help:"Command instead of a shell, behind --."`
	On      string   `name:"run" placeholder:"NAME" help:"Lab to enter, if several are up."`
}

// Run replaces this process by the shell.
func (c *LabShellCmd) Run() error {
	command := c.Command
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if _, err := addTools(); err != nil {
		return err
	}
	return lab.Shell(c.On, c.Node, command)
}

// LabDownCmd takes labs down.
type LabDownCmd struct {
	Name string `arg:"" optional:"" help:"Lab to take down, if several are up."`
	All  bool   `help:"Take all labs of this user down."`
}

// Run ends the labs and waits until they are gone.
func (c *LabDownCmd) Run(to streams) error {
	if c.All && c.Name != "" {
		return role.UsageError{Err: errors.New("lab down takes a name or --all, not both")}
	}
	ended, err := lab.Down(c.Name, c.All, func(r lab.Run) {
		fmt.Fprintf(to.out, "taking down %s (process %d: %s)\n", r.Name, r.PID, r.Command)
	})
	for _, name := range ended {
		fmt.Fprintf(to.out, "%s is down\n", name)
	}
	if err == nil && len(ended) == 0 {
		fmt.Fprintln(to.out, "no lab is up")
	}
	return err
}
