// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/lab"
)

// nat64Faults is the experiment nat64-faults.
var nat64Faults = faultsExperiment(natFaultsName, "a stateful translator", "A NAT64 over faults", isthmusWays, drawNAT64Faults)

const natFaultsName = "nat64-faults"

// faultsClients is how many networks the client has an address of. Each is one client of
// the translator.
const faultsClients = 16

// Addresses of the campaign. Of the pool and of the prefixes, the last one comes and goes.
var (
	faultsGateway6 = netip.MustParseAddr("2001:db8:1::1")
	faultsClient6  = netip.MustParseAddr("2001:db8:1::2")
	faultsNetworks = netip.MustParsePrefix("2001:db8:8000::/48")
	faultsGateway4 = netip.MustParseAddr("198.51.100.1")
	faultsServer4  = netip.MustParseAddr("198.51.100.2")
	faultsPool     = []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2"), netip.MustParseAddr("203.0.113.3")}
	faultsPrefixes = []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96"), netip.MustParsePrefix("2001:db8:65::/96")}
)

// Parts of the configuration that come and go.
const (
	partAddress = "pool address"
	partPrefix  = "prefix"
	partStatic  = "static binding"
)

// nat64World is the topology of the campaign: between each host and the gateway is a
// switch, whose port is unplugged.
//
//	client ---- lan ---- gateway ---- wan ---- server
//	  2001:db8:1::/64          198.51.100.0/24
type nat64World struct {
	lab                               *lab.Lab
	way                               way
	client, lan, gateway, wan, server *lab.Node
	world                             *faultsWorld
}

// drawNAT64Faults draws the topology for one way.
func drawNAT64Faults(ctx context.Context, e *lab.Env, w way) (*faultsWorld, error) {
	l, err := e.New(ctx, natFaultsName+"-"+w.fast)
	if err != nil {
		return nil, err
	}
	n := &nat64World{
		lab: l, way: w, client: l.Node("client"), lan: l.Bridge("lan"), gateway: l.Node("gateway"), wan: l.Bridge("wan"), server: l.Node("server"),
		world: &faultsWorld{off: map[string]bool{}},
	}
	n.draw()
	if err := errors.Join(l.Err(), n.takeFrames()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	answers, err := answerShorts(n.server, faultsServer4)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	n.world.close = func() error { answers(); return l.Close() }
	n.world.subject = &subject{instance: instance{n.gateway, e.Binary, l.Dir(), l.Name()}, section: n.section}
	n.world.faults = append(slices.Concat(processFaults, fastPathFaults(w)),
		toggled(partAddress), toggled(partPrefix), toggled(partStatic),
		flapped("IPv6 side", n.lan, "gateway"), flapped("IPv4 side", n.wan, "gateway"),
		unrouted("prefix", n.gateway, faultsPrefixes[0]), unrouted("pool address", n.gateway, netip.PrefixFrom(faultsPool[0], 32)),
	)
	n.paths()
	return n.world, nil
}

func (n *nat64World) draw() {
	l := n.lab
	l.Link(n.client, "eth0", n.lan, "client")
	l.Link(n.lan, "gateway", n.gateway, "in6")
	l.Link(n.gateway, "out4", n.wan, "gateway")
	l.Link(n.wan, "server", n.server, "eth0")
	n.gateway.Forward(true, true).Addr("in6", faultsGateway6.String()+"/64").Addr("out4", faultsGateway4.String()+"/24").
		Route(faultsNetworks.String(), faultsClient6.String())
	n.client.Addr("eth0", faultsClient6.String()+"/64").Route("default6", faultsGateway6.String())
	for i := range faultsClients {
		n.client.Addr("eth0", faultsClient(i).String()+"/128")
	}
	n.server.Addr("eth0", faultsServer4.String()+"/24")
	for _, a := range faultsPool {
		n.server.Route(a.String()+"/32", faultsGateway4.String())
	}
}

// takeFrames has the switches take frames that XDP redirects to them.
func (n *nat64World) takeFrames() error {
	if n.way != wayXDP {
		return nil
	}
	return errors.Join(n.lan.EnableGRO("gateway"), n.wan.EnableGRO("gateway"))
}

// faultsClient is the client's address in the i-th network.
func faultsClient(i int) netip.Addr {
	a := faultsNetworks.Addr().As16()
	a[7], a[15] = byte(i), 2
	return netip.AddrFrom16(a)
}

// section is the configuration of the moment. Sessions that have ended go soon, since there
// are more than a pool of this size has ports for.
func (n *nat64World) section() string {
	prefixes, pool := faultsPrefixes, []string{}
	for _, a := range faultsPool {
		pool = append(pool, a.String())
	}
	static := []string{fmt.Sprintf("tcp [%s]:%d %s:%d", faultsClient(0), streamPort, faultsPool[0], streamPort)}
	if n.world.off[partPrefix] {
		prefixes = prefixes[:1]
	}
	if n.world.off[partAddress] {
		pool = pool[:2]
	}
	if !n.world.off[partStatic] {
		static = append(static, fmt.Sprintf("tcp [%s]:80 %s:80", faultsClient(1), faultsPool[1]))
	}
	pool = append(pool, faultsPool[1].String()+" tcp 80")
	return fmt.Sprintf("[[nat64]]\nname = %q\nclients = [%q]\npool6 = [%s]\npool4 = [%s]\nstatic = [%s]\nfast_path = %q\n",
		n.world.subject.name, faultsNetworks, quoted(prefixes), quoted(pool), quoted(static), n.world.fastPath(n.way)) +
		"client_blocks = 16\ntcp_transitory_timeout = \"30s\"\nudp_timeout = \"30s\"\n"
}

// paths are those of the flows. Long ones use all prefixes, and begin at either end; short
// ones use what always is there.
func (n *nat64World) paths() {
	var short []path
	for i := range 2 * faultsClients {
		p := path{
			from: n.client, to: n.server, source: faultsClient(i / 2), listen: faultsServer4,
			target: translated(faultsPrefixes[i%2], faultsServer4),
		}
		n.world.long, n.world.flows = append(n.world.long, p), append(n.world.flows, p)
		if i%2 == 0 {
			short = append(short, p)
		}
	}
	n.world.long = append(n.world.long, path{
		from: n.server, to: n.client, source: faultsServer4, listen: faultsClient(0), target: faultsPool[0],
	})
	n.world.shorts = [][]path{short}
}
