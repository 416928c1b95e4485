// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
)

// tunnelling is what crossings have alike whose programs carry the IPv6 packets of left in
// a tunnel to right, and back. Where nothing tunnels, the same packets go as they are.
type tunnelling struct{}

// tunnel is that of a way, as its far end, right, fills it.
type tunnel struct {
	from, to netip.AddrPort // not valid: there is none
	// header makes what stands between UDP and the packet; nil: nothing does.
	header func(inner packet.IPv6) []byte
}

// open opens a sender at each end, and a meter for each direction.
func (tunnelling) open(p *rigPath) (err error) {
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

// warm has plain forwarding resolve its neighbours, by one packet each way.
func (p *rigPath) warm() error {
	if p.router == nil {
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

// awaitFirst sends packets in a direction until one has arrived.
func (p *rigPath) awaitFirst(ctx context.Context, d direction) error {
	for deadline := time.Now().Add(daemonStart); time.Now().Before(deadline); {
		if err := errors.Join(ctx.Err(), alive(p.way.title, p.process)); err != nil {
			return err
		}
		if came, err := p.sendOne(ctx, d, 200*time.Millisecond); came || err != nil {
			return err
		}
	}
	return fmt.Errorf("no packet went through within %v, %s", daemonStart, d)
}

// sendOne sends a packet and reports whether it arrived.
func (p *rigPath) sendOne(ctx context.Context, d direction, patience time.Duration) (bool, error) {
	sender, meter := p.fromRight, p.toLeft
	if d.toRight() {
		sender, meter = p.fromLeft, p.toRight
	}
	meter.Forget(0, 1)
	if _, err := sender.Stream(p.frame(d, load.MinTaggedSize), 0, 1, 0); err != nil {
		return false, err
	}
	return meter.Await(ctx, 0, 1, patience) == 1, nil
}

// frame is one of left or of right, of an IPv6 packet of size bytes; right's is in the
// tunnel, if there is one.
func (p *rigPath) frame(d direction, size int) []byte {
	if d.toRight() {
		return load.Frame6(p.leftMAC, p.in6MAC, load.Packet(p.source, p.target, size))
	}
	inner := load.Packet(p.target, p.source, size)
	if !p.tunnel.from.IsValid() {
		return load.Frame6(p.rightMAC, p.out4MAC, inner)
	}
	payload := []byte(inner)
	if p.tunnel.header != nil {
		payload = append(p.tunnel.header(inner), inner...)
	}
	return load.Frame4(p.rightMAC, p.out4MAC, p.tunnel.from, p.tunnel.to, payload)
}

// keep keeps the way open, where silence would close it.
func (p *rigPath) keep() error {
	if p.touch == nil {
		return nil
	}
	return p.touch()
}

func (tunnelling) probe(ctx context.Context, p *rigPath) error {
	for _, d := range []direction{toIPv4, toIPv6} {
		if _, err := p.sendOne(ctx, d, time.Second); err != nil {
			return err
		}
	}
	return nil
}

func (tunnelling) lanes(p *rigPath, d direction, size int) ([]load.Lane, error) {
	entry := load.Peer{Client: p.target.As16(), IP: p.far.As4()}
	if p.tunnel.from.IsValid() {
		entry.Port = portBytes(p.tunnel.from)
	}
	p.rig.generator.Peers()[0] = entry
	lanes := []load.Lane{
		{Frame: p.frame(toIPv4, size), ToClient: true, Target: p.aimed(toIPv4), Count: 1},
		{Frame: p.frame(toIPv6, size), Target: p.aimed(toIPv6), Count: 1},
	}
	switch {
	case d.toRight():
		lanes = lanes[:1]
	case d != bothWays:
		lanes = lanes[1:]
	}
	return lanes, p.keep()
}

func (tunnelling) single(ctx context.Context, p *rigPath, d direction, size int, first uint64) ([]float64, error) {
	if err := p.keep(); err != nil {
		return nil, err
	}
	meter := p.toLeft
	if d.toRight() {
		meter = p.toRight
	}
	return timed(ctx, meter, first, latencySlice, latencyLimit, func() error {
		return p.rig.prober.Probe(p.aimed(d), p.frame(d, size), first, latencySlice, latencyGap)
	})
}
