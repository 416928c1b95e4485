// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
)

// A context of an access point that delegates has one prefix in which the /64 of its link is
// (RFC 6459 section 5.3, TS 23.060 section 9.2.1.1). A client of DHCPv6 behind the terminal is
// delegated all of it but that /64 (RFC 6603), or if it does not know how to leave that out,
// the other half. So one lease serves for all, until the context ends.

// delegation is what a client has of the prefix of its context.
type delegation struct {
	prefix netip.Prefix
	client string // its DUID
	iaid   uint32
	until  time.Duration // since the epoch
}

type delegations map[handle]delegation

// live is how many there are at a time.
func (d delegations) live(at time.Duration) (n int) {
	for _, one := range d {
		if at < one.until {
			n++
		}
	}
	return n
}

// Bounds of delegated prefixes: they hold more than the link, and each of its halves a /64.
const (
	minDelegate       = 32
	maxDelegate       = 63
	minDelegationTime = time.Minute
)

func (a *APN) checkDelegation() error {
	switch {
	case a.Delegate == 0:
		return nil
	case a.Delegate < minDelegate || a.Delegate > maxDelegate:
		return fmt.Errorf("prefixes of %d bits cannot be delegated: it is %d to %d", a.Delegate, minDelegate, maxDelegate)
	case a.DelegationTime < minDelegationTime:
		return fmt.Errorf("prefixes are delegated for %s or more", minDelegationTime)
	case !a.DHCP:
		return errors.New("prefixes are delegated by DHCPv6, which it does not serve")
	case len(a.Pools6) == 0:
		return errors.New("it has no pool of IPv6 prefixes to delegate")
	}
	return nil
}

// checkLengths refuses settings by which somebody else could get a part of a prefix that a
// context has: a pool knows of leases of its own length alone.
func (e *Engine) checkLengths(s *Settings) error {
	for i := range s.APNs {
		to := &s.APNs[i]
		for of, bits := range to.leaseBits() {
			for _, p := range to.ranges()[of] {
				if e.usesOther(to.VRF, p, bits) {
					return fmt.Errorf("access point %s would give prefixes of another length of %s, of which contexts still have some: restart the node, or take the pool away until they have ended", to.Name, p)
				}
			}
		}
	}
	for _, a := range e.apns {
		at := slices.IndexFunc(s.APNs, func(b APN) bool { return b.key() == a.key() && b.VRF == a.VRF })
		if at >= 0 && a.six.pool != nil && a.six.bits != s.APNs[at].leaseBits()[1] {
			return fmt.Errorf("the prefixes of access point %s change their length at a start alone", a.Name)
		}
	}
	return nil
}

// usesOther reports whether contexts of a network have leases of another length of a prefix.
func (e *Engine) usesOther(vrf uint8, of netip.Prefix, bits int) bool {
	for _, a := range e.apns {
		for _, l := range a.all() {
			if a.VRF == vrf && l.pool != nil && l.bits != bits && l.pool.Uses(of) {
				return true
			}
		}
	}
	return false
}

// otherLength reports whether a prefix is of leases that are named and have another length.
func (e *Engine) otherLength(vrf uint8, p netip.Prefix, than *leases) bool {
	for _, a := range e.apns {
		for _, l := range a.all() {
			if a.VRF == vrf && !a.gone && l.bits != than.bits && slices.ContainsFunc(l.named, p.Overlaps) {
				return true
			}
		}
	}
	return false
}

// setDelegate collects the lengths of prefixes in a network, those of contexts of access points
// that are gone included.
func (v *vrf) setDelegate(apns []*access, number uint8) {
	v.delegate = nil
	for _, a := range apns {
		if n := a.six.bits; a.VRF == number && n > 0 && n < prefixBits && !slices.Contains(v.delegate, n) {
			v.delegate = append(v.delegate, n)
		}
	}
	slices.Sort(v.delegate)
	slices.Reverse(v.delegate)
}

// find6 returns the session that has an address, given its upper half, by the longest prefix:
// one of those of a link, one that is delegated, or one behind it.
func (e *Engine) find6(v *vrf, n uint64) handle {
	if h := v.by6[n]; h != 0 {
		return h
	}
	for _, bits := range v.delegate {
		base := n &^ (1<<(prefixBits-bits) - 1) // where the link of the session is
		h := v.by6[base]
		if h == 0 {
			continue
		}
		if s := e.sessions.at(h); e.onLink(s, n) || e.delegated(h, e.at).Contains(addr6(n, 0)) {
			return h
		}
	}
	if v.behind.Size6() == 0 {
		return 0
	}
	return e.findBehind(v, addr6(n, 0))
}

// delegated is what a session's client has at a time; not valid: nothing.
func (e *Engine) delegated(h handle, at time.Duration) netip.Prefix {
	if d, ok := e.delegations[h]; ok && at < d.until {
		return d.prefix
	}
	return netip.Prefix{}
}

