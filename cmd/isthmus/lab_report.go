// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/isthmus-net/isthmus/internal/role"
	labreport "github.com/isthmus-net/isthmus/lab/report"
)

// LabReportCmd makes one page of the results of many runs.
type LabReportCmd struct {
	Dir string `arg:"" optional:"" type:"path" default:"results" help:"Folder to search for results, with all folders in it."`
	Out string `type:"path" placeholder:"FILE" help:"Page to write; index.html in that folder by default."`
}

// Run writes the page and says where it is.
func (c *LabReportCmd) Run(to streams) error {
	runs, err := gather(c.Dir, to)
	if err != nil {
		return err
	}
	page := c.Out
	if page == "" {
		page = filepath.Join(c.Dir, "index.html")
	}
	base, err := filepath.Rel(filepath.Dir(page), c.Dir)
	if err != nil {
		return fmt.Errorf("the page %s has no way to the results: %w", page, err)
	}
	if err := labreport.WriteIndexFile(page, "Isthmus: results of the lab", base, runs); err != nil {
		return err
	}
	noun := "runs"
	if len(runs) == 1 {
		noun = "run"
	}
	fmt.Fprintf(to.out, "%s: %d %s\n", page, len(runs), noun)
	return nil
}

// gather reads the results below a folder, of which there must be some.
func gather(dir string, to streams) ([]labreport.Run, error) {
	runs, unread, err := labreport.Gather(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, role.UsageError{Err: fmt.Errorf("there is no folder %s: name the one that lab run --out wrote to", dir)}
	case err != nil:
		return nil, err
	}
	for _, u := range unread {
		fmt.Fprintf(to.err, "isthmus: passed over %s\n", u)
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("there are no results below %s: make some with isthmus lab run --out %s EXPERIMENT", dir, dir)
	}
	return runs, nil
}
