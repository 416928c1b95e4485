// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// publicNetwork draws the topology with boxes at which miniupnpd works.
func publicNetwork(t *testing.T, ctx context.Context, e *lab.Env, kinds ...lab.NATKind) *teredoNet {
	t.Helper()
	return drawn(t, ctx, e, "reserved", teredoPlan{NATs: kinds, Public: true})
}

// reserving makes the router of a client reserve ports on demand, by Debian's
// miniupnpd, and the client ask for one.
func (c *teredoClient) reserving(t *testing.T, ctx context.Context, method string) {
	t.Helper()
	d := c.net.daemons
	if out, err := c.nat.Run(ctx, "nft", peers.MiniupnpdRules); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	command, err := peersOf(d.env).Miniupnpd(d.dir, peers.Miniupnpd{
		Name: c.nat.Name() + "-miniupnpd", Outside: "e4", Inside: "l1", External: c.external,
	})
	p, err := d.startPeer(ctx, c.nat, "miniupnpd", command, err)
	if err != nil {
		t.Fatal(err)
	}
	if err := serving(ctx, c.nat, p, 1900); err != nil {
		t.Fatal(err)
	}
	if err := serving(ctx, c.nat, p, 5351); err != nil {
		t.Fatal(err)
	}
	c.settings = fmt.Sprintf("port_mapping = %q\nport_mapping_file = %q\n", method, filepath.Join(d.dir, c.name+".port-mapping"))
}

// portMappingReport is what an Isthmus client says of the port at the gateway.
type portMappingReport struct {
	State       string         `json:"state"`
	Mapped      netip.AddrPort `json:"mapped"`
	Symmetric   bool           `json:"symmetric_nat"`
	PortMapping struct {
		Method   string         `json:"method"`
		External netip.AddrPort `json:"external"`
		Error    string         `json:"error"`
	} `json:"port_mapping"`
}

func (c *teredoClient) askPortMapping(t *testing.T, ctx context.Context) (r portMappingReport) {
	t.Helper()
	if err := c.isthmus().state(ctx, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// awaitPort waits until the client's port is reserved.
func (c *teredoClient) awaitPort(t *testing.T, ctx context.Context) {
	t.Helper()
	for deadline := time.Now().Add(daemonStart); ; time.Sleep(10 * time.Millisecond) {
		r := c.askPortMapping(t, ctx)
		if r.PortMapping.External.IsValid() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s behind a %s NAT: no port is reserved: %+v", c.name, c.kind, r)
		}
	}
}

// reserved lists the ports that a router has reserved.
func (c *teredoClient) reserved(t *testing.T, ctx context.Context) string {
	t.Helper()
	out, err := c.nat.Run(ctx, "nft", "list", "chain", "inet", "miniupnpd", "reserved_in")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// startClient starts a client and waits for its address.
func startClient(t *testing.T, ctx context.Context, c *teredoClient) {
	t.Helper()
	if err := c.start(ctx, isthmus); err != nil {
		t.Fatal(err)
	}
	if _, err := c.await(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestReservedPort has clients ask Debian's miniupnpd for their port: it appears
// in the router and goes with the client. The daemon changes what comes in and not
// what goes out, so that a symmetric NAT stays one, and the server sees the
// reserved port only where the NAT preserves ports.
func TestReservedPort(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"upnp", "nat-pmp"} {
		for _, tt := range []struct {
			kind            lab.NATKind
			symmetric, seen bool
		}{
			{lab.PortRestricted, false, true},
			{lab.SymmetricPreserving, true, true},
			{lab.SymmetricRandom, true, false},
		} {
			t.Run(method+" "+string(tt.kind), func(t *testing.T) {
				t.Parallel()
				ctx, e := testEnv(t)
				n := publicNetwork(t, ctx, e, tt.kind)
				if err := n.startServer(ctx, isthmus); err != nil {
					t.Fatal(err)
				}
				c := n.clients[0]
				c.reserving(t, ctx, method)
				startClient(t, ctx, c)
				c.awaitPort(t, ctx)
				mustKnowNAT(t, ctx, c)
				r := c.askPortMapping(t, ctx)
				want := netip.AddrPortFrom(c.external, clientPort)
				if r.PortMapping.External != want || r.PortMapping.Method != method {
					t.Errorf("reserved %+v, want %s by %s", r.PortMapping, want, method)
				}
				if r.Symmetric != tt.symmetric || (r.Mapped == want) != tt.seen {
					t.Errorf("the server sees %s, symmetric: %v", r.Mapped, r.Symmetric)
				}
				if rules := c.reserved(t, ctx); !strings.Contains(rules, fmt.Sprintf("dport %d dnat ip to %s:%d", clientPort, c.local, clientPort)) {
					t.Errorf("the router's rules lack the port:\n%s", rules)
				}
				if err := c.stop(); err != nil {
					t.Fatal(err)
				}
				if rules := c.reserved(t, ctx); strings.Contains(rules, "dport") {
					t.Errorf("the port stays reserved:\n%s", rules)
				}
			})
		}
	}
}

// TestReachedByReservedPort pings clients that RFC 6081 without UPnP cannot reach
// from where they are called.
func TestReachedByReservedPort(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		situation string
		kinds     [2]lab.NATKind
		reserve   [2]bool
		method    string
	}{
		{"symmetric and port-restricted with UPnP", [2]lab.NATKind{lab.SymmetricRandom, lab.PortRestricted}, [2]bool{false, true}, "upnp"},
		{"symmetric and port-restricted with NAT-PMP", [2]lab.NATKind{lab.SymmetricRandom, lab.PortRestricted}, [2]bool{false, true}, "nat-pmp"},
		{"two symmetric with UPnP", [2]lab.NATKind{lab.SymmetricPreserving, lab.SymmetricPreserving}, [2]bool{true, true}, "upnp"},
		{"symmetric with UPnP and port-restricted with UPnP", [2]lab.NATKind{lab.SymmetricPreserving, lab.PortRestricted}, [2]bool{true, true}, "upnp"},
	} {
		for _, direction := range [][2]int{{0, 1}, {1, 0}} {
			name := fmt.Sprintf("%s, from the %s", tt.situation, [...]string{"first", "second"}[direction[0]])
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx, e := testEnv(t)
				n := publicNetwork(t, ctx, e, tt.kinds[:]...)
				if err := n.startServer(ctx, isthmus); err != nil {
					t.Fatal(err)
				}
				for i, c := range n.clients {
					if tt.reserve[i] {
						c.reserving(t, ctx, tt.method)
					}
					startClient(t, ctx, c)
					if tt.reserve[i] {
						c.awaitPort(t, ctx)
					}
					mustKnowNAT(t, ctx, c)
				}
				mustPing(t, ctx, name, n.clients[direction[0]].node, n.clients[direction[1]].addr)
			})
		}
	}
}
