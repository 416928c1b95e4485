// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/trace"
)

// TraceCmd shows packets of a running isthmus with what became of them.
type TraceCmd struct {
	SocketFlag
	Filter   []string `arg:"" optional:"" help:"Which packets to show; all without one."`
	Instance string   `help:"Trace this instance only."`
	Count    int      `short:"n" placeholder:"N" help:"Stop after so many packets."`
	Every    int      `default:"1" help:"Look at each n-th packet only (${default})."`
	Rate     int      `default:"1000" help:"Look at no more than this many packets a second of each path (${default})."`
	Write    string   `short:"w" placeholder:"FILE" help:"Write a pcapng file instead; - is the standard output."`
	JSON     bool     `help:"Print JSON, a line for each packet."`
}

// Help is the longer text of --help.
func (c *TraceCmd) Help() string {
	return "Shows packets of the fast path and of the engine as they came in, at most 256 bytes of each, with verdict and reason. " +
		"While it runs, the engine takes no short cuts: do not leave it running on a busy relay.\n\n" + trace.FilterHelp
}

// Validate is called by kong.
func (c *TraceCmd) Validate() error {
	if c.Count < 0 {
		return fmt.Errorf("--count=%d: write a number above 0", c.Count)
	}
	if c.JSON && c.Write != "" {
		return errors.New("--json and --write exclude each other")
	}
	if _, err := trace.ParseFilter(c.filter()); err != nil {
		return err
	}
	return c.sampling().Check()
}

func (c *TraceCmd) filter() string { return strings.Join(c.Filter, " ") }

func (c *TraceCmd) sampling() trace.Sampling {
	return trace.Sampling{Every: c.Every, PerSecond: c.Rate}
}

// errEnough ends a trace.
var errEnough = errors.New("enough packets")

// Run shows packets until it is interrupted, or has shown enough.
func (c *TraceCmd) Run(ctx context.Context, to streams) (err error) {
	asked, err := c.client()
	if err != nil {
		return err
	}
	show, finish, err := c.shower(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finish()) }()
	shown, lost := 0, uint64(0)
	err = asked.Trace(ctx, control.TraceRequest{Instance: c.Instance, Filter: c.filter(), Sampling: c.sampling()},
		func(s *trace.Sample) error {
			if err := show(s); err != nil {
				return err
			}
			if shown++; c.Count > 0 && shown >= c.Count {
				return errEnough
			}
			return nil
		},
		func(n uint64) { lost += n })
	if errors.Is(err, errEnough) || errors.Is(err, unix.EPIPE) {
		err = nil
	}
	note := ""
	if lost > 0 {
		note = fmt.Sprintf("; %d more could not be shown in time: use a filter, --every or a lower --rate", lost)
	}
	fmt.Fprintf(to.err, "%d packets%s\n", shown, note)
	return err
}

// shower returns what shows a sample, and what ends the showing.
func (c *TraceCmd) shower(to streams) (show func(*trace.Sample) error, finish func() error, err error) {
	none := func() error { return nil }
	switch {
	case c.JSON:
		lines := json.NewEncoder(to.out)
		return func(s *trace.Sample) error { return lines.Encode(s) }, none, nil
	case c.Write == "":
		return func(s *trace.Sample) error {
			_, err := fmt.Fprintln(to.out, s.Text())
			return err
		}, none, nil
	case c.Write == "-":
		out, err := trace.NewWriter(to.out, application)
		if err != nil {
			return nil, nil, err
		}
		return out.Write, none, nil
	}
	file, err := os.OpenFile(c.Write, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot write the capture: %w", err)
	}
	capture := captureFile{File: file}
	return capture.show, capture.finish, nil
}

// application is what captures say that wrote them.
var application = "isthmus " + version

// captureFile is a file of pcapng. What was in it stays until there is a packet: the trace may be refused, for one
// by another that writes into the same file. Each block is written at once, so that the file of a trace that is
// killed can be read.
type captureFile struct {
	*os.File
	out *trace.Writer // nil: nothing is written yet
}

func (f *captureFile) show(s *trace.Sample) error {
	if f.out == nil {
		if err := f.begin(); err != nil {
			return err
		}
	}
	return f.out.Write(s)
}

// begin empties the file and writes its head.
func (f *captureFile) begin() error {
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() { // a named pipe cannot be emptied
		err = f.Truncate(0)
	}
	if err != nil {
		return fmt.Errorf("cannot write the capture: %w", err)
	}
	f.out, err = trace.NewWriter(f, application)
	return err
}

// finish closes the file. One that was empty is a capture without packets.
func (f *captureFile) finish() error {
	info, err := f.Stat()
	if err == nil && f.out == nil && info.Size() == 0 {
		err = f.begin()
	}
	return errors.Join(err, f.Close())
}
