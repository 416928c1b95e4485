// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
)

// rig is several ways between the same two hosts, each through a router of its own:
//
//	     2001:db8:N::/64                198.51.100.16N/28
//	       +---- kernel  (plain IPv6 forwarding) ----+
//	left --+---- miredo  (relay)                 ----+-- right
//	       +---- xdp     (relay)                 ----+
//	       +-----------------------------------------+
//
// Left speaks IPv6; what the routers do for it is told by the crossing. All ways exist at
// once, so that slices of a measurement take turns.
type rig struct {
	crossing
	loader
	left, right *lab.Node
	paths       []*rigPath
	env         *lab.Env
	plan        rigPlan
	dir         string // configurations and control sockets
	prober      *load.Prober
	// takers are the switches between routers and lines, which take what comes.
	takers map[string]*lab.Node
}

// crossing is what the programs of a rig's ways do: relay for Teredo clients, translate,
// carry for terminals of a mobile core.
// Plain forwarding and cables carry IPv6 instead.
type crossing interface {
	fmt.Stringer
	// hosts are the names of left and right.
	hosts() (left, right string)
	// lead draws what a routed way needs, beside plain forwarding and the hosts' own
	// addresses.
	lead(p *rigPath)
	// open opens what sends single packets over a way, and what counts and stamps them.
	open(p *rigPath) error
	// start starts the program of a way.
	start(ctx context.Context, p *rigPath) (*lab.Proc, error)
	// meet waits until a way carries packets.
	meet(ctx context.Context, p *rigPath) error
	// probe sends a packet each way, and returns when they have arrived or are late.
	probe(ctx context.Context, p *rigPath) error
	// lanes are the generator's load of one flow over a way.
	lanes(p *rigPath, d direction, size int) ([]load.Lane, error)
	// single sends a slice of single packets, numbered from first, and returns their times
	// under way in microseconds.
	single(ctx context.Context, p *rigPath, d direction, size int, first uint64) ([]float64, error)
}

// rigPlan says how a rig is drawn.
type rigPlan struct {
	// Ways are drawn in that order.
	Ways []way
	// Offloads leaves the cables what virtual cables have; without, they carry what a
	// wire would.
	Offloads bool
	// Rate makes the cables to right lines of so many bit/s; 0 leaves them bare.
	Rate int64
	// Load adds a generator with so many entries in its table; all ways then end in the
	// same sink.
	Load int
	// Overrun has programs in user space share the CPU of receiving.
	Overrun bool
	// Probe adds a prober.
	Probe bool
}

// rigPath is one way of a rig, as it was built. Interfaces of the hosts have the way's
// name; its router's are "in6" and "out4".
type rigPath struct {
	rig     *rig
	way     way
	number  int        // from 1 on
	router  *lab.Node  // nil for a cable
	source  netip.Addr // left's address on this way
	target  netip.Addr // where left sends to
	far     netip.Addr // right's own IPv4 address
	mapped  netip.Addr // what stands for left behind a translator, else source
	process *lab.Proc  // what forwards, if it is a program
	tunnel  tunnel
	touch   func() error // keeps the way open; nil: nothing need

	leftMAC, rightMAC, in6MAC, out4MAC net.HardwareAddr

	fromLeft, fromRight *load.Sender
	toLeft, toRight     *load.Meter
	closers             []io.Closer
	before              taken // what the program forwarded until then
}

// idleLink is a cable that nothing is sent on, for what wants an interface.
const idleLink = "idle"

