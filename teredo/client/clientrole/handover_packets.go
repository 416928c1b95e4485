// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"time"

	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/teredo/client"
)

// warmEvery is how often the ways to recent peers are opened again on the paths
// that stand by: often enough that a proof, which lasts 30 s, never expires.
const warmEvery = 10 * time.Second

// warmPause is the least time between rounds for new destinations.
const warmPause = time.Second

// owner is a path for the readers of the tunnel.
type owner struct {
	addr   [16]byte
	client *Client
}

// keepWarm opens the ways to recent peers on the paths that stand by, until ctx
// is done.
func (h *Handover) keepWarm(ctx context.Context) {
	ticker := time.NewTicker(warmEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-h.fresh:
		}
		h.mu.Lock()
		for i, p := range h.paths {
			if i != h.active && p.addressed {
				h.warm(p.client)
			}
		}
		h.mu.Unlock()
		// A host that sends to one after the other must not have each of them
		// tested from everywhere.
		select {
		case <-ctx.Done():
			return
		case <-time.After(warmPause):
		}
	}
}

// warm opens the ways to recent peers from one path.
func (h *Handover) warm(c *Client) {
	if peers := h.peers.peers(time.Now()); len(peers) > 0 {
		c.loop.Do(func(now time.Time, out *client.Out) {
			for _, a := range peers {
				c.engine.Reach(a, now, out)
			}
		})
	}
}

// readTun hands the packets of the host's stack to the paths by their source,
// until the tunnel is closed.
func (h *Handover) readTun() error {
	pkts := make([][]byte, port.MaxBatch)
	outs := map[*Client]*client.Out{}
	defer loop.AddProcessor()()
	for {
		n, err := h.tun.tun.Queues[0].ReadBatch(pkts)
		if err != nil {
			return loop.UntilClosed(err)
		}
		for rest := pkts[:n]; len(rest) > 0; {
			c, run := h.ownerOf(rest)
			if c == nil {
				break // there is no path at all
			}
			if outs[c] == nil {
				if len(outs) > 2*len(h.paths) {
					clear(outs) // of clients whose interfaces have gone
				}
				outs[c] = c.loop.NewOutput()
			}
			out := outs[c]
			c.loop.With(out, func(now time.Time) {
				h.noteDestinations(rest[:run], now)
				for _, p := range rest[:run] {
					c.engine.HandleIP(p, now, out)
				}
			})
			rest = rest[run:]
		}
	}
}

// ownerOf returns the path of the first packet, and how many packets from the
// first on are of the same source. The active path takes what is of none, and
// counts it.
func (h *Handover) ownerOf(pkts [][]byte) (c *Client, run int) {
	source := func(p []byte) (src [16]byte) {
		if len(p) >= packet.IPv6HeaderLen {
			src = *packet.IPv6(p).SrcBytes()
		}
		return src
	}
	first := source(pkts[0])
	for run = 1; run < len(pkts) && source(pkts[run]) == first; run++ {
	}
	owners := *h.owners.Load()
	for _, o := range owners {
		if o.addr == first {
			return o.client, run
		}
	}
	return h.tun.activeClient(), run
}

// noteDestinations remembers where the host sends to.
func (h *Handover) noteDestinations(pkts [][]byte, now time.Time) {
	var last [16]byte
	for _, p := range pkts {
		if len(p) < packet.IPv6HeaderLen {
			continue
		}
		dst := *packet.IPv6(p).DstBytes()
		if dst == last || dst[0] == 0xff {
			continue
		}
		last = dst
		h.noteDestination(&dst, now)
	}
}

// noteDestination remembers one.
func (h *Handover) noteDestination(dst *[16]byte, now time.Time) {
	if h.peers.note(dst, now) {
		select {
		case h.fresh <- struct{}{}:
		default:
		}
	}
}
