// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"sync/atomic"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/dns64"
)

// counters are what the instance has seen, by all its goroutines.
type counters struct {
	udp, tcp           atomic.Uint64 // queries
	outcomes           [dns64.NumOutcomes]atomic.Uint64
	dropped            [dns64.NumReasons]atomic.Uint64
	truncated          atomic.Uint64
	hits, misses       atomic.Uint64 // of the cache
	merged             atomic.Uint64 // into the same question that waited already
	connectionsRefused atomic.Uint64
	unsent             atomic.Uint64
}

func (c *counters) drop(r dns64.Reason) { c.dropped[r].Add(1) }

func (c *counters) collect(emit func(role.Metric)) {
	emit(role.Count("udp_queries_total", "Messages received over UDP.", c.udp.Load()))
	emit(role.Count("tcp_queries_total", "Messages received over TCP.", c.tcp.Load()))
	for o := range dns64.NumOutcomes {
		emit(role.Metric{
			Name: "answers_total", Kind: role.Counter, Help: "Answers to clients, by how they came about.",
			Reason: o.String(), Value: float64(c.outcomes[o].Load()),
		})
	}
	emit(role.Count("truncated_total", "Answers cut to the size that the client takes.", c.truncated.Load()))
	emit(role.Count("cache_hits_total", "Questions answered by the cache.", c.hits.Load()))
	emit(role.Count("cache_misses_total", "Questions that upstreams had to be asked.", c.misses.Load()))
	emit(role.Count("merged_total", "Questions that waited for the answer to the same question.", c.merged.Load()))
	for r := dns64.Reason(1); r < dns64.NumReasons; r++ {
		emit(role.Dropped(r.String(), c.dropped[r].Load()))
	}
	emit(role.Dropped("connections_full", c.connectionsRefused.Load()))
	emit(role.Dropped("send_failed", c.unsent.Load()))
}
