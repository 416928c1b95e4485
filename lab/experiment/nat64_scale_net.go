// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
)

// The crowd: a million clients in a thousand networks. Each network is one
// subscriber of the translator.
const (
	crowdNetworks = 1000
	crowdSize     = 1_000_000
	crowdBlock    = 2048 // ports of each network, half of which are taken
	flowPort      = 5000 // of inside, where there is one flow
)

// Addresses of the crowd, and all that use its translators.
var (
	crowdClients = netip.MustParsePrefix("2001:db8:8000::/48")
	crowdAll     = netip.MustParsePrefix("2001:db8::/32")
)

// crowdPool is the pool of the translator of that way.
func crowdPool(number int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("203.0.113.%d/26", 64*(number-1)))
}

// crowdLines are what a translator needs for a crowd.
func crowdLines(more string) string {
	return fmt.Sprintf("max_sessions = %d\nmax_clients = 4096\nblock_size = %d\nclient_blocks = 2\nblock_log = false\n%s", 1<<20, crowdBlock, more)
}

// crowdPeer is the i-th client: a random address in a network, and a random port.
func crowdPeer(i int, random *rand.Rand) load.Peer {
	a := crowdClients.Addr().As16()
	binary.BigEndian.PutUint16(a[6:], uint16(i%crowdNetworks))
	binary.BigEndian.PutUint64(a[8:], random.Uint64())
	p := load.Peer{Client: a}
	binary.BigEndian.PutUint16(p.Port[:], uint16(1024+random.IntN(65536-1024)))
	return p
}

// loadedNAPT is the translators' topology with a generator. Entry 0 of its table is
// inside itself; the others are the crowd, in random order.
type loadedNAPT struct {
	*naptPaths
	generator *load.Generator
	counters  map[way]*load.Meter // of what arrives outside
	usage     *usage
}

// startLoadedNAPT starts the topology with a generator for so many clients.
func startLoadedNAPT(ctx context.Context, e *lab.Env, name string, plan naptPlan, clients int) (l *loadedNAPT, done func(), err error) {
	plan.Load = true
	n, end, err := startNAPT(ctx, e, name, plan)
	if err != nil {
		return nil, nil, err
	}
	l = &loadedNAPT{naptPaths: n, counters: map[way]*load.Meter{}}
	done = func() {
		l.usage.close()
		for _, c := range l.counters {
			_ = c.Close()
		}
		if l.generator != nil {
			_ = l.generator.Close()
		}
		end()
	}
	if err := l.setUp(clients); err != nil {
		done()
		return nil, nil, err
	}
	return l, done, nil
}

// setUp gives the generator a target at each end of each way, and the routers
// receiving threads on a CPU of their own.
func (l *loadedNAPT) setUp(clients int) (err error) {
	if l.generator, err = load.NewGenerator(1 + clients); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(64, 46))
	peers := l.generator.Peers()
	for i := range clients {
		peers[1+i] = crowdPeer(i, random)
	}
	random.Shuffle(clients, func(i, j int) { peers[1+i], peers[1+j] = peers[1+j], peers[1+i] })
	lab := l.inside.Lab()
	lab.Link(l.inside, idleLink, l.outside, idleLink)
	if err := lab.Err(); err != nil {
		return err
	}
	if err := l.inside.Do(func() error { return l.generator.Anchor(idleLink) }); err != nil {
		return err
	}
	for i, p := range l.paths {
		if err := l.load(p, i); err != nil {
			return err
		}
	}
	l.usage, err = countCPU(l.processes()...)
	return err
}

// load prepares one way.
func (l *loadedNAPT) load(p *naptPath, at int) (err error) {
	name := p.way.name
	if l.counters[p.way], err = load.NewMeter(); err != nil {
		return err
	}
	err = errors.Join(
		l.inside.Do(func() error { return l.generator.Target(2*at, name) }),
		l.outside.Do(func() error {
			return errors.Join(l.generator.Target(2*at+1, name), l.counters[p.way].Arrival(name, l.hook(p.way)))
		}),
	)
	for _, end := range p.forwarding(l.naptPaths) {
		if err != nil {
			return err
		}
		if err := end.node.EnableGRO(end.iface); err != nil {
			return err
		}
		if p.way.userSpace() {
			continue // a program has all CPUs that the generator leaves
		}
		err = end.node.Do(func() error { return load.OwnNAPI(end.iface, forwarderCPU, p.way.nice()) })
	}
	return err
}

// forwarding are the ports where the way's packets are received to be forwarded; of a
// cable its ends, where they are counted.
func (p *naptPath) forwarding(n *naptPaths) []naptEnd {
	ends := p.ends(n)
	return ends[len(ends)-2:]
}

// number is the place of a way among the paths.
func (l *loadedNAPT) number(p *naptPath) int {
	for i := range l.paths {
		if l.paths[i] == p {
			return i
		}
	}
	return -1
}

