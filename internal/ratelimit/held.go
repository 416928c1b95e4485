// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"io"
	"net/netip"
)

// Held counts what sources hold of a store until they give it back, bytes that wait, say,
// and shares it as Fair shares a rate: each network has a limit, and in it each host a
// part that it is sure of.
type Held struct {
	networks, hosts holders
}

// holders are amounts by hashes of their source, in two tables. Sources may share one, as
// buckets; the smaller of two counts.
type holders struct {
	hashes [2]hash
	tables [2][]int
}

// NewHeld makes counters for n networks and as many hosts, of 8 bytes each in two tables,
// and takes its seeds from rand.
func NewHeld(n int, rand io.Reader) (*Held, error) {
	h := &Held{}
	for _, t := range []*holders{&h.networks, &h.hosts} {
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
	network, host := h.networks.held(networkOf(a))+n, h.hosts.held(words(a))+n
	switch {
	case host <= limit/hostShare && network <= limit:
		return Own
	case network <= limit/2:
		return Spare
	}
	return NoShare
}

// Add counts n more of the host a; less than 0 gives back.
func (h *Held) Add(a netip.Addr, n int) {
	hi, lo := networkOf(a)
	h.networks.add(hi, lo, n)
	hi, lo = words(a)
	h.hosts.add(hi, lo, n)
}

func (t *holders) held(hi, lo uint64) int {
	return min(t.tables[0][t.hashes[0].of(hi, lo)], t.tables[1][t.hashes[1].of(hi, lo)])
}

func (t *holders) add(hi, lo uint64, n int) {
	for i := range t.tables {
		t.tables[i][t.hashes[i].of(hi, lo)] += n
	}
}
