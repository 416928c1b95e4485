// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/control"
)

// downLimit bounds the wait for a lab to end by itself.
const downLimit = 3 * stopGrace

// Run describes a lab that is up, maybe in another terminal.
type Run struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// Command is how the process PID was started.
	Command string    `json:"command"`
	Started time.Time `json:"started"`
	Nodes   []string  `json:"nodes"`
	// Processes lists NODE-NAME of the programs in it.
	Processes []string `json:"processes"`
	// Limited says that it runs in a user namespace.
	Limited bool `json:"user_namespace"`
}

// Running lists the labs of this user that are up.
func Running() ([]Run, error) {
	states, _, err := livingRuns()
	if err != nil {
		return nil, err
	}
	runs := make([]Run, len(states))
	for i := range states {
		runs[i] = states[i].describe()
	}
	return runs, nil
}

// describe reports a run what concerns people.
func (s *runState) describe() Run {
	run := Run{
		Name: s.Name, PID: s.Owner.PID, Command: commandOf(s.Owner.PID),
		Started: s.Started, Nodes: s.Nodes, Limited: s.UserNamespace,
	}
	for _, c := range s.Children {
		run.Processes = append(run.Processes, c.Name)
	}
	return run
}

func livingRuns() (living []runState, root string, err error) {
	root, err = stateRoot()
	if err != nil {
		return nil, "", err
	}
	lock, err := lockState(root)
	if err != nil {
		return nil, "", err
	}
	defer lock.Close()
	runs, err := readRuns(root)
	if err != nil {
		return nil, "", err
	}
	for _, s := range runs {
		if s.Owner.alive() {
			living = append(living, s)
		}
	}
	return living, root, nil
}

// choose finds the run meant: that of the name, or the only one if no name is
// given.
func choose(runs []runState, name string) (runState, error) {
	names := make([]string, len(runs))
	for i, s := range runs {
		names[i] = s.Name
		if s.Name == name {
			return s, nil
		}
	}
	switch {
	case len(runs) == 0:
		return runState{}, errors.New("no lab is up; a lab started with sudo is seen with sudo only")
	case name != "":
		return runState{}, fmt.Errorf("no lab %q is up; there are: %s", name, strings.Join(names, ", "))
	case len(runs) > 1:
		return runState{}, fmt.Errorf("several labs are up: name one, for a shell with --run, of: %s", strings.Join(names, ", "))
	}
	return runs[0], nil
}

// Shell replaces the calling process by a command inside a node of a lab that
// is up: argv, or the user's shell if it is empty. The run may be "" if only
// one is up. It returns only on error.
func Shell(run, node string, argv []string) error {
	runs, root, err := livingRuns()
	if err != nil {
		return err
	}
	s, err := choose(runs, run)
	if err != nil {
		return err
	}
	if !slices.Contains(s.Nodes, node) && !slices.Contains(s.Inner, node) {
		return fmt.Errorf("lab %s has no node %q; it has: %s", s.Name, node, strings.Join(s.Nodes, ", "))
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return errors.New("the program nsenter is missing: install the package util-linux")
	}
	if len(argv) == 0 {
		shell := os.Getenv("SHELL")
		if shell == "" {
			shell = "/bin/sh"
		}
		argv = []string{shell}
	}
	return syscall.Exec(nsenter, append(enterArguments(root, s, node), argv...), s.environment(filepath.Join(root, s.Name), node))
}

// environment is that of a shell in a node of the run in dir: isthmus is in its
// PATH, and asks the Isthmus of that node; so are administration programs.
func (s *runState) environment(dir, node string) []string {
	set := []string{
		"ISTHMUS_LAB_NODE=" + node, runVariable + "=" + dir,
		"PATH=" + filepath.Join(dir, programDir) + ":" + os.Getenv("PATH") + ":" + systemPath,
		control.SocketVariable + "=" + s.Controls[node],
	}
	// Of two variables of one name, programs differ in which they take.
	env := slices.DeleteFunc(os.Environ(), func(old string) bool {
		name, _, _ := strings.Cut(old, "=")
		return slices.ContainsFunc(set, func(v string) bool { return strings.HasPrefix(v, name+"=") })
	})
	return append(env, set...)
}

// enterArguments are those of nsenter up to the command. In a user namespace
// the node is mounted only in the mount namespace of the lab, which is
// reached through its root directory in /proc.
func enterArguments(root string, s runState, node string) []string {
	space := filepath.Join(root, s.Name, namespaceDir, node)
	if !s.UserNamespace {
		return []string{"nsenter", "--net=" + space, "--"}
	}
	owner := "/proc/" + strconv.Itoa(s.Owner.PID)
	return []string{"nsenter", "--user=" + owner + "/ns/user", "--mount=" + owner + "/ns/mnt",
		"--net=" + filepath.Join(owner, "root", space), "--preserve-credentials", "--"}
}

// Down ends labs that are up and waits until they are gone: the one of the
// name, the only one if the name is empty, or all. It calls announce, if not
// nil, for each before it ends the first, and gives the names ended.
func Down(name string, all bool, announce func(Run)) ([]string, error) {
	runs, root, err := livingRuns()
	if err != nil {
		return nil, err
	}
	if !all {
		s, err := choose(runs, name)
		if err != nil {
			return nil, err
		}
		runs = []runState{s}
	}
	var ended []string
	for i := range runs {
		if announce != nil {
			announce(runs[i].describe())
		}
	}
	for _, s := range runs {
		if err := s.Owner.signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return ended, fmt.Errorf("cannot end lab %s (process %d): %w", s.Name, s.Owner.PID, err)
		}
		if !awaitEnd([]identity{s.Owner}, downLimit) {
			return ended, fmt.Errorf("lab %s (process %d) did not end within %v", s.Name, s.Owner.PID, downLimit)
		}
		ended = append(ended, s.Name)
	}
	lock, err := lockState(root)
	if err != nil {
		return ended, err
	}
	defer lock.Close()
	return ended, sweep(root)
}
