// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import "encoding/binary"

// Bounds of what is remembered of routers.
const (
	// MaxRouters is how many routers of one family are distinguished, and so how many
	// addresses of a pool are used.
	MaxRouters = 256
	// routerPlaces is in how many places a router is looked for.
	routerPlaces = 8
)

// Routers remembers which address of a pool stands for which router, so that a traceroute
// shows each under an address of its own, and always under the same (RFC 6791 section 5
// has the choice random to that end). A router's place is drawn by a hash of its address;
// where others have that and those behind it, the one that was silent longest gives way.
type Routers struct {
	seed         uint64
	clock        uint64
	from6, from4 [MaxRouters]routerPlace
}

// routerPlace is one address of a pool.
type routerPlace struct {
	router [16]byte // an IPv4 address fills the first four octets
	used   uint64   // when by the clock; 0 is never
}

// NewRouters returns the memory of one translator. The seed is random.
func NewRouters(seed uint64) *Routers { return &Routers{seed: seed} }

// place returns the number of a router's address in a pool of so many.
func (r *Routers) place(places *[MaxRouters]routerPlace, router *[16]byte, size uint64) uint64 {
	n := min(size, MaxRouters)
	first := r.hash(router) % n
	r.clock++
	at := first
	for i := range min(n, routerPlaces) {
		other := (first + i) % n
		p := &places[other]
		if p.used != 0 && p.router == *router {
			at = other
			break
		}
		if p.used < places[at].used {
			at = other
		}
	}
	places[at] = routerPlace{*router, r.clock}
	return at
}

func (r *Routers) hash(router *[16]byte) uint64 {
	h := (binary.LittleEndian.Uint64(router[:]) ^ r.seed) * 0x9e3779b97f4a7c15
	h = ((h ^ h>>32) + binary.LittleEndian.Uint64(router[8:])) * 0xd6e8feb86659fd93
	h = ((h ^ h>>29) + r.seed) * 0x9e3779b97f4a7c15
	return h ^ h>>32
}
