// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/internal/timerqueue"
)

// maxContexts is how many contexts an engine can have.
const maxContexts = 1 << 24

// Engine is one GGSN. Make one with [New]. It is used by one caller at a time.
type Engine struct {
	settings Settings
	epoch    time.Time     // from which it counts time
	born     time.Time     // by which contexts say when they began: the first engine's epoch
	at       time.Duration // of the call that is under way, since the epoch
	now      time.Time     // likewise, by the clock of the day
	random   *rand.Rand
	hashSeed [2]uint64
	own4     uint32 // Settings.Address4 and Address6
	own6     [16]byte

	resumedAt time.Duration // when it took over from another engine

	apns    []*access
	byName  map[string]uint16 // of those that are in the settings
	anyName int               // the default; -1 if there is none
	vrfs    []*vrf

	sessions     slab[session]
	contexts     slab[pdpContext]
	aggregates   slab[aggregate]
	byTID        map[gtp.TID]handle  // contexts
	byIMEI       map[gtp.TID]handle  // those of terminals without an IMSI, by their IMEI in its place
	byTEID       map[uint32]handle   // contexts of version 1
	byControl    map[uint32]handle   // sessions of version 1
	byPeer       map[peerTEID]handle // contexts of version 1, by where their packets go
	byCharging   map[uint32]handle   // contexts, by their Charging-ID
	ended        ended
	late         late
	moved        moved
	filters      map[handle]filters          // of contexts
	changes      map[handle]change           // of sessions, that their SGSNs are asked for
	delegations  delegations                 // of sessions
	delegates    map[handle]ratelimit.Bucket // likewise: of prefixes that their clients did not have before
	routes       map[handle][]Route          // likewise
	delegator    delegator
	sessionTimes timerqueue.Numbered[handle]
	chargingID   uint32

	peers     slab[peer]
	byAddress map[addressKey]handle
	peerTimes timerqueue.Numbered[handle]
	evictAt   handle
	named     int // nodes that have a namer

	requests     slab[request]
	bySequence   map[requestKey]handle
	requestTimes timerqueue.Numbered[handle]

	// releasing are the sessions that are to go without a word to their SGSN, in slices.
	releasing   handle
	toRelease   int
	drain       drain
	held        held
	terms       map[handle]Terms       // of sessions, where an authorizer has set any
	accounts    map[handle]*accounting // of sessions that have one
	records     map[handle]*charging   // of contexts, in which something has changed
	formers     map[handle]formers     // of sessions
	further     map[handle]further     // likewise
	ownLinks    map[handle]ownLink     // likewise
	linkFormers []link.Former          // of the link that was looked at last
	restAt      time.Duration          // when leases that rest are looked after; never if none does

	requestLimit, errorLimit, icmpLimit ratelimit.Limit
	icmpBucket, deletes                 ratelimit.Bucket
	icmpSources                         *ratelimit.Fair

	shared *Shared // where contexts are described for programs; nil: there are none

	codec   gtp.Codec
	scratch messages
	stats   Stats
}

// messages are parsed and written in place, so that none is allocated.
type messages struct {
	create         gtp.CreateRequest
	created        gtp.CreateResponse
	update         gtp.UpdateRequest
	updated        gtp.UpdateResponse
	remove         gtp.DeleteRequest
	removed        gtp.DeleteResponse
	echo           gtp.EchoRequest
	echoed         gtp.EchoResponse
	indication     gtp.ErrorIndication
	extensions     gtp.SupportedExtensions
	notSupported   gtp.VersionNotSupported
	changed        gtp.InfoChangeRequest
	changeAnswered gtp.InfoChangeResponse
	pco            [gtp.MaxPCO]byte
}

