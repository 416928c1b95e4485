// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"fmt"

	"github.com/isthmus-net/isthmus/internal/role"
)

// Command is `isthmus teredo`.
type Command struct {
	Addr   Addr   `cmd:"" help:"Take a Teredo address apart."`
	Client Single `cmd:"" help:"Run one client, without a configuration file."`
}

// Single is `isthmus teredo client`: one client with the defaults.
type Single struct {
	Server string `arg:"" help:"IPv4 address or name of the Teredo server."`
}

// Run gives this host an IPv6 address until SIGINT or SIGTERM, and undoes everything then.
func (c *Single) Run(run role.Foreground) error {
	return run(fmt.Sprintf("[[%s]]\nserver = %q\n", name, c.Server))
}