// startRig starts a lab with a rig; done ends it.
func startRig(ctx context.Context, e *lab.Env, name string, c crossing, plan rigPlan) (r *rig, done func(), err error) {
	l, err := e.New(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	e.Step("starting %s beside a plain router", c)
	left, right := c.hosts()
	r = &rig{crossing: c, left: l.Node(left), right: l.Node(right), env: e, plan: plan, takers: map[string]*lab.Node{}}
	done = func() { r.close(); _ = l.Close() }
	if err := r.build(ctx, l); err != nil {
		done()
		return nil, nil, err
	}
	return r, done, nil
}

// build draws the topology, starts the programs, and adds what loads and probes.
func (r *rig) build(ctx context.Context, l *lab.Lab) (err error) {
	if r.dir, err = os.MkdirTemp(l.Dir(), "rig-"); err != nil {
		return err
	}
	for i, w := range r.plan.Ways {
		r.paths = append(r.paths, r.draw(l, w, i+1))
	}
	if err := l.Err(); err != nil {
		return err
	}
	for _, p := range r.paths {
		if err := p.prepare(ctx); err != nil {
			return fmt.Errorf("path through %s: %w", p.way.title, err)
		}
	}
	switch {
	case r.plan.Load > 0:
		return r.setUpLoad(l)
	case r.plan.Probe:
		return r.setUpProbe(l)
	}
	return nil
}

// path is the way of that kind, nil if the rig has none.
func (r *rig) path(w way) *rigPath {
	for _, p := range r.paths {
		if p.way == w {
			return p
		}
	}
	return nil
}

// at6 and at4 are the addresses of a host on the way's two networks: 1 is the router.
func (p *rigPath) at6(host int) string { return fmt.Sprintf("2001:db8:%d::%d", p.number, host) }
func (p *rigPath) at4(host int) string { return fmt.Sprintf("198.51.100.%d", 16*p.number+host) }

// draw adds a way to the topology.
func (r *rig) draw(l *lab.Lab, w way, number int) *rigPath {
	p := &rigPath{rig: r, way: w, number: number}
	p.source, p.far = netip.MustParseAddr(p.at6(2)), netip.MustParseAddr(p.at4(3))
	switch {
	case w == wayDirect4:
		r.join(l, r.left, w.name, w.name)
		p.source, p.target = netip.MustParseAddr(p.at4(2)), p.far
		r.left.Addr(w.name, p.at4(2)+"/28")
		r.right.Addr(w.name, p.at4(3)+"/28")
	case w.by == byCable:
		r.join(l, r.left, w.name, w.name)
		p.target = netip.MustParseAddr(p.at6(3))
		r.left.Addr(w.name, p.at6(2)+"/64")
		r.right.Addr(w.name, p.at6(3)+"/64")
	default:
		p.router = l.Node(w.name)
		l.Link(r.left, w.name, p.router, "in6")
		r.join(l, p.router, "out4", w.name)
		p.router.Forward(true, true).Addr("in6", p.at6(1)+"/64").Addr("out4", p.at4(1)+"/28")
		r.left.Addr(w.name, p.at6(2)+"/64")
		r.right.Addr(w.name, p.at4(3)+"/28")
	}
	p.mapped = p.source
	if w == wayKernel {
		p.target = netip.MustParseAddr(p.plain(3))
		p.router.Addr("out4", p.plain(1)+"/64")
		r.left.Route(p.plain(0)+"/64", p.at6(1))
		r.right.Addr(w.name, p.plain(3)+"/64").Route(p.source.String()+"/128", p.plain(1))
	}
	if p.router != nil {
		r.lead(p)
	}
	return p
}

// plain is a host's address on right's side of plain IPv6 forwarding.
func (p *rigPath) plain(host int) string { return fmt.Sprintf("2001:db8:64:%d::%d", p.number, host) }

// join puts a cable between a node and right, or a line of the plan's rate. Before it
// lies a switch then: what XDP redirects arrives where someone takes frames, and a wire
// takes packets.
func (r *rig) join(l *lab.Lab, node *lab.Node, iface, name string) {
	if r.plan.Rate == 0 {
		l.Link(node, iface, r.right, name)
		return
	}
	r.takers[name] = l.Bridge("switch-" + name)
	l.Link(node, iface, r.takers[name], switchPort)
	// An error is the lab's to tell.
	_, _ = l.Wire(r.takers[name], "line", r.right, name, lab.Ethernet(r.plan.Rate))
}

// switchPort is a switch's interface to the router.
const switchPort = "router"

// prepare starts the way's program and opens what measures.
func (p *rigPath) prepare(ctx context.Context) (err error) {
	for _, end := range p.ends() {
		if *end.mac, err = mac(end.node, end.iface); err != nil {
			return err
		}
		// What is handed over as several packets in one would be counted as one.
		if !p.rig.plan.Offloads {
			if err := end.node.DisableOffloads(end.iface); err != nil {
				return err
			}
		}
	}
	if p.router == nil {
		p.in6MAC, p.out4MAC = p.rightMAC, p.leftMAC
	}
	if err := p.rig.open(p); err != nil {
		return err
	}
	if p.way.runs() {
		if p.process, err = p.rig.start(ctx, p); err != nil {
			return err
		}
	}
	if err := p.rig.meet(ctx, p); err != nil || !p.way.ours() {
		return err
	}
	return p.awaitWay(ctx)
}

// rigEnd is one end of a cable.
type rigEnd struct {
	node  *lab.Node
	iface string
	mac   *net.HardwareAddr
}

// ends are the ends of the way's cables.
func (p *rigPath) ends() []rigEnd {
	ends := []rigEnd{{p.rig.left, p.way.name, &p.leftMAC}, {p.rig.right, p.way.name, &p.rightMAC}}
	if p.router != nil {
		ends = append(ends, rigEnd{p.router, "in6", &p.in6MAC}, rigEnd{p.router, "out4", &p.out4MAC})
	}
	return ends
}

// forwarding are the ports where the way's packets are received to be forwarded; of a
// cable its ends, where they are counted.
func (p *rigPath) forwarding() []rigEnd {
	ends := p.ends()
	return ends[len(ends)-2:]
}

// meter adds a meter, which is closed with the way.
func (p *rigPath) meter() (*load.Meter, error) {
	m, err := load.NewMeter()
	if err == nil {
		p.closers = append(p.closers, m)
	}
	return m, err
}

// sender opens what sends from an end of the way, in that end's namespace.
func (p *rigPath) sender() (*load.Sender, error) {
	s, err := load.OpenQueuedSender(p.way.name)
	if err == nil {
		p.closers = append(p.closers, s)
	}
	return s, err
}

// processes are those of the programs.
func (r *rig) processes() (pids []int) {
	for _, p := range r.paths {
		if p.process != nil {
			pids = append(pids, p.process.PID())
		}
	}
	return pids
}

// healthy tells of programs that ended.
func (r *rig) healthy() error {
	var errs []error
	for _, p := range r.paths {
		errs = append(errs, alive(p.way.title, p.process))
	}
	return errors.Join(errs...)
}

// alive tells of a program that ended; nil is none.
func alive(name string, p *lab.Proc) error {
	if p == nil {
		return nil
	}
	select {
	case <-p.Done():
		return fmt.Errorf("%s ended by itself: %w", name, errors.Join(p.Wait(), errEarly))
	default:
		return nil
	}
}

// close closes the ends, the generator and the prober; the lab stops the programs.
func (r *rig) close() {
	r.usage.close()
	for _, p := range r.paths {
		p.unmeter()
	}
	if r.generator != nil {
		_ = r.generator.Close()
	}
	if r.prober != nil {
		_ = r.prober.Close()
	}
}

// unmeter takes away what sends and counts at the way's ends.
func (p *rigPath) unmeter() {
	for _, c := range p.closers {
		_ = c.Close()
	}
	p.closers = nil
}
