// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/daemon"
)

// CheckCmd checks a configuration file and the machine.
type CheckCmd struct {
	ConfigFlag
	FileOnly bool `help:"Check the file alone, as for another machine."`
	JSON     bool `help:"Print JSON."`
}

// checked is the result of a check.
type checked struct {
	Config    string            `json:"config"`
	Faults    []checkedFault    `json:"faults"`
	Instances []checkedInstance `json:"instances"`
	Problems  []string          `json:"problems"`
	Warnings  []string          `json:"warnings"`
	Notes     []string          `json:"notes"`
	// Running reports that an isthmus runs with this file, or with instances of it, so
	// that what is in use was not looked at.
	Running bool `json:"running"`
}

// checkedFault is a fault of the text; line and column are counted from 1.
type checkedFault struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Key     string `json:"key,omitempty"`
	Problem string `json:"problem"`
	Remedy  string `json:"remedy"`
}

// checkedInstance says in a few words what an instance will be.
type checkedInstance struct {
	Role string `json:"role"`
	Name string `json:"name"`
	What string `json:"what"`
}

// Run exits with 1 if the machine cannot run the configuration, and with 2 if the
// file has faults.
func (c *CheckCmd) Run(to streams) error {
	result := checked{
		Config: c.file(), Faults: []checkedFault{}, Instances: []checkedInstance{}, Problems: []string{},
		Warnings: []string{}, Notes: []string{},
	}
	settings, err := c.load()
	var faults config.Errors
	switch {
	case c.JSON && errors.As(err, &faults):
		for _, f := range faults {
			result.Faults = append(result.Faults, checkedFault{f.Line, f.Column, f.Key, f.Problem, f.Remedy})
		}
		return cmp.Or(encode(to.out, result), error(quietError(exitUsage)))
	case err != nil:
		return err
	}
	result.Instances = summary(settings)
	if len(result.Instances) == 0 {
		result.Problems = append(result.Problems, daemon.NothingToRun(roles))
	}
	if !c.FileOnly {
		result.examine(settings)
	}
	if c.JSON {
		err = encode(to.out, result)
	} else {
		err = result.print(to.out)
	}
	if err == nil && len(result.Problems) > 0 {
		return quietError(exitFailed)
	}
	return err
}

// encode writes JSON for people too.
func encode(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func (r *checked) examine(settings *config.Config) {
	found := append(daemon.ExamineFiles(roles, settings), daemon.ExamineWay(roles, settings)...)
	if r.Running = runs(settings, r.Config); !r.Running {
		found = slices.Concat(daemon.Examine(roles, settings), found, daemon.ExamineFastPaths(roles, settings))
	}
	for _, finding := range found {
		switch {
		case finding.Note:
			r.Notes = append(r.Notes, finding.Text)
		case finding.Warning:
			r.Warnings = append(r.Warnings, finding.Text)
		default:
			r.Problems = append(r.Problems, finding.Text)
		}
	}
}

// runs reports whether the isthmus behind the control socket runs with this file or with
// instances of it: what they use is in use by them. One that does not say is taken to.
func runs(settings *config.Config, path string) bool {
	socket := settings.Control.Socket
	if socket == "" || !control.Alive(socket) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	status, err := control.NewClient(socket).Status(ctx)
	if err != nil {
		return true
	}
	here, err := os.Stat(path)
	there, err2 := os.Stat(status.Config)
	if err == nil && err2 == nil && os.SameFile(here, there) {
		return true
	}
	instances := summary(settings)
	return slices.ContainsFunc(status.Instances, func(i control.Instance) bool {
		return slices.ContainsFunc(instances, func(one checkedInstance) bool { return one.Role == i.Role && one.Name == i.Name })
	})
}

func (r *checked) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, i := range r.Instances {
		fmt.Fprintf(table, "%s\t%s\t%s\n", i.Role, i.Name, i.What)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, text := range r.Problems {
		fmt.Fprintf(w, "problem: %s\n", text)
	}
	for _, text := range r.Warnings {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
	for _, text := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", text)
	}
	switch {
	case len(r.Problems) > 0 && r.Running:
		fmt.Fprintf(w, "%s is well-formed, and an isthmus is running with it or its instances, but it cannot work here\n", r.Config)
	case len(r.Problems) > 0:
		fmt.Fprintf(w, "%s is well-formed, but it cannot run here yet\n", r.Config)
	case r.Running:
		fmt.Fprintf(w, "%s is good; an isthmus is running with it or its instances, so what these use was not looked at\n", r.Config)
	default:
		fmt.Fprintf(w, "%s is good\n", r.Config)
	}
	return nil
}

// summary says what each instance will be.
func summary(c *config.Config) []checkedInstance {
	list := []checkedInstance{}
	for _, i := range c.Instances {
		list = append(list, checkedInstance{i.Section.Name, i.Name, roles.Summary(i)})
	}
	return list
}
