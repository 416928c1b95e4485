// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/teredo"
)

// interopPings are sent each way, the first of them cold.
const interopPings = 3

// TestInteropWithIPv6Host runs clients behind every kind of NAT and has them
// ping the IPv6 host and be pinged, with Isthmus and Miredo in all mixtures of
// roles. Nothing may be lost, the first packet included.
func TestInteropWithIPv6Host(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		situation             string
		server, relay, client maker
		hostRelay             bool // the relay is the host's own
	}{
		{"Miredo client, our server and relay", isthmus, isthmus, miredo, false},
		{"Miredo client, our server", isthmus, miredo, miredo, false},
		{"Miredo client, our relay", miredo, isthmus, miredo, false},
		{"our client, Miredo server and relay", miredo, miredo, isthmus, false},
		{"our client, Miredo server", miredo, isthmus, isthmus, false},
		{"our client, Miredo relay", isthmus, miredo, isthmus, false},
		{"Miredo client, our host-specific relay", miredo, isthmus, miredo, true},
		{"our client, our host-specific relay", isthmus, isthmus, isthmus, true},
		{"our client, Miredo host-specific relay", isthmus, miredo, isthmus, true},
	} {
		t.Run(c.situation, func(t *testing.T) {
			t.Parallel()
			ctx, e := testEnv(t)
			n := testNet(t, ctx, e, slices.Concat(matrixKinds, matrixKinds))
			if err := n.startServer(ctx, c.server); err != nil {
				t.Fatal(err)
			}
			startRelay := n.startRelay
			if c.hostRelay {
				startRelay = n.startHostRelay
			}
			if err := startRelay(ctx, c.relay); err != nil {
				t.Fatal(err)
			}
			if err := n.startClients(ctx, c.client); err != nil {
				t.Fatal(err)
			}
			half := len(matrixKinds)
			for i, kind := range matrixKinds {
				mustPing(t, ctx, string(kind)+" out", n.clients[i].node, hostAddr)
				mustPing(t, ctx, string(kind)+" in", n.host, n.clients[half+i].addr)
			}
		})
	}
}

// TestInteropOfClients has our clients ping Miredo's and be pinged by them.
// What must connect is what connects between two Miredo clients: those with
// endpoint-independent mapping call each other, and the two more open kinds of
// them also call clients behind symmetric NATs.
func TestInteropOfClients(t *testing.T) {
	t.Parallel()
	callers, called := matrixKinds[:3], matrixKinds
	for _, server := range []maker{isthmus, miredo} {
		t.Run(server.title()+" server", func(t *testing.T) {
			t.Parallel()
			ctx, e := testEnv(t)
			n := testNet(t, ctx, e, slices.Concat(callers, called, callers, called))
			if err := n.startServer(ctx, server); err != nil {
				t.Fatal(err)
			}
			ours, theirs := n.clients[:len(n.clients)/2], n.clients[len(n.clients)/2:]
			startAs(t, ctx, ours, isthmus)
			startAs(t, ctx, theirs, miredo)
			callAll(t, ctx, ours[:len(callers)], theirs[len(callers):])
			callAll(t, ctx, theirs[:len(callers)], ours[len(callers):])
		})
	}
}

// startAs starts clients and waits for their addresses.
func startAs(t *testing.T, ctx context.Context, clients []*teredoClient, who maker) {
	t.Helper()
	for _, c := range clients {
		if err := c.start(ctx, who); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range clients {
		if _, err := c.await(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// callAll has every client of one group, in the order of matrixKinds, ping
// those of the other that it can reach by RFC 4380 and open filters. All call at
// once, but no two the same one.
func callAll(t *testing.T, ctx context.Context, from, to []*teredoClient) {
	t.Helper()
	for round := range to {
		var calls sync.WaitGroup
		for i, a := range from {
			j := (i + round) % len(to)
			b := to[j]
			if a.kind == lab.PortRestricted && promised[i][j] != byRFC4380 {
				continue
			}
			what := a.who.title() + " " + string(a.kind) + " to " + b.who.title() + " " + string(b.kind)
			calls.Go(func() { mustPing(t, ctx, what, a.node, b.addr) })
		}
		calls.Wait()
	}
}

// mustPing sends pings of which none may be lost.
func mustPing(t *testing.T, ctx context.Context, what string, from *lab.Node, to netip.Addr) {
	t.Helper()
	if _, err := pingAll(ctx, from, lab.Ping{To: to, Count: interopPings, Interval: hostInterval, Timeout: answerWait}); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// pingAll sends pings of which none may be lost. It sends them again when the
// machine, which other tests share, did not have room for its packets.
func pingAll(ctx context.Context, from *lab.Node, p lab.Ping) (lab.PingResult, error) {
	for end := time.Now().Add(daemonStart); ; {
		r, err := from.Ping(ctx, p)
		switch {
		case err != nil || r.Lost() == 0:
			return r, err
		case r.Overruns == 0 || time.Now().After(end):
			return r, fmt.Errorf("%d of %d pings were lost, times %v; the machine dropped %d packets meanwhile", r.Lost(), r.Sent(), r.RTT, r.Overruns)
		}
	}
}

// testNet draws the Teredo topology for one test.
func testNet(t *testing.T, ctx context.Context, e *lab.Env, kinds []lab.NATKind) *teredoNet {
	t.Helper()
	return drawn(t, ctx, e, "interop", teredoPlan{NATs: kinds})
}

// drawn draws the Teredo topology until the end of the test.
func drawn(t *testing.T, ctx context.Context, e *lab.Env, name string, plan teredoPlan) *teredoNet {
	t.Helper()
	n, err := drawTeredo(ctx, e, name, plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// checkCaptures has tshark look for malformed packets in the captures of a run
// whose names match, and looks itself at the trailers, of which tshark knows
// nothing.
func checkCaptures(t *testing.T, ctx context.Context, e *lab.Env, pattern string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(e.PcapDir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures %s in %s: %v", pattern, e.PcapDir, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if bad := tshark(t, ctx, e, file, `_ws.malformed || icmpv6.checksum.status == "Bad" || tcp.checksum.status == "Bad"`); bad != "" {
			t.Errorf("%s has malformed packets:\n%s", name, bad)
		}
		if strings.HasSuffix(name, "-v6.pcap") {
			continue
		}
		if tshark(t, ctx, e, file, "teredo") == "" {
			t.Errorf("%s has no packet that tshark takes for Teredo", name)
		}
		checkTrailers(t, file)
	}
}

// tshark gives the lines of the packets that match a filter.
func tshark(t *testing.T, ctx context.Context, e *lab.Env, file, filter string) string {
	t.Helper()
	c, err := peersOf(e).Tshark(file, []uint16{clientPort, relayBind.Port()}, "-Y", filter)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	var said strings.Builder
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark %s: %v\n%s", filter, err, said.String())
	}
	return string(text)
}

// checkTrailers parses every datagram of a capture.
func checkTrailers(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	datagrams, err := readCapture(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range datagrams {
		p, err := teredo.Parse(d.payload)
		if err != nil {
			t.Errorf("%s: %v > %v: %v", filepath.Base(file), d.from, d.to, err)
			continue
		}
		trailers, err := teredo.ParseTrailers(p.Trailers)
		if err != nil || trailers.Malformed || trailers.Skipped > 0 {
			t.Errorf("%s: %v > %v has bad trailers % x: %v", filepath.Base(file), d.from, d.to, p.Trailers, err)
			return // one is enough to look at
		}
	}
}
