// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
)

// naptPaths is the topology of the translator's tables: several ways between the
// same two hosts, each through a router of its own over bare veth.
//
//	        2001:db8:N::/64                198.51.100.16N/28
//	          +---- kernel  (plain IPv6 forwarding) ----+
//	inside ---+---- tayga   (translator)            ----+--- outside
//	          +---- tc      (translator)            ----+
//	          +-----------------------------------------+
//
// Inside speaks IPv6. On the way of that number it reaches outside by the prefix
// 2001:db8:64:N::/96, and outside sees it as 203.0.113.N. All ways exist at once,
// so that slices of a measurement take turns.
type naptPaths struct {
	inside, outside *lab.Node
	paths           []*naptPath
	env             *lab.Env
	plan            naptPlan
	dir             string // configurations and control sockets
	// takers are the switches between routers and lines, which take what comes.
	takers map[string]*lab.Node
}

// naptPlan says how the topology is drawn.
type naptPlan struct {
	// Ways are drawn in that order.
	Ways []way
	// Offloads leaves the cables what virtual cables have; without, they carry what a
	// wire would.
	Offloads bool
	// Rate makes the cables to outside lines of so many bit/s; 0 leaves them bare.
	Rate int64
	// Crowd has room for a million sessions of many clients, those of crowdClients.
	Crowd bool
	// Stateless has Isthmus translate without sessions, by a mapping for inside.
	Stateless bool
	// Load has all ways end in the same sink, in both directions.
	Load bool
	// Static has a packet to the discard port of what stands for inside reach inside.
	Static bool
	// More are lines of the sections of Isthmus.
	More string
	// Ready bounds the time until translators translate; 0 is naptReady.
	Ready time.Duration
}

// naptPath is one way. Interfaces of the hosts have its name; its router's are
// "in6" and "out4".
type naptPath struct {
	way     way
	number  int
	router  *lab.Node  // nil for a cable
	source  netip.Addr // inside's address on this way
	target  netip.Addr // where inside sends to
	far     netip.Addr // outside's own address on this way
	mapped  netip.Addr // what stands for inside in IPv4; its own address on a plain way
	process *lab.Proc  // the translator

	insideMAC, outsideMAC, in6MAC, out4MAC net.HardwareAddr

	sender  *load.Sender // of inside
	echoes  *load.Meter  // round trips from inside
	closers []io.Closer
	before  taken // what the translator forwarded until then
}

// newNAPTPaths draws the topology and starts the translators.
func newNAPTPaths(ctx context.Context, e *lab.Env, l *lab.Lab, plan naptPlan) (*naptPaths, error) {
	n := &naptPaths{inside: l.Node("inside"), outside: l.Node("outside"), env: e, plan: plan, takers: map[string]*lab.Node{}}
	for i, w := range plan.Ways {
		n.paths = append(n.paths, n.draw(l, w, i+1))
	}
	if err := l.Err(); err != nil {
		return nil, err
	}
	var err error
	if n.dir, err = os.MkdirTemp("", "isthmus-napt-"); err != nil {
		return nil, err
	}
	for _, p := range n.paths {
		if err := p.prepare(ctx, n); err != nil {
			n.close()
			return nil, fmt.Errorf("path through %s: %w", p.way.title, err)
		}
	}
	return n, nil
}

// path is the way of that kind.
func (n *naptPaths) path(w way) *naptPath {
	for _, p := range n.paths {
		if p.way == w {
			return p
		}
	}
	return nil
}

// naptPrefix is the translation prefix of the way of that number.
func naptPrefix(number int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("2001:db8:64:%d::/96", number))
}

// translated is the address that stands for an IPv4 host behind the prefix.
func translated(prefix netip.Prefix, host netip.Addr) netip.Addr {
	a, h := prefix.Addr().As16(), host.As4()
	copy(a[12:], h[:])
	return netip.AddrFrom16(a)
}

