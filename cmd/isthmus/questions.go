// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/role"
)

// asker asks running instances for the commands of roles.
type asker struct {
	to    streams
	words []string // of the command: the role and the name of the question
}

// names are the words of a command, without that of the program.
func names(command *kong.Node) (words []string) {
	for ; command != nil && command.Parent != nil; command = command.Parent {
		words = append([]string{command.Name}, words...)
	}
	return words
}

// Ask implements [role.Asker].
func (a asker) Ask(to role.To, order bool, arguments, answer any) error {
	path, err := a.socket(to)
	if err != nil {
		return err
	}
	client := control.NewClient(path)
	text, err := json.Marshal(arguments)
	if err != nil {
		return err
	}
	q := control.Question{Role: a.words[0], Instance: to.Instance, What: strings.Join(a.words[1:], " "), Arguments: text}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	if order {
		return client.Order(ctx, q, answer)
	}
	return client.Ask(ctx, q, answer)
}

// Show implements [role.Asker]. With nothing to show it ends with 1, as grep does; as JSON an empty
// list is an answer like any other.
func (a asker) Show(to role.To, answer role.Table) error {
	if to.JSON {
		return json.NewEncoder(a.to.out).Encode(answer)
	}
	if holding, ok := answer.(role.Emptiness); ok {
		if nothing := holding.Nothing(); nothing != "" {
			fmt.Fprintf(a.to.err, "isthmus: %s\n", nothing)
			return quietError(exitFailed)
		}
	}
	w := tabwriter.NewWriter(a.to.out, 0, 0, 2, ' ', 0)
	answer.Write(w)
	if part, ok := answer.(interface{ Next() (int, uint32) }); ok {
		if rows, from := part.Next(); from != 0 {
			defer fmt.Fprintf(a.to.err, "isthmus: these are the first %d; --limit 0 lists all\n", rows)
		}
	}
	return w.Flush()
}

// stats is the part of a status that concerns the counters of instances.
type stats []instanceStats

type instanceStats struct {
	Instance string             `json:"instance"`
	Values   map[string]float64 `json:"values"`
	Dropped  map[string]uint64  `json:"dropped"`
}

// Stats implements [role.Asker].
func (a asker) Stats(to role.To) error {
	path, err := a.socket(to)
	if err != nil {
		return err
	}
	client := control.NewClient(path)
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	status, err := client.Status(ctx)
	if err != nil {
		return err
	}
	var list stats
	for _, i := range status.Instances {
		if i.Role == a.words[0] && (to.Instance == "" || to.Instance == i.Name) {
			list = append(list, instanceStats{i.Name, i.Values, i.Dropped})
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("no %s of that name is running: isthmus status lists what runs", a.words[0])
	}
	return a.Show(to, list)
}

// Write implements [role.Table].
func (s stats) Write(w io.Writer) {
	for _, one := range s {
		fmt.Fprintln(w, one.Instance)
		for _, name := range slices.Sorted(maps.Keys(one.Values)) {
			counted, isCounter := strings.CutSuffix(name, "_total")
			if v := one.Values[name]; v != 0 || !isCounter { // nothing is left, and nothing has happened yet
				fmt.Fprintf(w, "  %s\t%.0f\n", words(counted), v)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(one.Dropped)) {
			if n := one.Dropped[name]; n != 0 {
				fmt.Fprintf(w, "  dropped: %s\t%d\n", words(name), n)
			}
		}
	}
}
