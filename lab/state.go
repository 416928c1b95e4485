// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stateVariable names the state directory for a lab that was re-executed in a
// user namespace, where it looks like root but is not.
const stateVariable = "ISTHMUS_LAB_STATE"

// Layout of a state directory: .lock, and one directory for each run with
// state.json, ns/NODE (the mounted namespaces), bin/isthmus (a link to the
// program) and the logs.
const (
	lockFile     = ".lock"
	stateFile    = "state.json"
	namespaceDir = "ns"
	programDir   = "bin"
	programName  = "isthmus"
)

// sweepGrace is how long processes of a dead run may take to end.
const sweepGrace = 500 * time.Millisecond

// runState is what another process needs to know about a run.
type runState struct {
	Name          string    `json:"name"`
	Owner         identity  `json:"owner"`
	Started       time.Time `json:"started"`
	UserNamespace bool      `json:"user_namespace,omitempty"`
	Nodes         []string  `json:"nodes"`
	// Inner are the namespaces inside of wires.
	Inner []string `json:"inner,omitempty"`
	// Controls are the control sockets of the Isthmus in each node.
	Controls map[string]string `json:"controls,omitempty"`
	Children []childRecord     `json:"children,omitempty"`
	// Outside are the folders that do not lie in that of the run.
	Outside []string `json:"outside,omitempty"`
}

type childRecord struct {
	Name string `json:"name"`
	identity
}

// stateRoot gives the directory that holds the runs of this user, and makes
// it. Root's is /run/isthmus-lab; others have one in their run-time directory.
func stateRoot() (string, error) {
	if dir := os.Getenv(stateVariable); dir != "" {
		return dir, nil
	}
	uid := os.Geteuid()
	if uid == 0 {
		return ownDirectory("/run/isthmus-lab", 0)
	}
	if base := os.Getenv("XDG_RUNTIME_DIR"); base != "" {
		if info, err := os.Stat(base); err == nil && info.IsDir() {
			return ownDirectory(filepath.Join(base, "isthmus-lab"), uid)
		}
	}
	return ownDirectory(filepath.Join(os.TempDir(), "isthmus-lab-"+strconv.Itoa(uid)), uid)
}

// ownDirectory makes a private directory, and refuses one that another user
// could have put there.
func ownDirectory(dir string, uid int) (string, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("cannot make the lab's state directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != uid || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s is not a private directory of user %d; remove it and try again", dir, uid)
	}
	return dir, nil
}

// lockState takes the lock of a state directory; closing the file frees it.
func lockState(root string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(root, lockFile), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// isName reports whether a lab or a node may be called so: by small letters, digits and hyphens, 32 at most.
func isName(name string) bool {
	other := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	return name != "" && len(name) <= 32 && name[0] != '-' && !strings.ContainsFunc(name, other)
}

// claimRun sweeps what dead runs left and makes the directory of a new run.
// The name gets a number behind it if a living run has it.
func claimRun(root, name string) (dir string, state runState, err error) {
	if !isName(name) {
		return "", state, fmt.Errorf("%q is no name for a lab: use a to z, 0 to 9 and -", name)
	}
	lock, err := lockState(root)
	if err != nil {
		return "", state, err
	}
	defer lock.Close()
	if err := sweep(root); err != nil {
		return "", state, err
	}
	owner, err := identify(os.Getpid())
	if err != nil {
		return "", state, err
	}
	unique := name
	for i := 2; ; i++ {
		dir = filepath.Join(root, unique)
		err = os.Mkdir(dir, 0o700)
		if !errors.Is(err, os.ErrExist) {
			break
		}
		unique = name + "-" + strconv.Itoa(i)
	}
	if err != nil {
		return "", state, err
	}
	if err := os.Mkdir(filepath.Join(dir, namespaceDir), 0o700); err != nil {
		return "", state, err
	}
	state = runState{Name: unique, Owner: owner, Started: time.Now(), UserNamespace: os.Getenv(stateVariable) != ""}
	return dir, state, state.write(dir)
}

// write replaces the state file in one step, so that readers never see half.
func (s *runState) write(dir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	next := filepath.Join(dir, stateFile+".new")
	if err := os.WriteFile(next, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, stateFile))
}

// readRuns reads the state of all runs, living or dead, sorted by name. A
// directory without a readable state file belongs to no living run: runs are
// made and listed under the lock.
func readRuns(root string) ([]runState, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var runs []runState
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		s := runState{Name: e.Name()}
		if b, err := os.ReadFile(filepath.Join(root, e.Name(), stateFile)); err == nil {
			if json.Unmarshal(b, &s) != nil {
				s = runState{}
			}
		}
		s.Name = e.Name()
		runs = append(runs, s)
	}
	sort.Slice(runs, func(i, j int) bool { return runs[i].Name < runs[j].Name })
	return runs, nil
}

// sweep removes the runs whose owner is dead. The caller holds the lock.
func sweep(root string) error {
	runs, err := readRuns(root)
	if err != nil {
		return err
	}
	for _, s := range runs {
		if s.Owner.PID != 0 && s.Owner.alive() {
			continue
		}
		if err := errors.Join(endRun(root, s), os.RemoveAll(filepath.Join(root, s.Name))); err != nil {
			return fmt.Errorf("cannot remove the dead lab %s: %w", s.Name, err)
		}
	}
	return nil
}

// removeRun ends what is left of a run of this process and removes its files, under
// the lock: the name is free for others before the last of its files is gone.
func removeRun(root string, s runState) error {
	ended := endRun(root, s)
	lock, err := lockState(root)
	if err != nil {
		return errors.Join(ended, err)
	}
	defer lock.Close()
	return errors.Join(ended, os.RemoveAll(filepath.Join(root, s.Name)))
}

// endRun ends the processes of a run and removes its namespaces, and what they left outside of its
// folder.
func endRun(root string, s runState) error {
	dir := filepath.Join(root, s.Name)
	var living []identity
	for _, c := range s.Children {
		living = append(living, c.identity)
	}
	endAll(append(living, membersOf(dir)...), sweepGrace)
	errs := []error{removeOutside(s.Outside)}
	if !s.UserNamespace { // without root there is no fast path
		errs = append(errs, removePins(filepath.Join(dir, namespaceDir)))
	}
	spaces, err := os.ReadDir(filepath.Join(dir, namespaceDir))
	if !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, e := range spaces {
		errs = append(errs, removeNamespace(filepath.Join(dir, namespaceDir, e.Name())))
	}
	return errors.Join(errs...)
}
