// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
)

// translating is the crossing of translators. On the way of a number inside reaches
// outside by the prefix 2001:db8:64:N::/96, and outside sees it as 203.0.113.N.
type translating struct {
	// Crowd has room for a million sessions of many clients, those of crowdClients.
	Crowd bool
	// Stateless has Isthmus translate without sessions, by a mapping for inside.
	Stateless bool
	// Static has a packet to the discard port of what stands for inside reach inside.
	Static bool
	// More are lines of the sections of Isthmus.
	More string
	// Ready bounds the time until translators translate; 0 is naptReady.
	Ready time.Duration
}

// naptReady bounds the time until a translator translates.
const naptReady = daemonStart

// String names the programs.
func (*translating) String() string { return "the translators" }

func (*translating) hosts() (left, right string) { return "inside", "outside" }

// prefix is the translation prefix of the way.
func (p *rigPath) prefix() netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("2001:db8:64:%d::/96", p.number))
}

// translated is the address that stands for an IPv4 host behind the prefix.
func translated(prefix netip.Prefix, host netip.Addr) netip.Addr {
	a, h := prefix.Addr().As16(), host.As4()
	copy(a[12:], h[:])
	return netip.AddrFrom16(a)
}

func (t *translating) lead(p *rigPath) {
	r := p.rig
	if t.Crowd {
		p.router.Route(crowdClients.String(), p.at6(2))
	}
	if !p.way.runs() {
		if t.Crowd {
			r.right.Route(crowdClients.String(), p.plain(1))
		}
		return
	}
	p.target = translated(p.prefix(), p.far)
	p.mapped = netip.MustParseAddr(fmt.Sprintf("203.0.113.%d", p.number))
	r.left.Route(p.prefix().String(), p.at6(1))
	if t.Crowd && !t.Stateless {
		r.right.Route(crowdPool(p.number).String(), p.at4(1))
		return
	}
	r.right.Route(p.mapped.String()+"/32", p.at4(1))
}

// open opens what sends echo requests and what times their answers. What XDP
// redirects arrives only where someone takes frames.
func (t *translating) open(p *rigPath) (err error) {
	if p.toLeft, err = p.meter(); err != nil {
		return err
	}
	if p.way == wayXDP {
		if err := p.rig.takeFrames(); err != nil {
			return err
		}
	}
	hook := p.way.hook()
	if p.rig.plan.Load > 0 {
		hook = sink
	}
	return p.rig.left.Do(func() (err error) {
		if p.fromLeft, err = p.sender(); err != nil {
			return err
		}
		return errors.Join(p.toLeft.Departure(p.way.name), p.toLeft.Arrival(p.way.name, hook))
	})
}

// takeFrames gives the hosts' ends of the XDP way what makes them take frames that
// are redirected to them.
func (r *rig) takeFrames() error {
	if r.path(wayXDP) == nil {
		return nil
	}
	taker, iface := r.right, wayXDP.name
	if r.plan.Rate != 0 {
		taker, iface = r.takers[wayXDP.name], switchPort
	}
	return errors.Join(taker.EnableGRO(iface), r.left.EnableGRO(wayXDP.name))
}

func (t *translating) start(ctx context.Context, p *rigPath) (*lab.Proc, error) {
	x := translator{
		way: p.way, name: p.way.name, router: p.router,
		prefix: p.prefix(), client: p.source, mapped: p.mapped, stateless: t.Stateless,
		more: "lowest_ipv6_mtu = 1500\n" + t.More, // as all cables have: answers to large pings stay whole
	}
	if t.Static {
		x.more += fmt.Sprintf("static = [\"udp [%s]:%d %s:%d\"]\n", p.source, load.DiscardPort, p.mapped, load.DiscardPort)
	}
	if t.Crowd {
		x.clients, x.pool = crowdAll, crowdPool(p.number).String()
	}
	return x.start(ctx, p.rig.env, p.rig.dir)
}

// meet sends echo requests until one is answered.
func (t *translating) meet(ctx context.Context, p *rigPath) error {
	return awaitPing(ctx, p.way, p.process, cmp.Or(t.Ready, naptReady), func() (bool, error) { return p.ping(ctx, 100*time.Millisecond) })
}

// awaitPing pings until an answer comes through the process of a way, nil if it has none.
func awaitPing(ctx context.Context, w way, process *lab.Proc, ready time.Duration, ping func() (bool, error)) error {
	for deadline := time.Now().Add(ready); time.Now().Before(deadline); {
		if err := errors.Join(ctx.Err(), alive(w.title, process)); err != nil {
			return err
		}
		if came, err := ping(); came || err != nil {
			return err
		}
	}
	if process != nil {
		return fmt.Errorf("no ping was answered within %v; the translator wrote:\n%s", ready, lastLines(process.Log()))
	}
	return fmt.Errorf("no ping was answered within %v", ready)
}

func (t *translating) probe(ctx context.Context, p *rigPath) error {
	_, err := p.ping(ctx, time.Second)
	return err
}

// ping sends one echo request and reports whether its answer came.
func (p *rigPath) ping(ctx context.Context, patience time.Duration) (bool, error) {
	p.toLeft.Forget(0, 1)
	if err := p.fromLeft.Echoes(p.echo(load.MinEcho), 0, 1, 0); err != nil {
		return false, err
	}
	return p.toLeft.Await(ctx, 0, 1, patience) == 1, nil
}

// echo is an echo request of inside, as long as an IPv6 one of size bytes.
func (p *rigPath) echo(size int) []byte {
	return load.Echo(p.leftMAC, p.in6MAC, p.source, p.target, size)
}

// lanes are the load of one client, inside itself.
func (t *translating) lanes(p *rigPath, d direction, size int) ([]load.Lane, error) {
	entry := load.Peer{Client: p.source.As16()}
	lane := load.Lane{Target: p.aimed(d), Count: 1}
	if d == toIPv4 {
		lane.Frame = p.outward(size)
	} else {
		from := p.far
		if p.way.runs() {
			entry.IP = p.mapped.As4()
		} else {
			from = p.target
		}
		lane.Frame = load.Datagram(p.rightMAC, p.out4MAC, netip.AddrPortFrom(from, flowPort), netip.AddrPortFrom(p.mapped, load.DiscardPort), size)
		lane.ToClient = true
	}
	p.rig.generator.Peers()[0] = entry
	return []load.Lane{lane}, nil
}

// outward is a datagram of inside.
func (p *rigPath) outward(size int) []byte {
	return load.Datagram(p.leftMAC, p.in6MAC, netip.AddrPortFrom(p.source, flowPort), netip.AddrPortFrom(p.target, load.DiscardPort), size)
}

// single times echo requests until their answers: a slice is of round trips.
func (t *translating) single(ctx context.Context, p *rigPath, _ direction, size int, first uint64) ([]float64, error) {
	return p.echoes(ctx, size, first, latencySlice, naptLatencyGap, naptLatencyLimit)
}

// echoes are round trips in microseconds.
func (p *rigPath) echoes(ctx context.Context, size int, first uint64, n int, gap, limit time.Duration) ([]float64, error) {
	return timed(ctx, p.toLeft, first, n, limit, func() error { return p.fromLeft.Echoes(p.echo(size), first, n, gap) })
}
