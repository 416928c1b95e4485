// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/isthmus-net/isthmus/internal/daemon"
)

// CleanCmd removes what an isthmus that did not come back has left.
type CleanCmd struct {
	ConfigFlag
	JSON bool `help:"Print JSON."`
}

// cleaned is the result of a cleaning.
type cleaned struct {
	Removed []string `json:"removed"`
	InUse   []string `json:"in_use"`
}

// Run lists what it has removed. It leaves alone what a running isthmus uses.
func (c *CleanCmd) Run(to streams) error {
	settings, err := c.load() // it names files of its own
	if err != nil && c.Config != nil {
		return err
	}
	found, err := daemon.Clean(roles, settings)
	result := cleaned{Removed: append([]string{}, found.Removed...), InUse: append([]string{}, found.InUse...)}
	if c.JSON {
		if wrong := encode(to.out, result); wrong != nil {
			return wrong
		}
		return err
	}
	for _, what := range result.Removed {
		fmt.Fprintf(to.out, "removed: %s\n", what)
	}
	for _, what := range result.InUse {
		fmt.Fprintf(to.out, "in use: %s\n", what)
	}
	if len(result.Removed)+len(result.InUse) == 0 && err == nil {
		fmt.Fprintln(to.out, "nothing was left behind")
	}
	return err
}