// draw adds a way to the topology.
func (n *naptPaths) draw(l *lab.Lab, w way, number int) *naptPath {
	at6 := func(host int) string { return fmt.Sprintf("2001:db8:%d::%d", number, host) }
	at4 := func(host int) string { return fmt.Sprintf("198.51.100.%d", 16*number+host) }
	name := w.name
	p := &naptPath{way: w, number: number, source: netip.MustParseAddr(at6(2)), far: netip.MustParseAddr(at4(3))}
	switch w {
	case wayDirect4:
		n.join(l, n.inside, name, name)
		p.source, p.target = netip.MustParseAddr(at4(2)), p.far
		n.inside.Addr(name, at4(2)+"/28")
		n.outside.Addr(name, at4(3)+"/28")
	case wayDirect6:
		n.join(l, n.inside, name, name)
		p.target = netip.MustParseAddr(at6(3))
		n.inside.Addr(name, at6(2)+"/64")
		n.outside.Addr(name, at6(3)+"/64")
	default:
		p.router = l.Node(name)
		l.Link(n.inside, name, p.router, "in6")
		n.join(l, p.router, "out4", name)
		p.router.Forward(true, true).Addr("in6", at6(1)+"/64").Addr("out4", at4(1)+"/28")
		n.inside.Addr(name, at6(2)+"/64")
		n.outside.Addr(name, at4(3)+"/28")
		if n.plan.Crowd {
			p.router.Route(crowdClients.String(), at6(2))
		}
		n.drawFar(p, at6(1), at4(1))
	}
	if p.mapped == (netip.Addr{}) {
		p.mapped = p.source
	}
	return p
}

// drawFar gives the two hosts their routes over the router.
func (n *naptPaths) drawFar(p *naptPath, gateway6, gateway4 string) {
	name := p.way.name
	if p.way == wayKernel {
		far := fmt.Sprintf("2001:db8:64:%d::", p.number)
		p.target = netip.MustParseAddr(far + "3")
		p.router.Addr("out4", far+"1/64")
		n.outside.Addr(name, far+"3/64").Route(p.source.String()+"/128", far+"1")
		n.inside.Route(far+"/64", gateway6)
		if n.plan.Crowd {
			n.outside.Route(crowdClients.String(), far+"1")
		}
		return
	}
	prefix := naptPrefix(p.number)
	p.target = translated(prefix, p.far)
	p.mapped = netip.MustParseAddr(fmt.Sprintf("203.0.113.%d", p.number))
	n.inside.Route(prefix.String(), gateway6)
	if n.plan.Crowd && !n.plan.Stateless {
		n.outside.Route(crowdPool(p.number).String(), gateway4)
		return
	}
	n.outside.Route(p.mapped.String()+"/32", gateway4)
}

// prepare starts the way's translator and opens what measures.
func (p *naptPath) prepare(ctx context.Context, n *naptPaths) error {
	if err := p.learn(n); err != nil {
		return err
	}
	if !n.plan.Offloads {
		if err := p.strip(n); err != nil {
			return err
		}
	}
	if err := p.open(n); err != nil {
		return err
	}
	if err := p.startTranslator(ctx, n); err != nil {
		return err
	}
	if err := p.await(ctx, cmp.Or(n.plan.Ready, naptReady)); err != nil || !p.way.ours() {
		return err
	}
	return p.awaitWay(ctx, n)
}

// ends are the ends of the way's cables.
func (p *naptPath) ends(n *naptPaths) []naptEnd {
	name := p.way.name
	ends := []naptEnd{{n.inside, name, &p.insideMAC}, {n.outside, name, &p.outsideMAC}}
	if p.router != nil {
		ends = append(ends, naptEnd{p.router, "in6", &p.in6MAC}, naptEnd{p.router, "out4", &p.out4MAC})
	}
	return ends
}

// naptEnd is one end of a cable.
type naptEnd struct {
	node  *lab.Node
	iface string
	mac   *net.HardwareAddr
}

