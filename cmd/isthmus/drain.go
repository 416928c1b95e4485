// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/role"
)

// drainFlags are common to DrainCmd and UndrainCmd.
type drainFlags struct {
	SocketFlag
	Instance string `arg:"" optional:"" help:"This instance only, not all."`
	JSON     bool   `help:"Print JSON."`
}

// DrainCmd withdraws announced prefixes.
type DrainCmd struct{ drainFlags }

// UndrainCmd ends what DrainCmd began.
type UndrainCmd struct{ drainFlags }

// Run withdraws, and returns when routers have been told.
func (c *DrainCmd) Run(to streams) error {
	return c.ask(to, true, "withdrawn, and serving on: %s\n")
}

// Run lets prefixes be announced again.
func (c *UndrainCmd) Run(to streams) error {
	return c.ask(to, false, "announced while healthy: %s\n")
}

func (f drainFlags) ask(to streams, on bool, done string) error {
	asked, err := f.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	drained, err := asked.Drain(ctx, f.Instance, on)
	if err != nil {
		return err
	}
	if f.JSON {
		return json.NewEncoder(to.out).Encode(drained)
	}
	fmt.Fprintf(to.out, done, strings.Join(drained.Instances, ", "))
	return nil
}

// announcementRows are what status shows of an announcement.
func announcementRows(a *role.Announcement, now time.Time) []row {
	if a == nil {
		return nil
	}
	prefixes := make([]string, len(a.Prefixes))
	for i, p := range a.Prefixes {
		prefixes[i] = p.String()
	}
	list := strings.Join(prefixes, ", ")
	text := list
	if a.State != role.StateAnnounced {
		text = "no: " + words(a.State)
		if a.Problem != "" {
			text += ": " + a.Problem
		}
		text += " (" + list + ")"
	}
	if !a.Since.IsZero() {
		text += ", since " + ago(a.Since, now)
	}
	return []row{{"announced", text}}
}

// printNeighbors prints the BGP sessions.
func printNeighbors(w io.Writer, status control.Status, now time.Time) error {
	if len(status.Neighbors) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nneighbors:")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  address\tAS\tsession\tsince")
	for _, n := range status.Neighbors {
		fmt.Fprintf(table, "  %s\t%d\t%s\t%s\n", n.Address, n.AS, n.State, ago(n.Since, now))
	}
	return table.Flush()
}