// delegator delegates the prefix of the session that a context is of.
type delegator struct {
	e       *Engine
	call    call
	context handle
}

// Delegate implements [link.Delegations]. Whoever asks gets it: behind a terminal there is one
// client, and one that comes instead has another name. What the session was granted for that comes in
// place of the rest of its lease.
func (d *delegator) Delegate(step link.Step, to link.Association) (link.Delegated, bool) {
	e := d.e
	h := e.contexts.at(d.context).session
	s := e.sessions.at(h)
	a := e.accessPoint(s)
	lease, own := a.lease6(s), e.delegable(h)
	if !own.IsValid() && !delegates(lease, s) {
		return link.Delegated{}, false
	}
	was, bound := e.delegations[h]
	bound = bound && was.client == string(to.Client) && was.iaid == to.IAID && d.call.at < was.until
	if step >= link.Extend && !bound {
		return link.Delegated{}, false
	}
	given := link.Delegated{Prefix: lease, Excluded: s.prefixOf(), Lifetime: a.DelegationTime}
	switch {
	case own.IsValid():
		given.Prefix, given.Excluded = own, netip.Prefix{}
	case step >= link.Extend && was.prefix != lease, step < link.Extend && !to.Exclude:
		given.Prefix, given.Excluded = otherHalf(lease), netip.Prefix{}
	}
	before := e.delegated(h, d.call.at)
	if step == link.Commit && before != given.Prefix && !e.mayDelegate(h, d.call) {
		e.stats.DelegationsRefused++
		return link.Delegated{}, false
	}
	switch step {
	case link.Commit, link.Extend:
		e.delegations[h] = delegation{given.Prefix, string(to.Client), to.IAID, d.call.at + a.DelegationTime}
	case link.Release:
		delete(e.delegations, h)
	}
	if e.delegated(h, d.call.at) != before {
		e.tell(d.call, ContextUpdated, d.context, 0)
	}
	return given, true
}

// delegationLimit bounds how often a terminal's clients get what was not theirs: accounts are told of it each
// time. None needs it so often, for who has asked in vain waits longer each time (RFC 8415 section 15).
var delegationLimit = ratelimit.Every(10*time.Second, delegationBurst)

const delegationBurst = 10

func (e *Engine) mayDelegate(h handle, c call) bool {
	b := e.delegates[h]
	ok := b.Allow(delegationLimit, c.now)
	e.delegates[h] = b
	return ok
}

// delegates reports whether there is more in a lease than the link of its session, which is the
// first of it. So it is not of static ones, and may not be of those of earlier settings.
func delegates(lease netip.Prefix, s *session) bool {
	return lease.Bits() < prefixBits && prefix6(lease.Addr()) == s.prefix
}

// otherHalf is the half of a prefix in which its first /64 is not.
func otherHalf(p netip.Prefix) netip.Prefix {
	n := prefix6(p.Addr()) | 1<<(prefixBits-p.Bits()-1)
	return netip.PrefixFrom(addr6(n, 0), p.Bits()+1)
}

// storedDelegation is followed by the octets of its client.
type storedDelegation struct {
	Of     [8]byte // the TID of the session
	IMEI   bool
	IAID   uint32
	Until  int64
	Prefix storedPrefix
	Client uint8
}

func (e *Engine) appendDelegations(b []byte, h *storedHeader) []byte {
	for n := handle(1); n <= e.sessions.last; n++ {
		if d, ok := e.delegations[n]; ok {
			s := e.sessions.at(n)
			h.Delegations++
			b = appendRecord(b, &storedDelegation{s.tid, s.marked(markIMEI), d.iaid, int64(d.until), stored(d.prefix), uint8(len(d.client))})
			b = append(b, d.client...)
		}
	}
	return b
}

// delegation reads one; false if it cannot be read. One of a session that is not there, or has
// another prefix now, is passed over: its client asks again.
func (r *resuming) delegation() bool {
	var in storedDelegation
	if !r.record(&in) {
		return false
	}
	client := make([]byte, in.Client)
	if _, err := io.ReadFull(r.in, client); err != nil {
		return false
	}
	var m marks
	if in.IMEI {
		m = markIMEI
	}
	x := r.contextsOf(m)[in.Of]
	if x == 0 {
		return true
	}
	h := r.contexts.at(x).session
	s, p := r.sessions.at(h), in.Prefix.prefix()
	if lease, own := r.accessPoint(s).lease6(s), r.delegable(h); s.has.has(TypeIPv6) && (own.IsValid() && p == own || !own.IsValid() && delegates(lease, s) && (p == lease || p == otherHalf(lease))) {
		r.delegations[h] = delegation{p, string(client), in.IAID, time.Duration(in.Until)}
	}
	return true
}
