// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// again does everything that can be repeated, and tells nothing. Both clients are others
// than before: by another port they have another mapping and another address.
func (g *guide) again(ctx context.Context, round int) error {
	for _, c := range g.net.clients {
		if err := c.stop(); err != nil {
			return err
		}
		c.port = clientPort + 1 + uint16(round)
	}
	for i, first := range []func(context.Context) error{g.firstOut, g.firstIn} {
		if _, err := g.startClient(ctx, g.net.clients[i]); err != nil {
			return err
		}
		if err := first(ctx); err != nil {
			return err
		}
	}
	return g.steady(ctx)
}

// startClient starts a client and waits for its address.
func (g *guide) startClient(ctx context.Context, c *teredoClient) (time.Duration, error) {
	if err := c.start(ctx, g.who); err != nil {
		return 0, err
	}
	took, err := c.await(ctx)
	g.tour.start = append(g.tour.start, took)
	return took, err
}

// firstOut sends the first client's first packet.
func (g *guide) firstOut(ctx context.Context) error {
	r, err := g.net.clients[0].node.Ping(ctx, lab.Ping{To: hostAddr, Timeout: answerWait})
	g.tour.firstOut = append(g.tour.firstOut, r)
	return err
}

// firstIn sends the second client its first packet.
func (g *guide) firstIn(ctx context.Context) error {
	r, err := g.net.host.Ping(ctx, lab.Ping{To: g.net.clients[1].addr, Timeout: answerWait})
	g.tour.firstIn = append(g.tour.firstIn, r)
	return err
}

// steady sends more packets by a way that is known.
func (g *guide) steady(ctx context.Context) error {
	r, err := g.net.clients[0].node.Ping(ctx, lab.Ping{To: hostAddr, Count: tourPings, Interval: tourInterval, Timeout: answerWait})
	g.tour.steady = append(g.tour.steady, r)
	return err
}

// stream fetches data by TCP for so long, and counts what that takes of the processor, which
// needs root.
func (g *guide) stream(ctx context.Context, length time.Duration) (err error) {
	var u *usage
	if !g.env.Limited {
		if u, err = countCPU(g.net.daemons.processes()...); err != nil {
			return err
		}
		defer u.close()
	}
	client, host, err := lab.Connect(ctx, g.net.clients[0].node, g.net.host, hostAddr, hostAddr)
	if err != nil {
		return err
	}
	g.tour.stream, err = sendStream(ctx, host, client, length, u)
	return err
}

// last is what was measured last.
func last[T any](list []T) T { return list[len(list)-1] }