// New makes an engine without contexts. random must be a cryptographic source: TEIDs,
// interface identifiers and seeds come from it.
func New(s Settings, now time.Time, random io.Reader) (*Engine, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	var seed [32]byte
	if _, err := io.ReadFull(random, seed[:]); err != nil {
		return nil, fmt.Errorf("no random seed for the GGSN: %w", err)
	}
	e := &Engine{
		drain: drain{at: never}, restAt: never, held: newHeld(), terms: make(map[handle]Terms), accounts: make(map[handle]*accounting), records: make(map[handle]*charging), formers: make(map[handle]formers), further: make(map[handle]further), ownLinks: make(map[handle]ownLink),
		epoch: now, born: now, now: now, random: rand.New(rand.NewChaCha8(seed)),
		byTID: make(map[gtp.TID]handle), byIMEI: make(map[gtp.TID]handle), byTEID: make(map[uint32]handle), byControl: make(map[uint32]handle), byPeer: make(map[peerTEID]handle), byCharging: make(map[uint32]handle),
		filters: make(map[handle]filters), changes: make(map[handle]change), delegations: make(delegations), delegates: make(map[handle]ratelimit.Bucket), routes: make(map[handle][]Route), byAddress: make(map[addressKey]handle),
		bySequence: make(map[requestKey]handle),
	}
	var err error
	if e.icmpSources, err = ratelimit.NewFair(ratelimit.Limit{}, ratelimit.DefaultBuckets, random); err != nil {
		return nil, err
	}
	e.hashSeed = [2]uint64{e.random.Uint64(), e.random.Uint64()}
	e.chargingID = e.random.Uint32()
	return e, e.apply(s)
}

// RestartCounter returns the value that peers are told.
func (e *Engine) RestartCounter() uint8 { return e.settings.RestartCounter }

// Stats returns the counters.
func (e *Engine) Stats() Stats { return e.stats }

// call is one call of the engine.
type call struct {
	now time.Time
	at  time.Duration // since the epoch
	out *Output

	class uint8 // traffic class of the datagram, if it is about one
}

func (e *Engine) begin(now time.Time, out *Output) call {
	e.at, e.now = now.Sub(e.epoch), now
	return call{now: now, at: e.at, out: out}
}

// seconds is the time as records keep it.
func (c call) seconds() uint32 { return uint32(c.at / time.Second) }

// Reconfigure changes the settings. Contexts stay, also those that have addresses of pools
// that are gone; those of access points that are gone, and of nodes that are peers no more, are
// deleted in good order.
func (e *Engine) Reconfigure(s Settings, now time.Time, out *Output) error {
	if err := s.Check(); err != nil {
		return err
	}
	c := e.begin(now, out)
	e.forgetAll()
	s.RestartCounter = e.settings.RestartCounter
	e.dismissGuests()
	err := e.apply(s)
	e.admitGuests(c)
	if err != nil {
		return err
	}
	e.requalify(c)
	e.rescheduleAll(c)
	return nil
}

// apply takes settings that were checked. Of a pool that cannot be changed it says why, and
// all is as before.
func (e *Engine) apply(s Settings) error {
	if err := e.applyAPNs(&s); err != nil {
		return err
	}
	e.settings = s
	e.own4, e.own6 = 0, [16]byte{}
	if s.Address4.IsValid() {
		e.own4 = number4(s.Address4)
	}
	if s.Address6.IsValid() {
		e.own6 = s.Address6.As16()
	}
	l := &s.Limits
	e.requestLimit = ratelimit.PerSecond(l.Requests, l.Requests/requestBurst)
	e.errorLimit = ratelimit.PerSecond(l.ErrorRate, l.ErrorRate)
	e.icmpLimit = ratelimit.PerSecond(l.ICMPRate, l.ICMPRate)
	e.icmpSources.SetLimit(e.icmpLimit.Part(icmpShare))
	return nil
}

// icmpShare is the part of the ICMP errors that one network, or terminal, may have.
const icmpShare = 4

// requestBurst is the part of a second's requests that may come at once.
const requestBurst = 4

// Sizes returns how full the tables are.
func (e *Engine) Sizes() Sizes {
	s := Sizes{
		Sessions: e.sessions.used(), Contexts: e.contexts.used(), Peers: e.peers.used(),
		Requests: e.requests.used(), Releasing: e.toRelease, Delegated: e.delegations.live(e.at), Former: e.formerSize(), Waiting: len(e.held.byTicket),
	}
	for _, a := range e.apns {
		for i, p := range []*leases{&a.four, &a.six} {
			if p.pool == nil {
				continue
			}
			n := p.pool.Counters()
			s.Pools = append(s.Pools, PoolSize{APN: a.Name, IPv6: i == 1, Used: n.Used, Held: n.Held, Free: n.Free, Leaving: n.Draining})
			for _, n := range p.pool.Parts() {
				s.Parts = append(s.Parts, PoolSize{APN: a.Name, IPv6: i == 1, Part: cmp.Or(n.Name, NoName), Used: n.Used, Held: n.Held, Free: n.Free})
			}
		}
	}
	return s
}
