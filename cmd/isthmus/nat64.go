// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/isthmus-net/isthmus/internal/control"
	translator "github.com/isthmus-net/isthmus/translate/run"
)

// Nat64Cmd looks into a running NAT64, and changes it until it ends.
type Nat64Cmd struct {
	Sessions Nat64SessionsCmd `cmd:"" help:"List sessions."`
	Bindings Nat64BindingsCmd `cmd:"" help:"List bindings: which IPv6 host has which port."`
	Blocks   Nat64BlocksCmd   `cmd:"" help:"List the blocks of ports that clients have."`
	Where    Nat64WhereCmd    `cmd:"" help:"Tell who has a port of the pool, or which ports a client has."`
	Stats    Nat64StatsCmd    `cmd:"" help:"Show how full the tables are and what was dropped."`
	Static   Nat64StaticCmd   `cmd:"" help:"Static bindings."`
}

// instanceFlags choose the instance that a command is for.
type instanceFlags struct {
	SocketFlag
	Instance string `short:"i" placeholder:"NAME" help:"The instance; needed where several run."`
	JSON     bool   `help:"Print JSON."`
}

// ask has the instance answer a question, or with order change something.
func (f *instanceFlags) ask(role, what string, arguments map[string]string, order bool, into any) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	maps.DeleteFunc(arguments, func(_, value string) bool { return value == "" })
	q := control.Question{Role: role, Instance: f.Instance, What: what, Arguments: arguments}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	if order {
		return client.Order(ctx, q, into)
	}
	return client.Ask(ctx, q, into)
}

