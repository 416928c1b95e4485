// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
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
type relaying struct{}

// String names the programs.
func (relaying) String() string { return "the relays of Miredo and Isthmus" }

func (relaying) hosts() (left, right string) { return "host", "client" }

func (relaying) lead(p *rigPath) {
	if p.way.runs() {
		p.target = teredo.Addr{Prefix: teredo.Prefix, Server: p.far, Mapped: p.client()}.IP()
		p.rig.left.Route(p.target.String()+"/128", p.at6(1))
	}
}

// client and relay are the two ends of the tunnel.
func (p *rigPath) client() netip.AddrPort { return netip.AddrPortFrom(p.far, fakeClientPort) }
func (p *rigPath) relay() netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(p.at4(1)), relayPort)
}

// open opens a sender at each end, and a meter for each direction.
func (relaying) open(p *rigPath) (err error) {
	if p.toRight, err = p.meter(); err != nil {
		return err
	}
	if p.toLeft, err = p.meter(); err != nil {
		return err
	}
	for _, side := range []struct {
		node    *lab.Node
		sender  **load.Sender
		out, in *load.Meter
	}{{p.rig.left, &p.fromLeft, p.toRight, p.toLeft}, {p.rig.right, &p.fromRight, p.toLeft, p.toRight}} {
		err := side.node.Do(func() (err error) {
			if *side.sender, err = p.sender(); err != nil {
				return err
			}
			return errors.Join(side.out.Departure(p.way.name), side.in.Arrival(p.way.name, sink))
		})
		if err != nil {
			return err
		}
	}
	return nil
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

// meet has plain forwarding resolve its neighbours, by one packet each way, and relays
// trust the client.
func (relaying) meet(ctx context.Context, p *rigPath) error {
	switch {
	case p.way.runs():
		return p.befriend(ctx)
	case p.router == nil:
		return nil
	}
	return errors.Join(
		p.rig.left.Do(func() error { return sendUDP(p.source, p.target) }),
		p.rig.right.Do(func() error { return sendUDP(p.target, p.source) }),
	)
}

func sendUDP(from, to netip.Addr) error {
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
		net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, load.DiscardPort)))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte("warm"))
	return err
}

// befriend makes the relay trust the client: the host's packets make the relay
// send a bubble to the client's server, which is the fake client too, and it
// answers until a packet of the host comes through.
func (p *rigPath) befriend(ctx context.Context) (err error) {
	if p.teredo, err = newFakeClient(p.rig.right, p.far, p.target); err != nil {
		return err
	}
	p.closers = append(p.closers, p.teredo.service, p.teredo.server)
	frame := p.frame(toIPv4, load.MinTaggedSize)
	for deadline := time.Now().Add(daemonStart); time.Now().Before(deadline); {
		if err := ctx.Err(); err != nil {
			return err
		}
		p.toRight.Forget(0, 1)
		if _, err := p.fromLeft.Stream(frame, 0, 1, 0); err != nil {
			return err
		}
		if p.toRight.Await(ctx, 0, 1, 200*time.Millisecond) == 1 {
			return nil
		}
	}
	return fmt.Errorf("the relay did not come to trust its client within %v", daemonStart)
}

// touch keeps the client trusted: a relay forgets a peer that is silent for 30
// seconds (RFC 4380 section 5.2.4).
func (p *rigPath) touch() error {
	if p.teredo == nil {
		return nil
	}
	return p.teredo.bubble()
}

// frame is one of the host or of the client, of an IPv6 packet of size bytes; the
// client's is in UDP where the way is a relay.
func (p *rigPath) frame(d direction, size int) []byte {
	if d == toIPv4 {
		return load.Frame6(p.leftMAC, p.in6MAC, load.Packet(p.source, p.target, size))
	}
	inner := load.Packet(p.target, p.source, size)
	if !p.way.runs() {
		return load.Frame6(p.rightMAC, p.out4MAC, inner)
	}
	return load.Frame4(p.rightMAC, p.out4MAC, p.client(), p.relay(), inner)
}

func (relaying) probe(ctx context.Context, p *rigPath) error {
	for _, side := range []struct {
		d      direction
		sender *load.Sender
		meter  *load.Meter
	}{{toIPv4, p.fromLeft, p.toRight}, {toIPv6, p.fromRight, p.toLeft}} {
		side.meter.Forget(0, 1)
		if _, err := side.sender.Stream(p.frame(side.d, load.MinTaggedSize), 0, 1, 0); err != nil {
			return err
		}
		side.meter.Await(ctx, 0, 1, time.Second)
	}
	return nil
}

func (relaying) lanes(p *rigPath, d direction, size int) ([]load.Lane, error) {
	p.rig.generator.Peers()[0] = load.Peer{Client: p.target.As16(), IP: p.far.As4(), Port: portBytes(p.client())}
	lanes := []load.Lane{
		{Frame: p.frame(toIPv4, size), ToClient: true, Target: p.aimed(toIPv4), Count: 1},
		{Frame: p.frame(toIPv6, size), Target: p.aimed(toIPv6), Count: 1},
	}
	switch d {
	case toIPv4:
		lanes = lanes[:1]
	case toIPv6:
		lanes = lanes[1:]
	}
	return lanes, p.touch()
}

func (relaying) single(ctx context.Context, p *rigPath, d direction, size int, first uint64) ([]float64, error) {
	if err := p.touch(); err != nil {
		return nil, err
	}
	meter := p.toRight
	if d == toIPv6 {
		meter = p.toLeft
	}
	return timed(ctx, meter, first, latencySlice, latencyLimit, func() error {
		return p.rig.prober.Probe(p.aimed(d), p.frame(d, size), first, latencySlice, latencyGap)
	})
}
