// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/role"
)

// TestBuild makes one instance of each role and looks that the daemon has what
// it builds on: names, live reload and a first snapshot.
func TestBuild(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.1")
	c := config.Default()
	server, relay, client := config.DefaultServer(), config.DefaultRelay(), config.DefaultClient()
	server.Name, relay.Name, client.Name = "a", "b", "c"
	server.Address, server.Advertise = address, address
	client.Servers = []config.Host{{Addr: address}}
	c.Servers, c.Relays, c.Clients = []config.Server{server}, []config.Relay{relay}, []config.Client{client}
	instances, err := Build(&c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, instance := range instances {
		got = append(got, instance.Role()+" "+instance.Name())
		if _, ok := instance.(role.Reloader); !ok {
			t.Errorf("the %s cannot be reloaded", instance.Role())
		}
		if state := snapshot(instance); state.Ready || len(state.State) < len("{}") || state.State[0] != '{' {
			t.Errorf("first snapshot of the %s: %+v", instance.Role(), state)
		}
	}
	if diff := cmp.Diff([]string{"server a", "relay b", "client c"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
