// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/teredo"
)

// placedHosts6 are the IPv6 hosts of a relay in place: their last four octets differ.
var placedHosts6 = netip.MustParsePrefix("2001:db8:8000::/96")

// placedFar6 are those octets of the i-th host.
func placedFar6(i int) (far [4]byte) {
	binary.BigEndian.PutUint32(far[:], spreadHost(i)<<(32-placedBits)|1)
	return far
}

// placedClient is the i-th client of a relay in place, at an IPv4 address of its own.
func placedClient(i int) ([16]byte, netip.AddrPort) {
	mapped := netip.AddrPortFrom(placedHost4(i), fakeClientPort)
	server := netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i%250)})
	return teredo.Addr{Prefix: teredo.Prefix, Server: server, Mapped: mapped}.IP().As16(), mapped
}

// newPlacedRelay starts a relay on each way, or plain forwarding.
func newPlacedRelay(ctx context.Context, e *lab.Env, name string, form placedForm) (_ *placedWorld, err error) {
	w := &placedWorld{}
	var crowds []*crowd
	w.close = func() {
		for _, c := range crowds {
			_ = c.close()
		}
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	for _, kind := range placedWays {
		c, err := newCrowd(ctx, e, name+"-"+kind.name, kind, form.most())
		if err != nil {
			return nil, err
		}
		crowds = append(crowds, c)
		if err := c.settle(ctx, form.most()); err != nil {
			return nil, fmt.Errorf("%s: %w", kind.title, err)
		}
		w.places = append(w.places, c.place())
	}
	w.fill = func(ctx context.Context, n int) error {
		for _, c := range crowds {
			if !c.way.ours() {
				continue
			}
			e.Step("%s: meeting %d peers", c.way.title, n)
			if err := c.fill(ctx, n); err != nil {
				return err
			}
		}
		return nil
	}
	w.frames = placedPeers
	return w, nil
}

// settle draws the hosts' routes, and starts the relay.
func (c *crowd) settle(ctx context.Context, n int) error {
	c.client, c.more = placedClient, "allow_private = [\"10.0.0.0/8\"]\npeer_timeout = \"1h\"\n"
	six := func(g int) netip.Prefix {
		a := placedHosts6.Addr().As16()
		a[12] = byte(g << 4)
		return netip.PrefixFrom(netip.AddrFrom16(a), 100)
	}
	if err := drawGateways(c.router, 1, six, c.hostMAC, c.internetMAC); err != nil {
		return err
	}
	if c.way.ours() {
		if err := c.start(ctx, n); err != nil {
			return err
		}
	}
	return c.threads()
}

// place is the crowd as one way of the experiment.
func (c *crowd) place() *place {
	return &place{
		way: c.way, router: c.router, table: c.generator.Peers(), lane: c.placedLane,
		run: c.over,
		counts: func(ctx context.Context) (taken, error) {
			values, err := c.isthmus.values(ctx)
			return takenOf(values), err
		},
	}
}

// placedLane are the frames of a way. To plain forwarding those to IPv4 are of IPv4, and
// those to IPv6 without a tunnel.
func (c *crowd) placedLane(d direction) load.Lane {
	client, mapped := placedClient(0)
	host := placedHosts6.Addr().Next()
	switch {
	case d == toIPv4 && c.way.ours():
		return load.Lane{Frame: c.toClient(crowdHost, client), ToClient: true, Target: targetHost}
	case d == toIPv4:
		frame := load.Datagram(c.hostMAC, c.in6MAC, netip.AddrPortFrom(placedSource, load.DiscardPort), netip.AddrPortFrom(mapped.Addr(), load.DiscardPort), load.MinTaggedSize)
		return load.Lane{Frame: frame, Target: targetHost}
	}
	inner := load.Packet(netip.AddrFrom16(client), host, load.MinTaggedSize)
	if c.way.ours() {
		return load.Lane{Frame: load.Frame4(c.internetMAC, c.out4MAC, mapped, crowdRelay, inner), Target: targetInternet}
	}
	return load.Lane{Frame: load.Frame6(c.internetMAC, c.out4MAC, inner), Target: targetInternet}
}

// placedPeers are the frames of a relay: any client may speak to any IPv6 host, but each
// has one IPv4 address.
func placedPeers(p *place, d direction, m mix) []load.Peer {
	if d == toIPv4 && m.entries != m.hosts {
		return nil
	}
	frames := make([]load.Peer, 0, max(m.entries, m.hosts))
	for _, i := range m.order() {
		client, mapped := placedClient(i % m.entries)
		f := load.Peer{Client: client, IP: mapped.Addr().As4(), Port: portBytes(mapped), Far: placedFar6(i % m.hosts)}
		if d == toIPv4 {
			f.Far = [4]byte{}
			if !p.way.ours() {
				f.IP, f.Far = placedSource.As4(), mapped.Addr().As4()
			}
		}
		frames = append(frames, f)
	}
	return frames
}
