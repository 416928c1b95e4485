// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/teredo"
)

// hops is the topology of that row: routers with two next hops in each family, on
// devices of their own.
//
//	     +--- a6     a4 ---+
//	left |     router      | right
//	     +--- b6     b4 ---+
//
// Half of 1,000 IPv4 destinations are behind a4, the other half behind b4, and so
// are 1,000 IPv6 destinations behind a6 and b6.
type hops struct {
	left, right *lab.Node
	ways        []*hopsWay
	loader
	processes []int // of the relays
	dir       string
	closers   []func() error
}

// hopsWay is one router of it. Its cables are a6, b6, a4 and b4.
type hopsWay struct {
	way                 way
	number              int
	router              *lab.Node
	relay               netip.AddrPort
	mac                 map[string]net.HardwareAddr // of both ends of a cable
	fromLeft, fromRight *load.Sender
	toLeft, toRight     [2]*load.Meter // by cable
}

// cable names one of a way's cables at left or right.
func (w *hopsWay) cable(name string) string { return w.way.name + "-" + name }

// at4 and at6 are addresses of cable a or b.
func (w *hopsWay) at4(cable, host int) string {
	return fmt.Sprintf("198.51.100.%d", 16*w.number+8*cable+host)
}
func (w *hopsWay) at6(side, cable, host int) string {
	return fmt.Sprintf("2001:db8:%x::%d", 0x10*w.number+4*side+cable, host)
}

// Routes to the halves of the destinations, by cable.
var (
	hopsIPv4   = [2]string{"198.18.0.0/16", "198.19.0.0/16"}
	hopsRight6 = [2]string{"2001:db8:c000::/35", "2001:db8:e000::/35"}
	hopsLeft6  = [2]string{"2001:db8:8000::/35", "2001:db8:a000::/35"}
)

