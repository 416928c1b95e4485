// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/teredo"
)

// crowd is a relay with very many clients, all played by two packet generators:
//
//	host ---in6 relay out4--- internet
//	2001:db8:1::/64           198.51.100.0/24
//
// Whatever the relay sends to IPv4 goes to the node internet, which drops it once
// it has been counted.
type crowd struct {
	loader                 // none unless it is to be loaded
	lab                    *lab.Lab
	host, router, internet *lab.Node
	isthmus                instance
	process                *lab.Proc
	way                    way    // that packets take through the relay
	more                   string // lines of its section
	client                 func(i int) ([16]byte, netip.AddrPort)
	closers                []io.Closer

	hostMAC, in6MAC, out4MAC, internetMAC net.HardwareAddr
	fromHost, fromInternet                *load.Sender
	atHost, atInternet                    *load.Tap
	clientSink, hostSink                  *load.Meter // at the ends, for packets to clients and to the host
}

// Addresses of the crowd.
var (
	crowdHost  = netip.MustParseAddr("2001:db8:1::2")
	crowdRelay = netip.MustParseAddrPort("198.51.100.1:3545")
)

// newCrowd draws the topology in a lab of its own, for a relay that works that way, and
// adds a generator with room for so many clients, none for 0.
func newCrowd(ctx context.Context, e *lab.Env, name string, w way, clients int) (_ *crowd, err error) {
	l, err := e.New(ctx, name)
	if err != nil {
		return nil, err
	}
	c := &crowd{lab: l, way: w, client: clientOf, host: l.Node("host"), router: l.Node("relay"), internet: l.Node("internet")}
	defer func() {
		if err != nil {
			_ = c.close()
		}
	}()
	l.Link(c.host, "v6", c.router, "in6")
	l.Link(c.router, "out4", c.internet, "v4")
	c.router.Forward(w == wayKernel, true).Addr("in6", "2001:db8:1::1/64").Addr("out4", "198.51.100.1/24").Route("default", "198.51.100.2")
	c.host.Addr("v6", "2001:db8:1::2/64").Route("2001::/32", "2001:db8:1::1")
	c.router.Route("2001:db8:8000::/33", "2001:db8:1::2")
	c.internet.Addr("v4", "198.51.100.2/24")
	if clients > 0 {
		l.Link(c.host, idleLink, c.internet, idleLink)
	}
	if err := l.Err(); err != nil {
		return nil, err
	}
	if err := c.openEnds(ctx); err != nil {
		return nil, err
	}
	if clients > 0 {
		if err := c.openGenerator(clients); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(l.Dir(), "peers-")
	c.isthmus = instance{c.router, e.Binary, dir, "isthmus"}
	return c, err
}

// Targets of the generator of a crowd.
const (
	targetHost     = 0 // sends as the host
	targetInternet = 1
)

// openGenerator adds a generator.
func (c *crowd) openGenerator(clients int) (err error) {
	if c.generator, err = load.NewGenerator(clients); err != nil {
		return err
	}
	c.closers = append(c.closers, c.generator)
	return errors.Join(
		c.host.Do(func() error { return errors.Join(c.generator.Anchor(idleLink), c.generator.Target(targetHost, "v6")) }),
		c.internet.Do(func() error { return c.generator.Target(targetInternet, "v4") }),
	)
}

// start starts the relay, with room for n clients and no limit on bubbles.
func (c *crowd) start(ctx context.Context, n int) error {
	if err := c.configure(n, 0); err != nil {
		return err
	}
	return c.launch(ctx)
}

// launch starts the relay's process and waits until it serves.
func (c *crowd) launch(ctx context.Context) (err error) {
	if c.process, err = c.isthmus.launch(ctx, "isthmus"); err != nil {
		return err
	}
	_, err = c.process.WaitFor(ctx, "serving")
	return err
}

// configure writes the configuration; a bubble rate of 0 is no limit.
func (c *crowd) configure(n, bubbleRate int) error {
	return c.isthmus.configure(fmt.Sprintf("[[teredo_relay]]\nbind = %q\nmax_peers = %d\nbubble_rate = %d\nfast_path = %q\nstate_file = %q\n%s",
		crowdRelay, n, bubbleRate, c.way.fast, filepath.Join(c.isthmus.dir, "peers"), c.more))
}

// limit sets the relay's bubble rate by a reload, as SIGHUP brings it about.
func (c *crowd) limit(ctx context.Context, n, bubbleRate int) error {
	if err := c.configure(n, bubbleRate); err != nil {
		return err
	}
	if err := c.process.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	_, err := c.process.WaitFor(ctx, "reload")
	return err
}

// openEnds opens what sends and what stamps, and makes both ends drop test packets.
// Taps see none of those that XDP drops.
func (c *crowd) openEnds(ctx context.Context) error {
	for _, m := range []struct {
		node  *lab.Node
		iface string
		mac   *net.HardwareAddr
	}{{c.host, "v6", &c.hostMAC}, {c.router, "in6", &c.in6MAC}, {c.router, "out4", &c.out4MAC}, {c.internet, "v4", &c.internetMAC}} {
		var err error
		if *m.mac, err = mac(m.node, m.iface); err != nil {
			return err
		}
		if err := m.node.DisableOffloads(m.iface); err != nil {
			return err
		}
	}
	// Both sides of the relay shall know their neighbours before there is load.
	for _, p := range []struct {
		node *lab.Node
		to   string
	}{{c.host, "2001:db8:1::1"}, {c.internet, "198.51.100.1"}, {c.router, "2001:db8:1::2"}, {c.router, "198.51.100.2"}} {
		if r, err := p.node.Ping(ctx, lab.Ping{To: netip.MustParseAddr(p.to), Timeout: answerWait}); err != nil || r.Lost() > 0 {
			return fmt.Errorf("node %s cannot reach %s: %w", p.node.Name(), p.to, err)
		}
	}
	return errors.Join(
		c.openEnd(c.host, "v6", &c.fromHost, &c.atHost, &c.hostSink),
		c.openEnd(c.internet, "v4", &c.fromInternet, &c.atInternet, &c.clientSink),
	)
}

// openEnd opens what one end has.
func (c *crowd) openEnd(node *lab.Node, iface string, sender **load.Sender, tap **load.Tap, sink **load.Meter) error {
	return node.Do(func() (err error) {
		if *sink, err = load.NewMeter(); err != nil {
			return err
		}
		c.closers = append(c.closers, *sink)
		if *sender, err = load.OpenSender(iface); err != nil {
			return err
		}
		c.closers = append(c.closers, *sender)
		if *tap, err = load.OpenTap(iface); err != nil {
			return err
		}
		c.closers = append(c.closers, *tap)
		return (*sink).Arrival(iface, c.way.hook())
	})
}

// close closes the ends, and the lab, which stops the relay.
func (c *crowd) close() error {
	c.usage.close()
	for _, x := range c.closers {
		_ = x.Close()
	}
	return c.lab.Close()
}

// toClient is a frame from the host, or another IPv6 address, to a client.
func (c *crowd) toClient(src netip.Addr, client [16]byte) []byte {
	return load.Frame6(c.hostMAC, c.in6MAC, load.Packet(src, netip.AddrFrom16(client), load.MinTaggedSize))
}

// toHost is a frame from a client to the host.
func (c *crowd) toHost(client [16]byte, mapped netip.AddrPort) []byte {
	inner := load.Packet(netip.AddrFrom16(client), crowdHost, load.MinTaggedSize)
	return load.Frame4(c.internetMAC, c.out4MAC, mapped, crowdRelay, inner)
}

// bubble is a frame with a client's bubble, to the relay's IPv6 side.
func (c *crowd) bubble(to netip.Addr, client [16]byte, mapped netip.AddrPort) []byte {
	return load.Frame4(c.internetMAC, c.out4MAC, mapped, crowdRelay, teredo.AppendBubble(nil, netip.AddrFrom16(client), to))
}

// threads gives the relay's ports receiving threads on the forwarder's CPU.
func (c *crowd) threads() error { return c.way.receiveOn(c.router, false, "in6", "out4") }

// lane is the load of the clients that entries first to first+n-1 of the table
// name, from a random one of them on.
func (c *crowd) lane(d direction, first, n int) load.Lane {
	client, mapped := clientOf(0)
	if d == toIPv4 {
		return load.Lane{Frame: c.toClient(crowdHost, client), ToClient: true, Target: targetHost, First: first, Count: n, Start: rand.IntN(n)}
	}
	return load.Lane{Frame: c.toHost(client, mapped), Target: targetInternet, First: first, Count: n, Start: rand.IntN(n)}
}

// over loads the relay and counts what passes.
func (c *crowd) over(d direction, lane load.Lane, pace load.Pace) (ran, error) {
	meter := c.clientSink
	if d == toIPv6 {
		meter = c.hostSink
	}
	return c.run(c.way, []load.Lane{lane}, pace, meter)
}
