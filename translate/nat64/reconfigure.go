// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// start sets the engine up with its first settings. What an earlier engine left in the
// table goes on.
func (e *Engine) start(s Settings, random io.Reader) (err error) {
	if e.errors, err = newErrorLimits(&s.Errors, e.table.Sizes().SubscriberLength, random); err != nil {
		return err
	}
	e.aliases, e.callers = newAliases(0), newAliases(firstCaller)
	e.peers = newPeers(e.table.Sizes().Sessions, e.random.Uint64())
	e.table.WalkSessions(0, math.MaxInt32, func(s *state.Session) { e.peers.add(s.Pool, s.Peer) })
	if s.Deterministic != nil {
		e.adoptLog()
	}
	return e.apply(s)
}

// Reconfigure takes other settings. It fails, and changes nothing, if something is wrong
// with them. Sessions go on as they are: also those of clients, prefixes and addresses that
// are no longer named, which make no new ones. What waits for fragments or a SYN is lost if
// its limits change.
func (e *Engine) Reconfigure(s Settings) error { return e.apply(s) }

func (e *Engine) apply(s Settings) error {
	if err := s.Check(); err != nil {
		return err
	}
	if s.Deterministic != nil {
		if err := s.Deterministic.checkBlocks(e.blockPorts()); err != nil {
			return err
		}
	}
	translator, err := translate.New(s.Translate)
	if err != nil {
		return err
	}
	prefixes, err := e.place(s.Translate.Prefixes)
	if err != nil {
		return err
	}
	addresses, err := poolAddresses(s.Pool4)
	if err != nil {
		return err
	}
	if err := e.table.SetPool(addresses); err != nil {
		return err
	}
	e.takeOver(s, translator, prefixes, addresses)
	return nil
}

// takeOver puts checked settings into force.
func (e *Engine) takeOver(s Settings, translator *translate.Translator, prefixes []slot6, addresses []state.PoolAddress) {
	before := e.settings
	e.settings, e.translator, e.prefixes = s, translator, prefixes
	e.pool.set(addresses, e.settings.Pool4)
	e.know()
	e.exhausted = [state.Transports]time.Duration{}
	e.clients = clients{slices.Clone(s.Clients)}
	e.lifetimes = s.Lifetimes()
	e.indexPeers()
	e.errors.set(&s.Errors)
	if before.Limits != s.Limits || before.Timers.Fragments != s.Timers.Fragments || before.Timers.IncomingSYN != s.Timers.IncomingSYN {
		e.resize(&s)
	}
	if before.DetourPrefix != s.DetourPrefix {
		e.aliases, e.callers = newAliases(0), newAliases(firstCaller)
	}
	e.table.WalkSubscribers(0, math.MaxInt32, func(sub *state.Subscriber) {
		e.table.SetSessionLimit(sub, uint32(s.Limits.ClientSessions))
		e.guard(sub)
	})
}

// indexPeers has the index of hosts that filters ask, as long as there are filters.
func (e *Engine) indexPeers() {
	s := &e.settings
	switch filters := s.FilterTCP == AddressDependent || s.FilterUDP == AddressDependent || s.FilterICMP == AddressDependent; {
	case !filters:
		e.met = peerIndex{}
	case e.met.buckets == nil:
		e.met = newPeerIndex(e.table.Sizes().Sessions, e.random.Uint64())
		e.table.WalkSessions(0, math.MaxInt32, func(one *state.Session) { e.met.add(e.table, one, one.Word.Stamp()) })
	}
}

// resize makes the tables of what waits again.
func (e *Engine) resize(s *Settings) {
	for len(e.stored.index) > 0 {
		key := e.stored.slots[e.stored.all.oldest].key
		e.stats.Dropped[StoredSYNReplaced]++
		e.unstore(&key)
	}
	length := e.table.Sizes().SubscriberLength
	e.stored = newStored(&s.Limits, length)
	e.fragments6 = newAssemblies(&s.Limits, s.Timers.Fragments, length, &e.stats)
	e.fragments4 = newAssemblies(&s.Limits, s.Timers.Fragments, length, &e.stats)
}

// place gives the prefixes of pool6 their numbers, which sessions have: that of before, or a
// new one. Taken out ones keep theirs, until no session has it any more and another needs it,
// or all behind it have gone.
func (e *Engine) place(wanted []translate.Prefix) ([]slot6, error) {
	slots := slices.Clone(e.prefixes)
	for i := range slots {
		slots[i].out, slots[i].gone = true, false
	}
	numberOf := func(p translate.Prefix) int {
		return slices.IndexFunc(slots, func(s slot6) bool { return s.prefix.Prefix() == p.Prefix() })
	}
	var fresh []translate.Prefix
	for _, p := range wanted {
		if i := numberOf(p); i >= 0 {
			slots[i].out = false
		} else {
			fresh = append(fresh, p)
		}
	}
	slots, unused := e.release(slots)
	for _, p := range fresh {
		switch {
		case numberOf(p) >= 0: // named twice
		case len(slots) < MaxPrefixes:
			slots = append(slots, slot6{prefix: p})
		case len(unused) > 0:
			slots[unused[0]] = slot6{prefix: p}
			unused = unused[1:]
		default:
			return nil, fmt.Errorf("pool6 has no number left for %s: sessions still use %d prefixes, with those that were taken out; wait until they have ended", p.Prefix(), MaxPrefixes)
		}
	}
	return slots, nil
}

// release marks prefixes that no session has any more as gone, and leaves out the last ones.
// unused are the numbers of others that may be another's: those that were taken out before,
// so that no one makes sessions of theirs.
func (e *Engine) release(slots []slot6) (left []slot6, unused []int) {
	if !slices.ContainsFunc(slots, func(s slot6) bool { return s.out }) {
		return slots, nil
	}
	var used [MaxPrefixes]bool
	e.table.WalkSessions(0, math.MaxInt32, func(s *state.Session) {
		if int(s.Prefix) < len(used) {
			used[s.Prefix] = true
		}
	})
	for i := range slots {
		slots[i].gone = slots[i].out && !used[i]
	}
	for n := len(slots) - 1; n >= 0 && slots[n].gone && e.prefixes[n].out; n-- {
		slots = slots[:n]
	}
	for i, s := range slots {
		if s.gone && e.prefixes[i].out {
			unused = append(unused, i)
		}
	}
	return slots, unused
}

// Prefixes returns pool6 as sessions number it. current is false for those that were taken
// out and serve old sessions alone.
func (e *Engine) Prefixes() (prefixes []translate.Prefix, current []bool) {
	for _, s := range e.prefixes {
		prefixes, current = append(prefixes, s.prefix), append(current, !s.out)
	}
	return prefixes, current
}
