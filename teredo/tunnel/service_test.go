// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// TestServiceTeredo has a server, a client of it that asks the router for a port, and a
// relay of the host.
func TestServiceTeredo(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		return teredotest.SetUp("lo", "192.0.2.1/32", "192.0.2.2/32", "192.0.2.3/32", "192.0.2.9/32")
	})
	r := program.NewService(t, ns, `
[[teredo_server]]
address = "192.0.2.1"
secondary = "192.0.2.2"

[[teredo_relay]]
mode = "host"
bind = "192.0.2.3:3545"

[[teredo_client]]
server = "192.0.2.1"
bind = "192.0.2.9"
port_mapping = "auto"
# The client may ask before the server listens.
qualification_timeout = "100ms"
`)
	p := r.Start(t)
	qualified(t, control.NewClient(r.Socket), p)
	p.Signal(t, syscall.SIGHUP)
	r.Manager.Expect(t, "RELOADING=1", p)
	r.Manager.Expect(t, "READY=1", p)
	r.Stop(t, p, syscall.SIGTERM)
}
