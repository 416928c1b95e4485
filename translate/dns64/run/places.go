// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/translate/dns64"
)

// places are shares for many goroutines.
type places struct {
	mu     sync.Mutex
	shares *dns64.Shares
}

func (p *places) setLimit(limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shares.SetLimit(limit)
}

func (p *places) enter(client netip.Addr, end func(dns64.Reason)) (*dns64.Place, dns64.Reason) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shares.Enter(client, time.Now(), end)
}

func (p *places) use(one *dns64.Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shares.Use(one, time.Now())
}

func (p *places) leave(one *dns64.Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shares.Leave(one)
}

func (p *places) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shares.Len()
}

// rates are those of the engine for many goroutines.
type rates struct {
	mu    sync.Mutex
	rates *dns64.Rates
}

func (r *rates) admit(client netip.Addr, known bool) dns64.Reason {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rates.Admit(client, known, time.Now())
}

func (r *rates) setLimit(l ratelimit.Limit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rates.SetLimit(l)
}
