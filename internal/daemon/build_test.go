// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/event"
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
	instances, err := Build(nil, &c, slog.New(slog.DiscardHandler))
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

// TestConnect has a follower told of the changes of each source.
func TestConnect(t *testing.T) {
	a, b, follower := &mover{}, &mover{}, &follower{}
	connect([]role.Instance{a, follower, b})
	for i, m := range []*mover{a, b} {
		m.tell(event.AddressChange{Instance: []string{"a", "b"}[i]})
	}
	if diff := cmp.Diff([]string{"a", "b"}, follower.told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// mover is a source, follower one that follows; they are nothing else.
type mover struct {
	role.Instance
	tell func(event.AddressChange)
}

func (m *mover) OnAddressChange(f func(event.AddressChange)) { m.tell = f }

type follower struct {
	role.Instance
	told []string
}

func (f *follower) AddressChanged(e event.AddressChange) { f.told = append(f.told, e.Instance) }

// A client with interfaces is built as one that moves between them.
func TestBuildHandover(t *testing.T) {
	c, client := config.Default(), config.DefaultClient()
	client.Servers = []config.Host{{Addr: netip.MustParseAddr("192.0.2.1")}}
	client.Interfaces = []string{"wlan0", "wwan0"}
	c.Clients = []config.Client{client}
	instances, err := Build(nil, &c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{`"interface":"wlan0"`, `"interface":"wwan0"`, `"state":"absent"`} {
		if state := string(snapshot(instances[0]).State); !strings.Contains(state, word) {
			t.Errorf("the state does not say %s: %s", word, state)
		}
	}
	if _, ok := instances[0].(role.AddressSource); !ok {
		t.Error("it tells nobody of its address")
	}
}