// flow is the load of one client, inside itself.
func (l *loadedNAPT) flow(p *naptPath, d direction, size int) load.Lane {
	at := l.number(p)
	entry := &l.generator.Peers()[0]
	*entry = load.Peer{Client: p.source.As16()}
	if d == toIPv4 {
		frame := load.Datagram(p.insideMAC, p.in6MAC, netip.AddrPortFrom(p.source, flowPort), netip.AddrPortFrom(p.target, load.DiscardPort), size)
		return load.Lane{Frame: frame, Target: 2 * at, Count: 1}
	}
	from, to := netip.AddrPortFrom(p.far, flowPort), netip.AddrPortFrom(p.mapped, load.DiscardPort)
	if !p.way.runs() {
		from = netip.AddrPortFrom(p.target, flowPort)
	} else {
		entry.IP = p.mapped.As4()
	}
	return load.Lane{Frame: load.Datagram(p.outsideMAC, p.out4MAC, from, to, size), ToClient: true, Target: 2*at + 1, Count: 1}
}

// crowd is the load of the clients first to first+n-1, in their order from that one
// of them on.
func (l *loadedNAPT) crowd(p *naptPath, first, n, start int) load.Lane {
	frame := load.Datagram(p.insideMAC, p.in6MAC, netip.AddrPortFrom(p.source, flowPort), netip.AddrPortFrom(p.target, load.DiscardPort), 64)
	return load.Lane{Frame: frame, Ports: true, Target: 2 * l.number(p), First: 1 + first, Count: n, Start: start}
}

// arrivals counts what comes out in that direction.
func (l *loadedNAPT) arrivals(p *naptPath, d direction) *load.Meter {
	if d == toIPv4 {
		return l.counters[p.way]
	}
	return p.echoes
}

// run loads a way and returns what was sent and how much of it arrived.
func (l *loadedNAPT) run(p *naptPath, d direction, lane load.Lane, pace load.Pace) (sent load.Sent, arrived uint64, err error) {
	meter := l.arrivals(p, d)
	before, err := meter.Total()
	if err != nil {
		return sent, 0, err
	}
	err = p.way.generate(func() (err error) {
		sent, err = l.generator.Run([]load.Lane{lane}, pace)
		return err
	})
	if err != nil {
		return sent, 0, err
	}
	if sent.Took <= 0 {
		return sent, 0, errors.New("the generator sent less than two batches")
	}
	if err := awaitMore(meter.Total, before); err != nil {
		return sent, 0, err
	}
	after, err := meter.SettleAll(loadDrain)
	return sent, after - before, err
}

// rate is what a slice of load comes to.
func (l *loadedNAPT) rate(p *naptPath, d direction, lane load.Lane, pace load.Pace) (r rate, err error) {
	used := l.usage.time()
	sent, arrived, err := l.run(p, d, lane, pace)
	if err != nil {
		return r, err
	}
	return newRate(sent, arrived, l.usage.time()-used), nil
}

// Paces of what fills tables: as much as all ways carry, and before that as little
// as a translator needs to meet all networks one by one.
const (
	fillRate   = 250e3
	meetRate   = 20e3
	meetEach   = 16 // packets of each network, in random order
	fillPasses = 20
	fillRun    = 100 * time.Millisecond // longer, and the kernel's own workers would wait
)

// meet makes all networks of the crowd known.
func (l *loadedNAPT) meet(ctx context.Context, p *naptPath, clients int) error {
	return l.pass(ctx, p, min(clients, meetEach*crowdNetworks), meetRate)
}

// pass sends a packet of each of the first n clients.
func (l *loadedNAPT) pass(ctx context.Context, p *naptPath, n int, rate float64) error {
	for at := 0; at < n; {
		if err := ctx.Err(); err != nil {
			return err
		}
		left := time.Duration(float64(n-at) / rate * float64(time.Second))
		sent, _, err := l.run(p, toIPv4, l.crowd(p, 0, n, at), load.Pace{Rate: rate, Time: min(fillRun, left+time.Millisecond), Slack: time.Millisecond})
		if err != nil {
			return err
		}
		at += int(sent.All())
	}
	return nil
}

// fill makes sessions of the first n clients. What a busy machine loses is sent
// again.
func (l *loadedNAPT) fill(ctx context.Context, p *naptPath, n int) error {
	have := 0
	for range fillPasses {
		if err := l.pass(ctx, p, n, fillRate); err != nil {
			return err
		}
		s, err := p.scale(ctx, l.naptPaths)
		if err != nil {
			return err
		}
		if have = s.Sessions; have >= n {
			return nil
		}
	}
	return fmt.Errorf("%s has %d sessions and not %d after %d packets of each", p.way.title, have, n, fillPasses)
}

// scaleStatus is what a translator says of its size.
type scaleStatus struct {
	Sessions    int `json:"sessions"`
	Bindings    int `json:"bindings"`
	Subscribers int `json:"subscribers"`
}

// scale asks the way's Isthmus for its size.
func (p *naptPath) scale(ctx context.Context, n *naptPaths) (s scaleStatus, err error) {
	instance, err := p.status(ctx, n)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(instance.State, &s); err != nil {
		return s, fmt.Errorf("the status of %s cannot be read: %w", p.way.title, err)
	}
	return s, nil
}