// show prints an answer as JSON, or as a table.
func (f *instanceFlags) show(to streams, answer any, table func(w io.Writer)) error {
	if f.JSON {
		return json.NewEncoder(to.out).Encode(answer)
	}
	w := tabwriter.NewWriter(to.out, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

// listFlags choose what of a list is shown.
type listFlags struct {
	instanceFlags
	Transport string `placeholder:"tcp|udp|icmp" help:"Of this transport only."`
	Inside    string `placeholder:"ADDRESS|PREFIX" help:"Of IPv6 hosts in this prefix only."`
	Outside   string `placeholder:"ADDRESS[:PORT]" help:"At this address of the pool only."`
	Limit     int    `default:"100" help:"Rows at most; 0 is all."`
}

func (f *listFlags) arguments() map[string]string {
	return map[string]string{"transport": f.Transport, "inside": f.Inside, "outside": f.Outside}
}

// partRows is how many rows are asked for at a time.
const partRows = 5000

// parts calls fetch for each part of a list until it is complete or long enough; fetch
// returns how many rows there are now and where the next part begins.
func (f *listFlags) parts(arguments map[string]string, fetch func(map[string]string) (rows int, next uint32, err error)) error {
	rows := 0
	for next := uint32(0); ; {
		want := partRows
		if f.Limit > 0 {
			want = min(want, f.Limit-rows)
		}
		with := maps.Clone(arguments)
		with["limit"], with["from"] = strconv.Itoa(want), strconv.FormatUint(uint64(next), 10)
		var err error
		if rows, next, err = fetch(with); err != nil || next == 0 || f.Limit > 0 && rows >= f.Limit {
			return err
		}
	}
}

// Nat64SessionsCmd lists sessions.
type Nat64SessionsCmd struct {
	listFlags
	Peer string `placeholder:"ADDRESS|PREFIX" help:"With IPv4 hosts in this prefix only."`
}

// Run prints the sessions.
func (c *Nat64SessionsCmd) Run(to streams) error {
	all := translator.NAT64Sessions{Sessions: []translator.NAT64Session{}}
	arguments := c.arguments()
	arguments["peer"] = c.Peer
	err := c.parts(arguments, func(arguments map[string]string) (int, uint32, error) {
		var part translator.NAT64Sessions
		err := c.ask(translator.RoleNAT64, "sessions", arguments, false, &part)
		all.Sessions, all.Next = append(all.Sessions, part.Sessions...), part.Next
		return len(all.Sessions), part.Next, err
	})
	if err != nil {
		return err
	}
	return c.show(to, all, func(w io.Writer) {
		fmt.Fprintln(w, "PROTO\tSTATE\tINSIDE\tOUTSIDE\tPEER\tEXPIRES")
		for _, s := range all.Sessions {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Transport, words(s.State), s.Inside, s.Outside, s.Peer, remaining(s.Expires))
		}
	})
}

// remaining tells how long there is to a moment.
func remaining(at time.Time) string {
	return max(time.Until(at), 0).Round(time.Second).String()
}

// Nat64BindingsCmd lists bindings.
type Nat64BindingsCmd struct{ listFlags }

// Run prints the bindings.
func (c *Nat64BindingsCmd) Run(to streams) error {
	all := translator.NAT64Bindings{Bindings: []translator.NAT64Binding{}}
	err := c.parts(c.arguments(), func(arguments map[string]string) (int, uint32, error) {
		var part translator.NAT64Bindings
		err := c.ask(translator.RoleNAT64, "bindings", arguments, false, &part)
		all.Bindings, all.Next = append(all.Bindings, part.Bindings...), part.Next
		return len(all.Bindings), part.Next, err
	})
	if err != nil {
		return err
	}
	return c.show(to, all, func(w io.Writer) {
		fmt.Fprintln(w, "PROTO\tINSIDE\tOUTSIDE\tKIND")
		for _, b := range all.Bindings {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", b.Transport, b.Inside, b.Outside, kindOf(b.Static))
		}
	})
}

func kindOf(static bool) string {
	if static {
		return "static"
	}
	return "dynamic"
}

// Nat64BlocksCmd lists blocks of ports.
type Nat64BlocksCmd struct {
	instanceFlags
	Limit int `default:"100" help:"Rows at most; 0 is all."`
}

// Run prints the blocks.
func (c *Nat64BlocksCmd) Run(to streams) error {
	list := listFlags{instanceFlags: c.instanceFlags, Limit: c.Limit}
	all := translator.NAT64Blocks{Blocks: []translator.NAT64Block{}}
	err := list.parts(map[string]string{}, func(arguments map[string]string) (int, uint32, error) {
		var part translator.NAT64Blocks
		err := c.ask(translator.RoleNAT64, "blocks", arguments, false, &part)
		all.Blocks, all.Next = append(all.Blocks, part.Blocks...), part.Next
		return len(all.Blocks), part.Next, err
	})
	if err != nil {
		return err
	}
	return showBlocks(&c.instanceFlags, to, all)
}

func showBlocks(f *instanceFlags, to streams, all translator.NAT64Blocks) error {
	return f.show(to, all, func(w io.Writer) {
		fmt.Fprintln(w, "CLIENT\tADDRESS\tPORTS\tKIND")
		for _, b := range all.Blocks {
			kind := "leased"
			if b.Calculated {
				kind = "calculated"
			}
			fmt.Fprintf(w, "%s\t%s\t%d-%d\t%s\n", b.Client, b.Pool, b.First, b.Last, kind)
		}
	})
}

// Nat64WhereCmd finds a client by a port, or ports by a client.
type Nat64WhereCmd struct {
	instanceFlags
	Address string `arg:"" help:"An IPv4 address of the pool with a port (192.0.2.10:4000), or the IPv6 address of a client."`
}

// Run prints the blocks that were found; there is nothing to print if nobody has the port.
func (c *Nat64WhereCmd) Run(to streams) error {
	if _, err := netip.ParseAddr(c.Address); err != nil {
		if _, err := netip.ParseAddrPort(c.Address); err != nil {
			return usageError{fmt.Errorf("%q is neither an address nor an address with a port: write 192.0.2.10:4000 or 2001:db8:1::5", c.Address)}
		}
	}
	var found translator.NAT64Blocks
	if err := c.ask(translator.RoleNAT64, "where", map[string]string{"address": c.Address}, false, &found); err != nil {
		return err
	}
	if len(found.Blocks) == 0 && !c.JSON {
		fmt.Fprintf(to.err, "isthmus: nobody has %s now\n", c.Address)
		return quietError(exitFailed)
	}
	return showBlocks(&c.instanceFlags, to, found)
}

// Nat64StatsCmd shows counters.
type Nat64StatsCmd struct{ instanceFlags }

// nat64Stats is the part of a status that concerns one NAT64.
type nat64Stats struct {
	Instance string             `json:"instance"`
	Values   map[string]float64 `json:"values"`
	Dropped  map[string]uint64  `json:"dropped"`
}

// Run prints the counters that are not zero.
func (c *Nat64StatsCmd) Run(to streams) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	status, err := client.Status(ctx)
	if err != nil {
		return err
	}
	list := []nat64Stats{}
	for _, i := range status.Instances {
		if i.Role == translator.RoleNAT64 && (c.Instance == "" || c.Instance == i.Name) {
			list = append(list, nat64Stats{i.Name, i.Values, i.Dropped})
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("no NAT64 of that name is running: isthmus status lists what runs")
	}
	return c.show(to, list, func(w io.Writer) {
		for _, s := range list {
			fmt.Fprintf(w, "%s\n", s.Instance)
			for _, name := range slices.Sorted(maps.Keys(s.Values)) {
				if v := s.Values[name]; v != 0 {
					fmt.Fprintf(w, "  %s\t%.0f\n", words(strings.TrimSuffix(name, "_total")), v)
				}
			}
			for _, name := range slices.Sorted(maps.Keys(s.Dropped)) {
				if n := s.Dropped[name]; n != 0 {
					fmt.Fprintf(w, "  dropped: %s\t%d\n", words(name), n)
				}
			}
		}
	})
}

// Nat64StaticCmd is about static bindings.
type Nat64StaticCmd struct {
	Add    Nat64StaticAddCmd    `cmd:"" help:"Bind a port of the pool to an IPv6 host, until isthmus ends; the configuration makes it last."`
	Remove Nat64StaticRemoveCmd `cmd:"" help:"End a static binding with its sessions."`
}

// staticFlags name one binding.
type staticFlags struct {
	instanceFlags
	Transport string `arg:"" enum:"tcp,udp,icmp" help:"tcp, udp or icmp."`
	Inside    string `arg:"" help:"The IPv6 host with its port, like [2001:db8:1::80]:80; for icmp the identifier."`
	Outside   string `arg:"" help:"The address of the pool with its port, like 192.0.2.10:80."`
}

func (f *staticFlags) order(to streams, what, done string) error {
	text := strings.Join([]string{f.Transport, f.Inside, f.Outside}, " ")
	if _, err := translator.ParseStatic(text); err != nil {
		return usageError{err}
	}
	var b translator.NAT64Binding
	if err := f.ask(translator.RoleNAT64, what, map[string]string{"binding": text}, true, &b); err != nil {
		return err
	}
	return f.show(to, b, func(w io.Writer) { fmt.Fprintf(w, "%s %s %s = %s\n", done, b.Transport, b.Inside, b.Outside) })
}

// Nat64StaticAddCmd adds a binding.
type Nat64StaticAddCmd struct{ staticFlags }

// Run adds it.
func (c *Nat64StaticAddCmd) Run(to streams) error { return c.order(to, "static_add", "bound") }

// Nat64StaticRemoveCmd removes a binding.
type Nat64StaticRemoveCmd struct{ staticFlags }

// Run removes it.
func (c *Nat64StaticRemoveCmd) Run(to streams) error {
	return c.order(to, "static_remove", "ended")
}
