// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/isthmus-net/isthmus/internal/config"
)

// ConfigFlag names the configuration file.
type ConfigFlag struct {
	Config string `short:"c" default:"${config}" placeholder:"FILE" help:"Configuration file (${default})."`
}

// load reads and checks the file.
func (f ConfigFlag) load() (*config.Config, error) {
	file, err := os.Open(f.Config)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no configuration %s: make one with isthmus init client -o %s (or server, or relay), or name another with -c", f.Config, f.Config)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("this user may not read the configuration %s: use sudo, or name another with -c", f.Config)
	case err != nil:
		return nil, fmt.Errorf("cannot open the configuration: %w", err)
	}
	defer file.Close()
	return config.Parse(file, f.Config)
}

// clientOf is the configuration of one client of that server, without a file.
func clientOf(server string) (*config.Config, error) {
	c, err := config.Parse(strings.NewReader(fmt.Sprintf("[[client]]\nserver = %q\n", server)), "--client")
	var faults config.Errors
	if errors.As(err, &faults) {
		return nil, fmt.Errorf("--client: %s: %s", faults[0].Problem, faults[0].Remedy)
	}
	return c, err
}
