// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/lab"
)

// fastPings is how many pings of each kind go each way. The first ones may wait for
// bubbles; the rest are to take the fast path.
const fastPings = 10

// TestFastPathOfEveryKind has a client behind each kind of NAT and an IPv6 host ping
// each other through a relay's fast path. Data of every kind, symmetric ones
// included, must be counted as forwarded by the program, both ways.
func TestFastPathOfEveryKind(t *testing.T) {
	t.Parallel()
	for _, hook := range []string{"tc", "xdp"} {
		t.Run(hook, func(t *testing.T) {
			t.Parallel()
			ctx, e := testEnv(t)
			n, err := drawTeredo(ctx, e, "fast-"+hook, teredoPlan{NATs: matrixKinds})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := n.Close(); err != nil {
					t.Error(err)
				}
			}()
			for iface, bridge := range map[string]*lab.Node{"v4": n.bridge4, "v6": n.bridge6} {
				if err := receiveFrames(ctx, n.relay, iface, bridge); err != nil {
					t.Fatal(err)
				}
			}
			if err := n.startServer(ctx, isthmus); err != nil {
				t.Fatal(err)
			}
			p, err := n.daemons.startIsthmus(ctx, n.relay, "relay", fmt.Sprintf("bind = %q\nfast_path = %q\n", relayBind, hook))
			if err != nil {
				t.Fatal(err)
			}
			if err := serving(ctx, n.relay, p, relayBind.Port()); err != nil {
				t.Fatal(err)
			}
			for _, c := range n.clients {
				c.settings = "fast_path = \"off\"\n" // it is the relay's that counts
			}
			if err := n.startClients(ctx, isthmus); err != nil {
				t.Fatal(err)
			}
			n.awaitPath(t, ctx, hook)
			for _, c := range n.clients {
				pingBothWays(ctx, t, n, c)
			}
		})
	}
}

// pingBothWays has a client and the host ping each other, and checks what the
// relay's program forwards of that. On a busy machine the first packets, which wait
// for bubbles, may be all; then it pings again.
func pingBothWays(ctx context.Context, t *testing.T, n *teredoNet, c *teredoClient) {
	t.Helper()
	for end := time.Now().Add(daemonStart); ; {
		toClient, fromClient := pingOnce(ctx, t, n, c)
		// Each ping goes one way and its answer the other.
		if toClient >= fastPings && fromClient >= fastPings {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: the fast path forwarded %.0f packets to the client and %.0f from it, want %d at least", c.kind, toClient, fromClient, fastPings)
		}
	}
}

// pingOnce has a client and the host ping each other, and gives what the relay's
// program forwarded of that. No ping may be lost.
func pingOnce(ctx context.Context, t *testing.T, n *teredoNet, c *teredoClient) (toClient, fromClient float64) {
	t.Helper()
	before, clientBefore := n.counts(ctx, t, n.relay, "relay"), n.counts(ctx, t, c.node, "client")
	for _, p := range []struct {
		from *lab.Node
		what lab.Ping
	}{
		{c.node, lab.Ping{To: hostAddr, Count: fastPings, Interval: hostInterval, Timeout: answerWait}},
		{n.host, lab.Ping{To: c.addr, Count: fastPings, Interval: hostInterval, Timeout: answerWait}},
	} {
		if _, err := pingAll(ctx, p.from, p.what); err != nil {
			t.Fatalf("%s, from %s: %v; the relay counted %s, the client %s", c.kind, p.from.Name(), err,
				changes(before, n.counts(ctx, t, n.relay, "relay")), changes(clientBefore, n.counts(ctx, t, c.node, "client")))
		}
	}
	after := n.counts(ctx, t, n.relay, "relay")
	forwarded := func(way string) float64 {
		name := "fastpath_packets_total_forward_" + way
		return after[name] - before[name]
	}
	toClient, fromClient = forwarded("encap_forwarded"), forwarded("decap_forwarded")
	t.Logf("%s: forwarded to the client %.0f, from it %.0f", c.kind, toClient, fromClient)
	return toClient, fromClient
}

// counts is what the role of a node has counted.
func (n *teredoNet) counts(ctx context.Context, t *testing.T, node *lab.Node, role string) map[string]float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, daemonStart)
	defer cancel()
	values, err := n.daemons.isthmus(node, role).values(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// changes tells what has become more or less, in the order of names.
func changes(before, after map[string]float64) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if d := after[name] - before[name]; d != 0 {
			fmt.Fprintf(&b, "%s %+g ", name, d)
		}
	}
	return b.String()
}

// receiveFrames has the far end of a node's interface, a port of a bridge, take
// frames that XDP redirects to it.
func receiveFrames(ctx context.Context, node *lab.Node, iface string, bridge *lab.Node) error {
	far := 0
	err := node.Do(func() error {
		l, err := netlink.LinkByName(iface)
		if err == nil {
			far = l.Attrs().ParentIndex
		}
		return err
	})
	if err != nil {
		return err
	}
	name := ""
	err = bridge.Do(func() error {
		l, err := netlink.LinkByIndex(far)
		if err == nil {
			name = l.Attrs().Name
		}
		return err
	})
	if err != nil {
		return err
	}
	// Kernels before 6.3 do not tell whether a device takes redirected frames;
	// then its far end is looked at, in a namespace that a process shows.
	if _, err := bridge.Start(ctx, lab.Process{Path: "sleep", Args: []string{"infinity"}}); err != nil {
		return err
	}
	return bridge.EnableGRO(name)
}
