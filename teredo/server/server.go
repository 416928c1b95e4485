// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package server is the Teredo server of RFC 4380 section 5.3 as a pure state
// machine: a datagram in, at most one packet out, no socket and no clock. Each
// file is one step of the RFC's text:
//
//	receive.go         section 5.3.1, rules 1 to 7: who may ask
//	route.go           section 5.3.1, second half: where the packet goes
//	solicitation.go    section 5.3.2: router solicitation to advertisement
//	authentication.go  section 5.2.2: who has a key
//	local.go           echo requests to the server itself
//	forward4.go        to a Teredo client over IPv4
//	forward6.go        to a native host over IPv6
//
// The server keeps no state about clients; only rate limits and counters outlive
// a datagram.
//
//house:engine
package server

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/teredo"
)

// Numbers of the local sockets, in HandleUDP's argument and in
// [packet.Datagram]'s field Socket.
const (
	Primary   = 0 // the address that clients know and that stands in their prefix
	Secondary = 1 // the other address, for the tests that clients make of their NAT
)

// Engine is one Teredo server. It is not safe for concurrent use.
type Engine struct {
	cfg      Config
	prefixes []uint32        // first 32 bits of each service prefix
	own      []netip.Addr    // bound and advertised addresses
	linkIPv6 [2]netip.Addr   // own link-local addresses, by socket
	advert   [advertLen]byte // advertisement without destination and checksum
	scratch  [advertLen]byte // advertisement under way
	keys     map[string]clientKey
	source   *ratelimit.PerSource
	total    ratelimit.Bucket
	counters Counters
}

// New checks the configuration and makes an engine.
func New(cfg Config) (*Engine, error) {
	e := &Engine{}
	if err := e.Reconfigure(cfg); err != nil {
		return nil, err
	}
	return e, nil
}

// Reconfigure replaces the configuration and keeps the counters. After an error
// the engine works on as before.
func (e *Engine) Reconfigure(cfg Config) error {
	cfg, err := cfg.checked()
	if err != nil {
		return err
	}
	source, err := ratelimit.NewPerSource(cfg.PerSource, ratelimit.DefaultBuckets, cfg.Rand)
	if err != nil {
		return err
	}
	keys, err := cfg.keyring()
	if err != nil {
		return err
	}
	e.cfg, e.source, e.total, e.keys = cfg, source, ratelimit.Bucket{}, keys
	e.prefixes = cfg.prefixWords()
	e.own = cfg.ownAddresses()
	e.linkIPv6 = [2]netip.Addr{
		cfg.linkLocal(cfg.AdvertisedPrimary),
		cfg.linkLocal(cfg.AdvertisedSecondary),
	}
	e.advert = e.advertTemplate()
	return nil
}

// Counters returns a snapshot.
func (e *Engine) Counters() Counters { return e.counters }

// HandleUDP takes a datagram that came from the IPv4 address from to the local
// socket [Primary] or [Secondary], and appends the packet to be sent to out, if
// any. It may rewrite payload, and what it appends may alias payload. A datagram
// costs at most one packet, at most [MaxGrowth] bytes larger than the datagram.
func (e *Engine) HandleUDP(from netip.AddrPort, local int, payload []byte, now time.Time, out *packet.Batch) {
	e.counters.Received++
	if r := e.handle(from, local, payload, now, out); r != accepted {
		e.counters.Dropped[r]++
	}
}

// Tick does nothing: a server without state has nothing that falls due. It and
// Next give the engine the shape that the loops drive.
func (e *Engine) Tick(time.Time, *packet.Batch) {}

// Next returns the zero time: never.
func (e *Engine) Next() time.Time { return time.Time{} }

// MaxGrowth is how many bytes the answer to a datagram can be larger than the
// datagram: an advertisement with origin indication against a bare solicitation.
const MaxGrowth = originLen + advertLen - solicitationLen

func (e *Engine) handle(from netip.AddrPort, local int, payload []byte, now time.Time, out *packet.Batch) Reason {
	p, err := teredo.Parse(payload)
	if err != nil {
		return reasonOf(err)
	}
	solicitation, r := e.receive(from, &p)
	if r != accepted {
		return r
	}
	// The limits stand behind the checks, so that garbage does not use up what a
	// well-behaved client at the same address may send.
	if !e.source.Allow(from.Addr(), now) {
		return RateLimitSource
	}
	if !e.total.Allow(e.cfg.Total, now) {
		return RateLimitTotal
	}
	if solicitation {
		return e.advertise(from, local, &p, now, out)
	}
	return e.route(from, local, &p, payload, out)
}

// isTeredo reports whether a lies below one of the service prefixes.
func (e *Engine) isTeredo(a *[16]byte) bool {
	w := prefixWord(a)
	for _, p := range e.prefixes {
		if w == p {
			return true
		}
	}
	return false
}

// serves reports whether the Teredo address a was given out by this server (RFC
// 4380 section 5.3.1: bits 32 to 63 are the server's address).
func (e *Engine) serves(a *[16]byte) bool {
	s := teredo.Server(a)
	return s == e.cfg.AdvertisedPrimary || s == e.cfg.AdvertisedSecondary
}

// isOwn reports whether a is an address of this server, bound or advertised.
func (e *Engine) isOwn(a netip.Addr) bool {
	for _, o := range e.own {
		if a == o {
			return true
		}
	}
	return false
}
