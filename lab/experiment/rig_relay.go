// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/teredo"
)

// Ports of the relays.
const (
	relayPort      = 3545
	fakeClientPort = 4096
)

// relaying is the crossing of Teredo relays. The client, right, is the lab itself: two
// UDP sockets that play a Teredo client with an open mapping and its server.
type relaying struct{ tunnelling }

// String names the programs.
func (relaying) String() string { return "the relays of Miredo and Isthmus" }

func (relaying) hosts() (left, right string) { return "host", "client" }

func (relaying) lead(p *rigPath) {
	if p.way.runs() {
		p.target = teredo.Addr{Prefix: teredo.Prefix, Server: p.far, Mapped: p.client()}.IP()
		p.tunnel = tunnel{from: p.client(), to: p.relay()}
		p.rig.left.Route(p.target.String()+"/128", p.at6(1))
	}
}

// client and relay are the two ends of the tunnel.
func (p *rigPath) client() netip.AddrPort { return netip.AddrPortFrom(p.far, fakeClientPort) }
func (p *rigPath) relay() netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(p.at4(1)), relayPort)
}

func (relaying) start(ctx context.Context, p *rigPath) (*lab.Proc, error) {
	return startWayRelay(ctx, p.rig.env, p.rig.dir, p.router, p.way, p.relay(), "")
}

// startWayRelay runs the relay that a way is named after. Its files, and the control socket
// of Isthmus, lie in dir; more are lines of its section.
func startWayRelay(ctx context.Context, e *lab.Env, dir string, router *lab.Node, w way, bind netip.AddrPort, more string) (*lab.Proc, error) {
	if w == wayMiredo {
		c, err := peersOf(e).MiredoRelay(dir, peers.MiredoRelay{Name: "relay", Bind: bind})
		if err != nil {
			return nil, err
		}
		return router.Start(ctx, lab.Process{Name: "miredo", Path: c.Path, Args: c.Args, Env: c.Env})
	}
	return instance{router, e.Binary, dir, w.name}.run(ctx, fmt.Sprintf("[[teredo_relay]]\nname = %q\nbind = %q\nfast_path = %q\nstate_file = %q\n%s",
		w.name, bind, w.fast, filepath.Join(dir, w.name+".state"), more))
}

// meet has plain forwarding resolve its neighbours, and relays trust the client.
func (relaying) meet(ctx context.Context, p *rigPath) error {
	if p.way.runs() {
		return p.befriend(ctx)
	}
	return p.warm()
}

// befriend makes the relay trust the client: the host's packets make the relay
// send a bubble to the client's server, which is the fake client too, and it
// answers until a packet of the host comes through.
func (p *rigPath) befriend(ctx context.Context) error {
	f, err := newFakeClient(p.rig.right, p.far, p.target)
	if err != nil {
		return err
	}
	p.closers = append(p.closers, f.service, f.server)
	// A relay forgets a peer that is silent for 30 seconds (RFC 4380 section 5.2.4).
	p.touch = f.bubble
	return p.awaitFirst(ctx, toIPv4)
}
