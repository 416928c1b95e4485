// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

// What the programs may leave to the engine, for each reason: about a quarter of what
// one core of it does; and of that, what one IPv6 /64 or IPv4 address may have.
const (
	PuntRate  = 120_000
	PuntShare = 12_000
)

// Measured sorts what has passed, the engine's part too, by what rates are shown of. Both
// translators have the same words for what is forwarded.
func Measured(counts []fastpath.Counter, engine4, engine6 uint64) map[string]uint64 {
	total := map[string]uint64{
		"fast_to_ipv4": 0, "fast_to_ipv6": 0, "punted": 0, "dropped": 0,
		"engine_to_ipv4": engine4, "engine_to_ipv6": engine6,
	}
	for _, c := range counts {
		switch {
		case c.Reason == translatebpf.To4Forwarded:
			total["fast_to_ipv4"] += c.Packets
		case c.Reason == translatebpf.To6Forwarded:
			total["fast_to_ipv6"] += c.Packets
		case c.Verdict == fastpath.Punt:
			total["punted"] += c.Packets
		case c.Verdict == fastpath.Drop:
			total["dropped"] += c.Packets
		}
	}
	return total
}
