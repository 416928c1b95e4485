// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

// Command is `isthmus pref64`: what concerns the prefixes of NAT64s.
type Command struct {
	Discover discoverCommand `cmd:"" help:"Find the prefix of the NAT64 of this network, as a host does. Changes nothing."`
}

// discoverCommand asks routers (RFC 8781) and name servers (RFC 7050).
type discoverCommand struct {
	Interface string        `short:"i" help:"The interface whose network is meant: its routers are asked (needs root), and the name servers that they name. Without it, the host's own name servers are asked alone."`
	Resolver  []string      `help:"Name servers to ask in place of those, such as 2001:db8::53." placeholder:"ADDRESS"`
	Check     netip.Addr    `help:"Ping this IPv4 host by each prefix found, to see whether it works (needs root)." placeholder:"IPV4"`
	Timeout   time.Duration `default:"10s" help:"Give up after this time (default ${default})."`
	JSON      bool          `help:"Print JSON."`
}

// foundPrefix is one prefix in the output.
type foundPrefix struct {
	Prefix netip.Prefix `json:"prefix"`
	Source string       `json:"source"`
	// Works is left out if no one looked.
	Works   *bool  `json:"works,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// Run looks and prints.
func (c *discoverCommand) Run(ctx context.Context, out io.Writer) error {
	settings, err := c.settings()
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, c.Timeout)
	set, err := Discover(within, settings)
	cancel()
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // no one has said anything
	}
	if err != nil {
		return err
	}
	return c.print(out, c.examine(ctx, set))
}

func (c *discoverCommand) settings() (Settings, error) {
	s := Settings{Interface: c.Interface}
	for _, text := range c.Resolver {
		at, err := netip.ParseAddrPort(text)
		if a, plain := netip.ParseAddr(text); plain == nil {
			at, err = netip.AddrPortFrom(a, 53), nil
		}
		if err != nil {
			return s, role.UsageError{Err: fmt.Errorf("%q is not the address of a name server; write it like 2001:db8::53", text)}
		}
		s.Resolvers = append(s.Resolvers, at)
	}
	if c.Check.IsValid() && !c.Check.Is4() {
		return s, role.UsageError{Err: fmt.Errorf("%s is not an IPv4 address, which is what lies behind a NAT64", c.Check)}
	}
	if c.Interface != "" || len(s.Resolvers) > 0 {
		return s, nil
	}
	var err error
	s.Resolvers, err = SystemResolvers()
	return s, err
}

// examine lists the prefixes, and looks whether they work if that is wanted.
func (c *discoverCommand) examine(ctx context.Context, set pref64.Set) []foundPrefix {
	found := []foundPrefix{}
	for _, p := range set.Prefixes {
		one := foundPrefix{Prefix: p, Source: set.Source.String()}
		if c.Check.IsValid() {
			err := Check(ctx, c.Interface, p, c.Check)
			works := err == nil
			one.Works = &works
			if err != nil {
				one.Problem = err.Error()
			}
		}
		found = append(found, one)
	}
	return found
}

func (c *discoverCommand) print(w io.Writer, found []foundPrefix) error {
	if c.JSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(found); err != nil {
			return err
		}
	}
	if len(found) == 0 {
		if c.JSON {
			return role.ErrReported
		}
		return errors.New("no NAT64 was found: neither a router nor a name server told of a prefix; add --interface or --resolver if others should be asked")
	}
	var failed error
	if slices.ContainsFunc(found, func(p foundPrefix) bool { return p.Problem != "" }) {
		failed = role.ErrReported
	}
	if c.JSON {
		return failed
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, p := range found {
		fmt.Fprintf(table, "%s\tby %s", p.Prefix, p.Source)
		switch {
		case p.Problem != "":
			fmt.Fprintf(table, "\tdoes not work: %s", p.Problem)
		case p.Works != nil:
			fmt.Fprint(table, "\tworks")
		}
		fmt.Fprintln(table)
	}
	return cmp.Or(table.Flush(), failed)
}
