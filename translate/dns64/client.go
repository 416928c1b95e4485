// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"hash/fnv"
	"io"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/ratelimit"
)

// DefaultClientLength is that of [Settings.ClientLength].
const DefaultClientLength = 64

// Client returns the key of the client that an address belongs to, and whether it may ask.
// A client is an IPv4 address or an IPv6 prefix, in which a host can take any address. All
// link-local addresses of one link are one.
func (p *Policy) Client(from netip.Addr) (client netip.Addr, known bool) {
	a := from.Unmap()
	known = within(p.clients, a.WithZone("")) // a prefix holds no address with a zone
	switch {
	case a.IsLinkLocalUnicast() && a.Is6():
		h := fnv.New64a()
		_, _ = io.WriteString(h, a.Zone()) // never fails
		return netip.AddrFrom16([16]byte(h.Sum([]byte{0xfe, 0x80, 7: 0}))), known
	case a.Is4():
		return a, known
	}
	network, _ := a.WithZone("").Prefix(p.clientLength) // New has checked the length
	return network.Addr(), known
}

const (
	// rateBuckets is large enough that a thousand clients above their rate leave another
	// one its own in all but one of a thousand cases.
	rateBuckets = 1 << 15

	// Strangers are refused this often a second, each and all together: the sources may be
	// forged, and the answers go to them.
	refusalsOfOne, refusalsOfOneBurst = 20, 40
	refusalsOfAll, refusalsOfAllBurst = 1000, 1000
)

// Rates bound what clients ask, and how often strangers are refused. They are not safe for
// concurrent use.
type Rates struct {
	clients, strangers *ratelimit.PerSource
	refusals           ratelimit.Bucket
}

// NewRates makes a limit for each client, with seeds from rand.
func NewRates(l ratelimit.Limit, rand io.Reader) (r *Rates, err error) {
	r = new(Rates)
	if r.clients, err = ratelimit.NewPerSource(l, rateBuckets, rand); err != nil {
		return nil, err
	}
	r.strangers, err = ratelimit.NewPerSource(ratelimit.PerSecond(refusalsOfOne, refusalsOfOneBurst), ratelimit.DefaultBuckets, rand)
	return r, err
}

// SetLimit changes the limit of each client.
func (r *Rates) SetLimit(l ratelimit.Limit) { r.clients.SetLimit(l) }

// Admit returns why a message that came from a client, as [Policy.Client] has it, is
// dropped without an answer, or [ReasonNone].
func (r *Rates) Admit(client netip.Addr, known bool, now time.Time) Reason {
	if !known {
		if r.strangers.Allow(client, now) && r.refusals.Allow(ratelimit.PerSecond(refusalsOfAll, refusalsOfAllBurst), now) {
			return ReasonNone
		}
		return ReasonRefusals
	}
	if r.clients.Allow(client, now) {
		return ReasonNone
	}
	return ReasonRate
}