// learn notes link addresses.
func (p *naptPath) learn(n *naptPaths) error {
	for _, end := range p.ends(n) {
		link, err := end.node.Netlink().LinkByName(end.iface)
		if err != nil {
			return err
		}
		*end.mac = link.Attrs().HardwareAddr
	}
	if p.router == nil {
		p.in6MAC, p.out4MAC = p.outsideMAC, p.insideMAC
	}
	return nil
}

// strip switches off what a wire does not have.
func (p *naptPath) strip(n *naptPaths) error {
	for _, end := range p.ends(n) {
		if err := end.node.DisableOffloads(end.iface); err != nil {
			return err
		}
	}
	return nil
}

// open opens what sends echo requests and what times their answers. What XDP
// redirects arrives only where somebody takes frames.
func (p *naptPath) open(n *naptPaths) (err error) {
	name := p.way.name
	if p.echoes, err = load.NewMeter(); err != nil {
		return err
	}
	p.closers = append(p.closers, p.echoes)
	if p.way == wayXDP {
		if err := n.takeFrames(); err != nil {
			return err
		}
	}
	return n.inside.Do(func() (err error) {
		if p.sender, err = load.OpenQueuedSender(name); err != nil {
			return err
		}
		p.closers = append(p.closers, p.sender)
		return errors.Join(p.echoes.Departure(name), p.echoes.Arrival(name, n.hook(p.way)))
	})
}

// hook is where what arrives by a way is counted.
func (n *naptPaths) hook(w way) load.Hook {
	if n.plan.Load {
		return sink
	}
	return w.hook()
}

// takeFrames gives the hosts' ends of the XDP way what makes them take frames that
// are redirected to them.
func (n *naptPaths) takeFrames() error {
	if n.path(wayXDP) == nil {
		return nil
	}
	taker, iface := n.outside, wayXDP.name
	if n.plan.Rate != 0 {
		taker, iface = n.takers[wayXDP.name], switchPort
	}
	return errors.Join(taker.EnableGRO(iface), n.inside.EnableGRO(wayXDP.name))
}

// naptReady bounds the time until a translator translates.
const naptReady = daemonStart

// await sends echo requests until one is answered.
func (p *naptPath) await(ctx context.Context, ready time.Duration) error {
	frame := p.echo(load.MinEcho)
	for deadline := time.Now().Add(ready); time.Now().Before(deadline); {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.process != nil {
			select {
			case <-p.process.Done():
				return errors.Join(errEarly, p.process.Wait())
			default:
			}
		}
		p.echoes.Forget(0, 1)
		if err := p.sender.Echoes(frame, 0, 1, 0); err != nil {
			return err
		}
		if p.echoes.Await(ctx, 0, 1, 100*time.Millisecond) == 1 {
			return nil
		}
	}
	if p.process != nil {
		return fmt.Errorf("no ping was answered within %v; the translator wrote:\n%s", ready, lastLines(p.process.Log()))
	}
	return fmt.Errorf("no ping was answered within %v", ready)
}

// echo is an echo request of inside, as long as an IPv6 one of size bytes.
func (p *naptPath) echo(size int) []byte {
	return load.Echo(p.insideMAC, p.in6MAC, p.source, p.target, size)
}

// healthy tells of a translator that ended.
func (n *naptPaths) healthy() error {
	var errs []error
	for _, p := range n.paths {
		if p.process == nil {
			continue
		}
		select {
		case <-p.process.Done():
			errs = append(errs, fmt.Errorf("%s ended by itself: %w", p.way.title, errors.Join(p.process.Wait(), errEarly)))
		default:
		}
	}
	return errors.Join(errs...)
}

// close closes the ends; the lab stops the translators.
func (n *naptPaths) close() {
	for _, p := range n.paths {
		for _, c := range p.closers {
			_ = c.Close()
		}
	}
	_ = os.RemoveAll(n.dir)
}
