// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/internal/places"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/translate/dns64"
)

// leastStay is how long a place is never taken for another of the same client: what was let
// in has time to be answered, and a flood costs no more than its refusal.
const leastStay = time.Second

// fair are places for many goroutines.
type fair struct {
	mu     sync.Mutex
	places *places.Places
}

func newPlaces(limit int) *places.Places {
	return places.New(limit, shareOf(limit), leastStay)
}

func shareOf(limit int) int { return max(limit/dns64.ShareOfClient, 1) }

func (p *fair) setLimit(limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.places.SetLimit(limit, shareOf(limit))
	p.places.Shrink()
}

func (p *fair) enter(client netip.Addr, end func(dns64.Reason)) (*places.Place, dns64.Reason) {
	p.mu.Lock()
	defer p.mu.Unlock()
	place, why := p.places.Enter(client, time.Now(), func(why places.Reason) { end(reasonOf(why)) })
	return place, reasonOf(why)
}

func reasonOf(why places.Reason) dns64.Reason {
	return [...]dns64.Reason{places.None: dns64.ReasonNone, places.Full: dns64.ReasonBusy, places.Share: dns64.ReasonShare}[why]
}

func (p *fair) use(one *places.Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.places.Use(one, time.Now())
}

func (p *fair) leave(one *places.Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.places.Leave(one)
}

func (p *fair) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.places.Len()
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
