// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	translator "github.com/isthmus-net/isthmus/translate/run"
)

// SiitCmd looks into a running stateless translator, and changes it until it ends.
type SiitCmd struct {
	Map SiitMapCmd `cmd:"" help:"Explicit address mappings (RFC 7757)."`
}

// SiitMapCmd is about mappings.
type SiitMapCmd struct {
	List   SiitMapListCmd   `cmd:"" help:"List the mappings in effect."`
	Add    SiitMapAddCmd    `cmd:"" help:"Add a mapping, until isthmus ends; the configuration makes it last."`
	Remove SiitMapRemoveCmd `cmd:"" help:"Remove a mapping, until isthmus ends."`
}

// SiitMapListCmd lists mappings.
type SiitMapListCmd struct{ instanceFlags }

// Run prints them.
func (c *SiitMapListCmd) Run(to streams) error {
	var list translator.SIITMappings
	if err := c.ask(translator.RoleSIIT, "mappings", nil, false, &list); err != nil {
		return err
	}
	return c.show(to, list, func(w io.Writer) {
		fmt.Fprintln(w, "IPV4\tIPV6")
		for _, m := range list.Mappings {
			fmt.Fprintf(w, "%s\t%s\n", m.IPv4, m.IPv6)
		}
	})
}

// mappingFlags name one mapping.
type mappingFlags struct {
	instanceFlags
	IPv4 string `arg:"" name:"ipv4" help:"An IPv4 address or prefix."`
	IPv6 string `arg:"" name:"ipv6" help:"The IPv6 address or prefix that it stands for."`
}

func (f *mappingFlags) order(to streams, what, done string) error {
	text := f.IPv4 + " " + f.IPv6
	if _, err := translator.ParseMapping(text); err != nil {
		return usageError{err}
	}
	var m translator.SIITMapping
	if err := f.ask(translator.RoleSIIT, what, map[string]string{"mapping": text}, true, &m); err != nil {
		return err
	}
	return f.show(to, m, func(w io.Writer) { fmt.Fprintf(w, "%s %s = %s\n", done, m.IPv4, m.IPv6) })
}

// SiitMapAddCmd adds a mapping.
type SiitMapAddCmd struct{ mappingFlags }

// Run adds it.
func (c *SiitMapAddCmd) Run(to streams) error { return c.order(to, "map_add", "mapped") }

// SiitMapRemoveCmd removes a mapping.
type SiitMapRemoveCmd struct{ mappingFlags }

// Run removes it.
func (c *SiitMapRemoveCmd) Run(to streams) error { return c.order(to, "map_remove", "removed") }
