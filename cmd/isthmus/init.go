// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/isthmus-net/isthmus/examples"
)

// InitCmd prints an example configuration.
type InitCmd struct {
	What   string `arg:"" optional:"" name:"example" default:"teredo_client" enum:"${examples}" help:"One of ${enum}; reference has all keys (default ${default})."`
	Output string `short:"o" placeholder:"FILE" help:"Write to this file, which must not exist yet, instead of standard output (-)."`
}

// Run prints the example, or writes it to a new file.
func (c *InitCmd) Run(to streams) error {
	text, ok := example(c.What)
	if !ok {
		return fmt.Errorf("there is no example %q", c.What)
	}
	if c.Output == "" || c.Output == "-" {
		_, err := fmt.Fprint(to.out, text)
		return err
	}
	if err := create(c.Output, text); err != nil {
		return err
	}
	fmt.Fprintf(to.err, "wrote %s; fill in your addresses, then: isthmus check -c %s\n", c.Output, c.Output)
	return nil
}

// exampleNames are what can be printed: the examples, and of a role without one the
// least that its section needs.
func exampleNames() []string {
	names := examples.Names()
	for _, r := range roles {
		if !slices.Contains(names, r.Name) {
			names = append(names, r.Name)
		}
	}
	return names
}

// example returns what is printed under that name.
func example(name string) (string, bool) {
	if text, ok := examples.Read(name); ok {
		return text, true
	}
	for _, r := range roles {
		if r.Name == name {
			return r.Smallest(), true
		}
	}
	return "", false
}

// create writes a file that must not exist.
func create(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return explainCreate(path, err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return explainCreate(path, err)
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

func explainCreate(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s exists already and is left as it is: move it away, or name another file", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("this user may not write %s: use sudo, or name another file", path)
	}
	return fmt.Errorf("cannot write %s: %w", path, err)
}
