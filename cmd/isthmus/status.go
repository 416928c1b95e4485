// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/role"
)

// StatusCmd shows the state of a running isthmus.
type StatusCmd struct {
	SocketFlag
	Instance string `arg:"" optional:"" help:"Show this instance only."`
	Peers    bool   `help:"List peers too."`
	Limit    int    `default:"100" help:"List at most this many peers of each instance (${default})."`
	JSON     bool   `help:"Print JSON."`
}

// statusReport is the status with the peers that were asked for.
type statusReport struct {
	control.Status
	Peers []control.PeerList `json:"peers,omitempty"`
}

// Validate is called by kong.
func (c *StatusCmd) Validate() error {
	if c.Limit < 0 || c.Limit > control.MaxPeers {
		return fmt.Errorf("--limit=%d: write a number from 0 to %d", c.Limit, control.MaxPeers)
	}
	return nil
}

// Run prints tables, or JSON.
func (c *StatusCmd) Run(to streams) error {
	asked, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	report, err := c.ask(ctx, asked)
	if err != nil {
		return err
	}
	if c.JSON {
		return encode(to.out, report)
	}
	return report.print(to.out, time.Now())
}

func (c *StatusCmd) ask(ctx context.Context, asked *control.Client) (statusReport, error) {
	status, err := asked.Status(ctx)
	if err != nil {
		return statusReport{}, err
	}
	if c.Instance != "" {
		others := func(i control.Instance) bool { return i.Name != c.Instance }
		if status.Instances = slices.DeleteFunc(status.Instances, others); len(status.Instances) == 0 {
			return statusReport{}, fmt.Errorf("no instance is named %q: isthmus status without a name lists them", c.Instance)
		}
	}
	report := statusReport{Status: status}
	if !c.Peers {
		return report, nil
	}
	for _, instance := range status.Instances {
		list, err := asked.Peers(ctx, instance.Name, c.Limit)
		if errors.Is(err, control.ErrNoInstance) {
			continue // servers keep none
		}
		if err != nil {
			return statusReport{}, err
		}
		report.Peers = append(report.Peers, list)
	}
	return report, nil
}

func (r statusReport) print(w io.Writer, now time.Time) error {
	file := r.Config
	if file == "" {
		file = "no configuration file"
	}
	fmt.Fprintf(w, "isthmus %s, process %d, up %s, %s\n", r.Version, r.PID, now.Sub(r.Started).Round(time.Second), file)
	for _, instance := range r.Instances {
		if err := printInstance(w, instance, now); err != nil {
			return err
		}
	}
	if err := printNeighbors(w, r.Status, now); err != nil {
		return err
	}
	for _, list := range r.Peers {
		if err := printPeers(w, list, now); err != nil {
			return err
		}
	}
	return nil
}

// printInstance prints state, then what was counted, without what the state has
// shown already; counters that are still zero would only hide the others.
func printInstance(w io.Writer, instance control.Instance, now time.Time) error {
	rows, err := flatten(instance.State)
	if err != nil {
		return fmt.Errorf("the state of %s is not understood (%w): is the running isthmus another version?", instance.Name, err)
	}
	headline, rows := lead(instance, rows)
	rows = append(rows, announcementRows(instance.Announcement, now)...)
	rows = fastRows(instance, rows)
	fmt.Fprintf(w, "\n%s %s: %s\n", instance.Role, instance.Name, headline)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	// The first is of no use to people, the second is in the headline.
	shown := map[string]bool{"host_multicast_total": true, "qualified": true}
	for _, row := range rows {
		shown[row.key] = true
		fmt.Fprintf(table, "  %s\t%s\n", words(row.key), row.value)
	}
	for _, name := range slices.Sorted(maps.Keys(instance.Values)) {
		if strings.HasPrefix(name, "fastpath_") {
			continue // said above in fewer words
		}
		if value := instance.Values[name]; value != 0 && !shown[name] {
			fmt.Fprintf(table, "  %s\t%s\n", words(strings.TrimSuffix(name, "_total")), strconv.FormatFloat(value, 'f', -1, 64))
		}
	}
	reasons := slices.Collect(maps.Keys(instance.Dropped))
	slices.SortFunc(reasons, func(a, b string) int {
		return cmp.Or(cmp.Compare(instance.Dropped[b], instance.Dropped[a]), cmp.Compare(a, b))
	})
	for _, reason := range reasons {
		if count := instance.Dropped[reason]; count != 0 {
			fmt.Fprintf(table, "  dropped: %s\t%d\n", words(reason), count)
		}
	}
	return table.Flush()
}

