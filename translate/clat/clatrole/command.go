// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"fmt"
	"strings"

	"github.com/isthmus-net/isthmus/internal/role"
)

// Command is `isthmus clat`: one CLAT without a configuration file.
type Command struct {
	Uplink    string   `placeholder:"LINK" help:"Link to the NAT64 (that of the IPv6 default route)."`
	Prefix    []string `placeholder:"PREFIX" help:"Prefix of the NAT64 (discovered: from router advertisements, then by DNS)."`
	Resolver  []string `placeholder:"ADDRESS" help:"Name server to ask for the prefix (those that routers name, or those of the host)."`
	LAN       string   `name:"lan" placeholder:"PREFIX" help:"96 bits routed to this host, for private IPv4 networks behind it."`
	Interface string   `placeholder:"NAME" default:"clat" help:"Name of the device (${default})."`
	Socket    string   `placeholder:"PATH" env:"ISTHMUS_CONTROL" help:"Where 'isthmus status' asks, beside another isthmus on this host (that of the configuration's default)."`
	Always    bool     `help:"Serve even while the host has a default route of IPv4 of its own."`
}

// Run gives this host IPv4 until SIGINT or SIGTERM, and undoes everything then.
func (c *Command) Run(run role.Foreground) error { return run(c.configuration()) }

// configuration writes the flags as a file would have them, so that they are checked
// alike.
func (c *Command) configuration() string {
	var text strings.Builder
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%s = %q\n", key, value)
		}
	}
	list := func(key string, values []string) {
		if len(values) == 0 {
			return
		}
		var quoted []string
		for _, v := range values {
			quoted = append(quoted, fmt.Sprintf("%q", v))
		}
		fmt.Fprintf(&text, "%s = [%s]\n", key, strings.Join(quoted, ", "))
	}
	text.WriteString("[[clat]]\n")
	line("interface", c.Interface)
	line("uplink", c.Uplink)
	line("lan", c.LAN)
	list("prefixes", c.Prefix)
	list("resolvers", c.Resolver)
	if c.Always {
		line("native", string(NativeIgnore))
	}
	if c.Socket != "" {
		text.WriteString("[control]\n")
		line("socket", c.Socket)
	}
	return text.String()
}
