// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package runtest

import "github.com/isthmus-net/isthmus/fastpath"

// Source is what has counters: the programs of a fast path.
type Source interface {
	Counters() ([]fastpath.Counter, error)
}

// Counts are counters as they were when they were last looked at.
type Counts struct{ last map[string]fastpath.Counter }

// News returns what was counted since the last call, by reason.
func (c *Counts) News(of Source) (map[string]fastpath.Counter, error) {
	list, err := of.Counters()
	if err != nil {
		return nil, err
	}
	news, now := make(map[string]fastpath.Counter), make(map[string]fastpath.Counter)
	for _, one := range list {
		now[one.Reason] = one
		one.Packets -= c.last[one.Reason].Packets
		one.Bytes -= c.last[one.Reason].Bytes
		if one.Packets > 0 {
			news[one.Reason] = one
		}
	}
	c.last = now
	return news, nil
}

// Packets is News without bytes.
func (c *Counts) Packets(of Source) (map[string]uint64, error) {
	news, err := c.News(of)
	packets := make(map[string]uint64)
	for reason, one := range news {
		packets[reason] = one.Packets
	}
	return packets, err
}