// lead takes what people want to know first out of the rows: the state in which
// an instance is, and what its role has beside it, such as the address of a client.
func lead(instance control.Instance, rows []row) (headline string, rest []row) {
	headline = "ready"
	if !instance.Ready {
		headline = "starting"
	}
	state := slices.IndexFunc(rows, func(r row) bool { return r.key == "state" })
	if state < 0 {
		return headline, rows
	}
	word := rows[state].value
	headline = stateWords(word)
	rest = slices.Delete(rows, state, state+1)
	address := slices.IndexFunc(rest, func(r row) bool { return r.key == roles.Headline(instance.Role) })
	if address >= 0 {
		headline += ", " + rest[address].value
		rest = slices.Delete(rest, address, address+1)
	}
	if slices.Contains(rest, row{"device_down", "yes"}) && word != "device_down" {
		headline += ", but its device is down"
	}
	return headline, rest
}

// stateWords makes the name of a state readable.
func stateWords(name string) string {
	if name == "off_line" {
		return "off-line"
	}
	return words(name)
}

func printPeers(w io.Writer, list control.PeerList, now time.Time) error {
	fmt.Fprintf(w, "\npeers of %s: %d of %d\n", list.Instance, len(list.Peers), list.Total)
	if len(list.Peers) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  address\tmapped\ttrusted\treceived\tsent\tqueued")
	slices.SortFunc(list.Peers, func(a, b role.Peer) int { return a.Address.Compare(b.Address) })
	for _, p := range list.Peers {
		trusted := "no"
		if p.Trusted {
			trusted = "yes"
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\t%d\n", p.Address, p.Mapped, trusted, ago(p.LastReceived, now), ago(p.LastSent, now), p.Queued)
	}
	return table.Flush()
}

func ago(then, now time.Time) string {
	if then.IsZero() {
		return "never"
	}
	return now.Sub(then).Round(time.Second).String() + " ago"
}

// words makes a snake_case name readable.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// row is one value of a state.
type row struct{ key, value string }

// flatten turns the state of a role, whatever its fields, into rows in the order
// of the document. Nested objects become "outer inner" and lists of values one
// row.
func flatten(state json.RawMessage) ([]row, error) {
	decoder := json.NewDecoder(strings.NewReader(string(state)))
	decoder.UseNumber()
	var rows []row
	err := flattenValue(decoder, "", func(key, value string) {
		if n := len(rows); n > 0 && rows[n-1].key == key {
			rows[n-1].value += ", " + value
			return
		}
		rows = append(rows, row{key, value})
	})
	if err == io.EOF {
		err = nil // an instance without state
	}
	return rows, err
}

func flattenValue(decoder *json.Decoder, key string, emit func(key, value string)) error {
	token, err := decoder.Token()
	if err != nil {
		return err
	}
	delimiter, ok := token.(json.Delim)
	if !ok {
		if token != nil && token != "" {
			emit(key, scalar(token))
		}
		return nil
	}
	for decoder.More() {
		inner := key
		if delimiter == '{' {
			name, err := decoder.Token()
			if err != nil {
				return err
			}
			inner = strings.TrimSpace(key + " " + fmt.Sprint(name))
		}
		if err := flattenValue(decoder, inner, emit); err != nil {
			return err
		}
	}
	_, err = decoder.Token() // the closing bracket
	return err
}

// scalar writes a value for people.
func scalar(token json.Token) string {
	switch token {
	case true:
		return "yes"
	case false:
		return "no"
	}
	return fmt.Sprint(token)
}
