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

// holders are amounts by a hash of their source. Two sources may share one, as buckets.
type holders struct {
	hash    hash
	amounts []int
}

// NewHeld makes counters for n networks and as many hosts, of 8 bytes each, and takes its
// seeds from rand.
func NewHeld(n int, rand io.Reader) (*Held, error) {
	h := &Held{}
	for _, t := range []*holders{&h.networks, &h.hosts} {
		var err error
		if t.hash, n, err = newHash(n, rand); err != nil {
			return nil, err
		}
		t.amounts = make([]int, n)
	}
	return h, nil
}

// Share tells by what share the host a may hold n more, where its network may hold limit.
func (h *Held) Share(a netip.Addr, n, limit int) Share {
	network, host := h.of(a)
	switch {
	case *host+n <= limit/hostShare && *network+n <= limit:
		return Own
	case *network+n <= limit/2:
		return Spare
	}
	return NoShare
}

// Add counts n more of the host a; less than 0 gives back.
func (h *Held) Add(a netip.Addr, n int) {
	network, host := h.of(a)
	*network += n
	*host += n
}

func (h *Held) of(a netip.Addr) (network, host *int) {
	n, s := &h.networks, &h.hosts
	return &n.amounts[n.hash.of(networkOf(a))], &s.amounts[s.hash.of(words(a))]
}
