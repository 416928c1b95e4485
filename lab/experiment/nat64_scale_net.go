// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/binary"
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

// startTranslators starts a rig of translators with a generator for so many clients. Entry
// 0 of its table is inside itself; the others are the crowd, in random order.
func startTranslators(ctx context.Context, e *lab.Env, name string, c translating, ways []way, clients int) (r *rig, done func(), err error) {
	if r, done, err = startRig(ctx, e, name, &c, rigPlan{Ways: ways, Load: 1 + clients}); err != nil {
		return nil, nil, err
	}
	random := rand.New(rand.NewPCG(64, 46))
	peers := r.generator.Peers()[1:]
	for i := range peers {
		peers[i] = crowdPeer(i, random)
	}
	random.Shuffle(clients, func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	return r, done, nil
}

// crowd is the load of the clients first to first+n-1, in their order from that one
// of them on.
func (p *rigPath) crowd(first, n, start int) load.Lane {
	return load.Lane{Frame: p.outward(load.MinTaggedSize), Ports: true, Target: p.aimed(toIPv4), First: 1 + first, Count: n, Start: start}
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

// meetCrowd makes all networks of the crowd known.
func (r *rig) meetCrowd(ctx context.Context, p *rigPath, clients int) error {
	return r.pass(ctx, p, min(clients, meetEach*crowdNetworks), meetRate)
}

// pass sends a packet of each of the first n clients.
func (r *rig) pass(ctx context.Context, p *rigPath, n int, rate float64) error {
	for at := 0; at < n; {
		if err := ctx.Err(); err != nil {
			return err
		}
		left := time.Duration(float64(n-at) / rate * float64(time.Second))
		got, err := r.over(p, toIPv4, []load.Lane{p.crowd(0, n, at)}, load.Pace{Rate: rate, Time: min(fillRun, left+time.Millisecond), Slack: time.Millisecond})
		if err != nil {
			return err
		}
		at += int(got.sent.All())
	}
	return nil
}

// fill makes sessions of the first n clients. What a busy machine loses is sent
// again.
func (r *rig) fill(ctx context.Context, p *rigPath, n int) error {
	have := 0
	for range fillPasses {
		if err := r.pass(ctx, p, n, fillRate); err != nil {
			return err
		}
		s, err := p.scale(ctx)
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
func (p *rigPath) scale(ctx context.Context) (s scaleStatus, err error) {
	err = p.isthmus().state(ctx, &s)
	return s, err
}
