// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"os"
	"path/filepath"
)

// Command is one peer ready to be started in a namespace of the caller's
// choice. The process stays in the foreground; stop it with SIGTERM to its
// process id.
type Command struct {
	// Path is the absolute path of the program, Args what follows its name.
	Path string
	Args []string
	// Env holds variables ("NAME=value") to add to the caller's environment.
	Env []string
	// Config is the text of the configuration file and ConfigPath the file,
	// written already; both are empty if the program takes none.
	Config     string
	ConfigPath string
}

// instance is a peer that is being prepared: its program, and where its files lie.
type instance struct{ path, dir, name string }

// instance finds a program, and the full path of the folder for its files, which are named
// after it.
func (p *Peers) instance(program, dir, name string) (i instance, err error) {
	if i.path, err = p.Program(program); err != nil {
		return i, err
	}
	if i.dir, err = filepath.Abs(dir); err != nil {
		return i, fmt.Errorf("the folder for %s cannot be reached: %w", name, err)
	}
	i.name = name
	return i, nil
}

// at is the path of one of its files.
func (i instance) at(ending string) string { return filepath.Join(i.dir, i.name+ending) }

// folder makes a folder for it.
func (i instance) folder(ending string) (string, error) {
	dir := i.at(ending)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("the folder for %s cannot be made: %w", i.name, err)
	}
	return dir, nil
}

// write writes one of its files.
func (i instance) write(ending, text string) error {
	if err := os.WriteFile(i.at(ending), []byte(text), 0o644); err != nil {
		return fmt.Errorf("the configuration of %s cannot be written: %w", i.name, err)
	}
	return nil
}

// configured names the configuration.
const configured = ".conf"

// command writes the configuration and returns the command with these arguments.
func (i instance) command(config string, args ...string) (*Command, error) {
	if err := i.write(configured, config); err != nil {
		return nil, err
	}
	return &Command{Path: i.path, Args: args, Config: config, ConfigPath: i.at(configured)}, nil
}
