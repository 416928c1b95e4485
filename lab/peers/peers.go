// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package peers finds the programs that Isthmus is tested against and measured
// beside, and says how each is started.
//
// The programs lie in a private folder that scripts/peers (make peers) fills.
// Every command here names its wrapper in that folder, keeps running in the
// foreground and keeps its process id, so that whoever started it can stop it.
package peers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Env is the environment variable that names the folder of the peers when it
// is not .cache/peers of this repository.
const Env = "ISTHMUS_PEERS"

// ErrMissing is wrapped by every error that `make peers` mends.
var ErrMissing = errors.New("run 'make peers'")

var errNotSetUp = fmt.Errorf("the peers are not set up: %w", ErrMissing)

// Peers is the folder with the unpacked programs.
type Peers struct {
	// Dir is the absolute path of the folder.
	Dir string
}

// Find returns the folder named by ISTHMUS_PEERS or, without that variable,
// the first .cache/peers with programs in it, looking in the working
// directory, each folder above it, the folder of the running program and each
// folder above that.
func Find() (*Peers, error) {
	if dir := os.Getenv(Env); dir != "" {
		return open(dir)
	}
	if p := search("peers"); p != nil {
		return p, nil
	}
	return nil, errNotSetUp
}

// FindGroup returns the folder of another group of scripts/peers, looking where [Find] does.
func FindGroup(name string) (*Peers, error) {
	if p := search(name); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s is not set up: run 'scripts/peers %s'", name, name)
}

// search looks for a group; nil is none.
func search(group string) *Peers {
	for _, start := range startingPoints() {
		for dir := start; ; dir = filepath.Dir(dir) {
			if p, err := open(filepath.Join(dir, ".cache", group)); err == nil {
				return p
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return nil
}

// startingPoints returns the folders above which the peers may lie.
func startingPoints() []string {
	var dirs []string
	if dir, err := os.Getwd(); err == nil {
		dirs = append(dirs, dir)
	}
	if exe, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Dir(exe))
	}
	return dirs
}

// open checks that dir is a finished folder of peers.
func open(dir string) (*Peers, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("the peers' folder %s cannot be reached: %w", dir, err)
	}
	if _, err := os.Stat(filepath.Join(abs, "stamp")); err != nil {
		return nil, fmt.Errorf("%s does not hold finished peers: %w", abs, ErrMissing)
	}
	return &Peers{Dir: abs}, nil
}

// Program returns the path of one program in the folder. The zero Peers has none.
func (p *Peers) Program(name string) (string, error) {
	if p.Dir == "" {
		return "", fmt.Errorf("%s is wanted: %w", name, errNotSetUp)
	}
	path := filepath.Join(p.Dir, "bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not among the peers in %s: %w; this system's release may not carry it", name, p.Dir, ErrMissing)
	}
	return path, nil
}

// Tool returns the path of a tool that systems often have, such as nft or ip:
// the system's own, else the one among the peers.
func Tool(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	p, err := Find()
	if err != nil {
		return "", fmt.Errorf("%s was not found: install it, or %w", name, ErrMissing)
	}
	return p.Program(name)
}
