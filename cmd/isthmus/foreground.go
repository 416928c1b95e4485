// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/role"
)

// roleCommands are the commands of roles: they ask running instances, run without a
// configuration file, or need no instance.
func roleCommands() (options []kong.Option) {
	for _, r := range roles {
		for _, c := range append([]role.Command{r.Command}, r.Tools...) {
			if c.Flags != nil {
				options = append(options, kong.DynamicCommand(cmp.Or(c.Name, r.Name), c.Help, "", c.Flags()))
			}
		}
	}
	return options
}

// foreground runs the configuration that a role has made of its flags until a signal
// ends it.
func foreground(text string, to streams) error {
	settings, err := parseFlags(text)
	if err != nil {
		return err
	}
	if stepAside(settings) {
		fmt.Fprintf(to.err, "isthmus: another isthmus has %s; this one is asked by --socket %s\n", standardSocket, settings.Control.Socket)
	}
	return serve(settings, "", nil, to)
}

// parseFlags parses such a configuration; its faults are those of the command line.
func parseFlags(text string) (*config.Config, error) {
	settings, err := roles.Parse(strings.NewReader(text), "the command line")
	var faults config.Errors
	if errors.As(err, &faults) {
		return nil, role.UsageError{Err: fmt.Errorf("%s: %s", faults[0].Problem, faults[0].Remedy)}
	}
	return settings, err
}