// newHops draws the topology, starts the relays and has them meet their clients.
func newHops(ctx context.Context, e *lab.Env, l *lab.Lab) (_ *hops, err error) {
	h := &hops{left: l.Node("left"), right: l.Node("right")}
	l.Link(h.left, idleLink, h.right, idleLink)
	for i, w := range hopsWays {
		h.ways = append(h.ways, h.draw(l, w, i+1))
	}
	if err := l.Err(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	if h.dir, err = os.MkdirTemp(l.Dir(), "hops-"); err != nil {
		return nil, err
	}
	if h.generator, err = load.NewGenerator(hopsNumber * len(h.ways)); err != nil {
		return nil, err
	}
	h.closers = append(h.closers, h.generator.Close)
	if err := h.left.Do(func() error { return h.generator.Anchor(idleLink) }); err != nil {
		return nil, err
	}
	for i, w := range h.ways {
		if err := h.prepare(ctx, e, w, i); err != nil {
			return nil, fmt.Errorf("%s with four next hops: %w", w.way.title, err)
		}
	}
	h.usage, err = countCPU(h.processes...)
	return h, err
}

// draw adds one router.
func (h *hops) draw(l *lab.Lab, kind way, number int) *hopsWay {
	w := &hopsWay{way: kind, number: number, router: l.Node(kind.name), mac: map[string]net.HardwareAddr{}}
	w.relay = netip.AddrPortFrom(netip.MustParseAddr(w.at4(0, 1)), relayPort)
	w.router.Forward(true, true)
	for i, name := range []string{"a", "b"} {
		l.Link(h.left, w.cable(name+"6"), w.router, name+"6")
		l.Link(w.router, name+"4", h.right, w.cable(name+"4"))
		w.router.Addr(name+"6", w.at6(0, i, 1)+"/64").Addr(name+"4", w.at4(i, 1)+"/29", w.at6(1, i, 1)+"/64")
		h.left.Addr(w.cable(name+"6"), w.at6(0, i, 2)+"/64")
		h.right.Addr(w.cable(name+"4"), w.at4(i, 2)+"/29", w.at6(1, i, 2)+"/64")
		w.router.Route(hopsIPv4[i], w.at4(i, 2)).Route(hopsLeft6[i], w.at6(0, i, 2)).Route(hopsRight6[i], w.at6(1, i, 2))
	}
	// Servers of the clients.
	w.router.Route("192.0.2.0/24", w.at4(0, 2))
	return w
}

// prepare starts the relay of one router, and what loads and counts.
func (h *hops) prepare(ctx context.Context, e *lab.Env, w *hopsWay, index int) error {
	for i, name := range []string{"a", "b"} {
		for _, end := range []struct {
			node   *lab.Node
			iface  string
			family string
			meters *[2]*load.Meter
		}{{h.left, w.cable(name + "6"), "6", &w.toLeft}, {h.right, w.cable(name + "4"), "4", &w.toRight}} {
			for _, side := range []struct {
				node  *lab.Node
				iface string
			}{{end.node, end.iface}, {w.router, name + end.family}} {
				var err error
				if w.mac[side.iface], err = mac(side.node, side.iface); err != nil {
					return err
				}
				if err := side.node.DisableOffloads(side.iface); err != nil {
					return err
				}
			}
			m, err := load.NewMeter()
			if err != nil {
				return err
			}
			h.closers = append(h.closers, m.Close)
			end.meters[i] = m
			if err := end.node.Do(func() error { return m.Arrival(end.iface, sink) }); err != nil {
				return err
			}
		}
	}
	if err := h.openEnds(ctx, w, index); err != nil {
		return err
	}
	h.fillTable(w, index)
	if err := h.start(ctx, e, w); err != nil {
		return err
	}
	return w.way.receiveOn(w.router, false, "a6", "b6", "a4", "b4")
}

// openEnds opens the senders and the generator's targets of one way, and has the
// router meet its neighbours.
func (h *hops) openEnds(ctx context.Context, w *hopsWay, index int) error {
	for i := range 2 {
		for _, to := range []string{w.at4(i, 2), w.at6(0, i, 2), w.at6(1, i, 2)} {
			if r, err := w.router.Ping(ctx, lab.Ping{To: netip.MustParseAddr(to), Timeout: answerWait}); err != nil || r.Lost() > 0 {
				return fmt.Errorf("the router cannot reach %s: %w", to, err)
			}
		}
	}
	for _, end := range []struct {
		node   *lab.Node
		iface  string
		sender **load.Sender
		target int
	}{{h.left, w.cable("a6"), &w.fromLeft, 2 * index}, {h.right, w.cable("a4"), &w.fromRight, 2*index + 1}} {
		err := end.node.Do(func() (err error) {
			if *end.sender, err = load.OpenSender(end.iface); err != nil {
				return err
			}
			h.closers = append(h.closers, (*end.sender).Close)
			return h.generator.Target(end.target, end.iface)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fillTable gives the generator the destinations of one way, in random order.
func (h *hops) fillTable(w *hopsWay, index int) {
	for i, number := range rand.Perm(hopsNumber) {
		client, mapped := w.client(number)
		half, rest := number%2, number/2
		h.generator.Peers()[index*hopsNumber+i] = load.Peer{
			Client: client, IP: mapped.Addr().As4(), Port: portBytes(mapped),
			Net: [2]byte{byte(0x80 + 0x20*half + rest>>8), byte(rest)},
		}
	}
}

// client is the client of that number; odd ones are behind cable b.
func (w *hopsWay) client(number int) ([16]byte, netip.AddrPort) {
	half, rest := number%2, number/2
	mapped := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, byte(18 + half), byte(rest >> 8), byte(rest)}), fakeClientPort)
	if w.way == wayKernel {
		return [16]byte{0x20, 0x01, 0x0d, 0xb8, byte(0xc0 + 0x20*half + rest>>8), byte(rest), 15: 2}, mapped
	}
	return teredo.Addr{Prefix: teredo.Prefix, Server: netip.AddrFrom4([4]byte{192, 0, 2, 1}), Mapped: mapped}.IP().As16(), mapped
}

// start starts the relay, and has it meet the clients.
func (h *hops) start(ctx context.Context, e *lab.Env, w *hopsWay) error {
	if w.way == wayKernel {
		return nil
	}
	if err := h.startRelay(ctx, e, w); err != nil {
		return err
	}
	const window = hopsNumber / 4
	for range hopsMeets {
		for first := 0; first < hopsNumber; first += window {
			var out, in [][]byte
			for number := first; number < first+window; number++ {
				client, mapped := w.client(number)
				host := crowdSource(number)
				out = append(out, load.Frame6(w.mac[w.cable("a6")], w.mac["a6"], load.Packet(host, netip.AddrFrom16(client), load.MinSize)))
				in = append(in, load.Frame4(w.mac[w.cable("a4")], w.mac["a4"], mapped, w.relay, teredo.AppendBubble(nil, netip.AddrFrom16(client), host)))
			}
			if _, err := w.fromLeft.SendAll(out); err != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond) // the bubbles of the relay
			if _, err := w.fromRight.SendAll(in); err != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return ctx.Err()
}

func (h *hops) startRelay(ctx context.Context, e *lab.Env, w *hopsWay) error {
	routes, err := watchRoutes(w.router)
	if err != nil {
		return err
	}
	defer routes.close()
	p, err := startWayRelay(ctx, e, h.dir, w.router, w.way, w.relay, "allow_private = [\"198.18.0.0/15\"]\n")
	if err != nil {
		return err
	}
	h.processes = append(h.processes, p.PID())
	if err := routes.await(ctx, p, teredo.Prefix.String()); err != nil {
		return err
	}
	return serving(ctx, w.router, p, relayPort)
}
