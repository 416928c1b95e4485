// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/teredo"
)

// relayFaults is the experiment relay-faults.
var relayFaults = faultsExperiment(relayFaultsName, "a Teredo relay", "A Teredo relay over faults", isthmusWays, drawRelayFaults)

const relayFaultsName = "relay-faults"

// faultsNATs are the boxes of the clients.
var faultsNATs = []lab.NATKind{lab.FullCone, lab.AddressRestricted, lab.PortRestricted, lab.SymmetricSequential}

// relaySwitchPort is the port of either switch where the relay is.
const relaySwitchPort = "p2"

// Parts of the configuration that come and go.
const (
	partServe   = "range that is served"
	partTimeout = "time of peers"
	partCarry   = "carrying between clients"
)

// drawRelayFaults draws the Teredo topology for one way, with its server and its clients.
func drawRelayFaults(ctx context.Context, e *lab.Env, w way) (_ *faultsWorld, err error) {
	n, err := drawTeredo(ctx, e, relayFaultsName+"-"+w.fast, teredoPlan{NATs: faultsNATs})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if err := errors.Join(n.likeWires(w), n.startServer(ctx, isthmus), n.startClients(ctx, isthmus)); err != nil {
		return nil, err
	}
	answers, err := answerShorts(n.host, hostAddr)
	if err != nil {
		return nil, err
	}
	world := &faultsWorld{off: map[string]bool{}, close: func() error { answers(); return n.Close() }}
	world.subject = &subject{instance: instance{n.relay, e.Binary, n.lab.Dir(), n.lab.Name()}}
	world.subject.section = func() string { return world.relaySection(w) }
	world.faults = append(slices.Concat(processFaults, fastPathFaults(w)),
		toggled(partServe), toggled(partTimeout), toggled(partCarry),
		flapped("IPv6 side", n.bridge6, relaySwitchPort), flapped("IPv4 side", n.bridge4, relaySwitchPort),
		unrouted("Teredo", n.relay, teredo.Prefix),
	)
	for _, c := range n.clients {
		out := path{from: c.node, to: n.host, source: c.addr, listen: hostAddr, target: hostAddr}
		in := path{from: n.host, to: c.node, source: hostAddr, listen: c.addr, target: c.addr}
		world.long, world.flows = append(world.long, out, in), append(world.flows, out, in)
		world.shorts = append(world.shorts, []path{out})
	}
	return world, nil
}

// likeWires has hosts send what wires carry, since clients in user space drop what a virtual
// cable leaves unfinished, and switches take frames that XDP redirects to them.
func (n *teredoNet) likeWires(w way) error {
	errs := []error{n.host.DisableOffloads("v6")}
	for _, c := range n.clients {
		errs = append(errs, c.node.DisableOffloads("eth0"))
	}
	if w == wayXDP {
		errs = append(errs, n.bridge4.EnableGRO(relaySwitchPort), n.bridge6.EnableGRO(relaySwitchPort))
	}
	return errors.Join(errs...)
}

// relaySection is the configuration of the moment.
func (w *faultsWorld) relaySection(of way) string {
	serve, timeout := []string{"2001:db8::/32", "3fff::/20"}, "30s"
	if w.off[partServe] {
		serve = serve[:1]
	}
	if w.off[partTimeout] {
		timeout = "40s"
	}
	return fmt.Sprintf("[[teredo_relay]]\nname = %q\nbind = %q\nserve = [%s]\npeer_timeout = %q\ncarry_clients = %v\nfast_path = %q\n",
		w.subject.name, relayBind, quoted(serve), timeout, !w.off[partCarry], w.fastPath(of))
}
