// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"io"
	"net/netip"
)

// Held counts what sources hold of a store until they give it back, bytes that wait, say,
// and shares it as Fair shares a rate: each network has a limit, in it each host a part that
// it is sure of, and each site as much as two networks.
type Held struct {
	sites, networks, hosts holders
}

// holders are amounts by hashes of their source, in two tables. Sources may share one, as
// buckets; the smaller of two counts.
type holders struct {
	hashes [2]hash
	tables [2][]int
}

// NewHeld makes counters for n sites, networks and hosts, of 8 bytes each in two tables, and
// takes its seeds from rand.
func NewHeld(n int, rand io.Reader) (*Held, error) {
	h := &Held{}
	for _, t := range []*holders{&h.sites, &h.networks, &h.hosts} {
		for i := range t.tables {
			var err error
			if t.hashes[i], n, err = newHash(n, rand); err != nil {
				return nil, err
			}
			t.tables[i] = make([]int, n)
		}
	}
	return h, nil
}

// Share tells by what share the host a may hold n more, where its network may hold limit.
func (h *Held) Share(a netip.Addr, n, limit int) Share {
	site, network := h.sites.held(siteScale.of(a))+n, h.networks.held(networkScale.of(a))+n
	within := h.hosts.held(hostScale.of(a))+n <= limit/hostShare
	switch {
	case network > limit, !within && network > limit/2:
		return NoShare
	case !within, site > siteShare*limit:
		return Spare
	}
	return Own
}

// Add counts n more of the host a; less than 0 gives back.
func (h *Held) Add(a netip.Addr, n int) {
	h.sites.add(siteScale.of(a), n)
	h.networks.add(networkScale.of(a), n)
	h.hosts.add(hostScale.of(a), n)
}

func (t *holders) held(k key) int {
	return min(t.tables[0][t.hashes[0].of(k)], t.tables[1][t.hashes[1].of(k)])
}

func (t *holders) add(k key, n int) {
	for i := range t.tables {
		t.tables[i][t.hashes[i].of(k)] += n
	}
}
