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
// the other half. So one lease serves for all, until the context ends. What a session was granted
// for delegation (RFC 4818) comes in place of the rest of its lease: a prefix for an association each.

// delegation is what an association of a client has of the prefixes of its context.
type delegation struct {
	prefix netip.Prefix
	client string // its DUID
	iaid   uint32
	until  time.Duration // since the epoch
}

func (d *delegation) isOf(a *link.Association) bool {
	return d.client == string(a.Client) && d.iaid == a.IAID
}

// delegations are those of sessions, of each no two that overlap. Some may be over.
type delegations map[handle][]delegation

// live is how many sessions have some at a time.
func (d delegations) live(at time.Duration) (n int) {
	for _, list := range d {
		if slices.ContainsFunc(list, func(one delegation) bool { return at < one.until }) {
			n++
		}
	}
	return n
}

// find returns the first of a session, at a time, for which f is true; nil: there is none.
func (d delegations) find(h handle, at time.Duration, f func(*delegation) bool) *delegation {
	list := d[h]
	for i := range list {
		if at < list[i].until && f(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// bind adds one to those of a session, in place of what its association had, and of what overlaps with it.
func (d delegations) bind(h handle, one delegation) {
	d[h] = append(slices.DeleteFunc(d[h], func(was delegation) bool {
		return was.prefix.Overlaps(one.prefix) || was.client == one.client && was.iaid == one.iaid
	}), one)
}

// release ends that of a prefix.
func (d delegations) release(h handle, p netip.Prefix) {
	if d[h] = slices.DeleteFunc(d[h], func(was delegation) bool { return was.prefix == p }); len(d[h]) == 0 {
		delete(d, h)
	}
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
		if s := e.sessions.at(h); e.onLink(s, n) || e.isDelegated(h, addr6(n, 0)) {
			return h
		}
	}
	if v.behind.Size6() == 0 {
		return 0
	}
	return e.findBehind(v, addr6(n, 0))
}

// delegated are the prefixes that a session's clients have now, in ascending order.
func (e *Engine) delegated(h handle) (list []netip.Prefix) {
	for _, d := range e.delegations[h] {
		if e.at < d.until {
			list = append(list, d.prefix)
		}
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return list
}

// isDelegated reports whether an address is of one of these.
func (e *Engine) isDelegated(h handle, a netip.Addr) bool {
	return e.delegations.find(h, e.at, func(d *delegation) bool { return d.prefix.Contains(a) }) != nil
}

// delegable are the prefixes that a session's clients may have, one at a time where they are of its lease: by whether
// they know of prefixes that are left out.
func (e *Engine) delegable(h handle, s *session, exclude bool) (list []netip.Prefix) {
	for _, r := range e.routes[h] {
		if r.Delegated {
			list = append(list, r.Prefix)
		}
	}
	a := e.accessPoint(s)
	switch lease := a.lease6(s); {
	case len(list) > 0 || !a.delegates(lease, s):
	case exclude:
		list = append(list, lease)
	default:
		list = append(list, otherHalf(lease))
	}
	return list
}

// delegator delegates prefixes of the session that a context is of, in answer to one message.
type delegator struct {
	e       *Engine
	call    call
	context handle
	given   []delegation // by this message, be it as an offer
	changed bool         // others are delegated than before
}

// Delegate implements [link.Delegations]. Whoever asks gets a prefix: behind a terminal there is one client, and one
// that comes instead has another name.
func (d *delegator) Delegate(step link.Step, to link.Association) (link.Delegated, bool) {
	e, h := d.e, d.e.contexts.at(d.context).session
	s := e.sessions.at(h)
	a := e.accessPoint(s)
	var p netip.Prefix
	if step < link.Extend {
		p = d.choose(h, s, &to)
	} else if has := e.delegations.find(h, e.at, func(one *delegation) bool { return one.isOf(&to) }); has != nil {
		p = has.prefix
	}
	if !p.IsValid() || step == link.Commit && !d.mayCommit(h, p) {
		return link.Delegated{}, false
	}
	made := delegation{p, string(to.Client), to.IAID, e.at + a.DelegationTime}
	switch step {
	case link.Commit, link.Extend:
		e.delegations.bind(h, made)
	case link.Release:
		e.delegations.release(h, p)
		d.changed = true
	}
	d.given = append(d.given, made)
	given := link.Delegated{Prefix: p, Lifetime: a.DelegationTime}
	if own := s.prefixOf(); p.Contains(own.Addr()) {
		given.Excluded = own
	}
	return given, true
}

// choose returns a prefix for an association: what it has, one that no other has, or that of the one which was not
// extended for the longest time; not of those that the same message is about. Not valid: there is none.
func (d *delegator) choose(h handle, s *session, to *link.Association) (best netip.Prefix) {
	soonest := never
	for _, p := range d.e.delegable(h, s, to.Exclude) {
		if slices.ContainsFunc(d.given, func(one delegation) bool { return one.prefix == p || one.iaid == to.IAID }) {
			continue
		}
		until := time.Duration(0)
		if has := d.e.delegations.find(h, d.e.at, func(one *delegation) bool { return one.prefix.Overlaps(p) }); has != nil {
			switch {
			case has.isOf(to):
				return p
			case has.client == string(to.Client) && slices.Contains(to.Beside, has.iaid):
				continue
			}
			until = has.until
		}
		if until < soonest {
			best, soonest = p, until
		}
	}
	return best
}

// mayCommit reports whether a prefix may be delegated now: one message is bounded as a whole.
func (d *delegator) mayCommit(h handle, p netip.Prefix) bool {
	if d.e.delegations.find(h, d.e.at, func(one *delegation) bool { return one.prefix == p }) != nil {
		return true
	}
	if !d.changed && !d.e.mayDelegate(h, d.call) {
		d.e.stats.DelegationsRefused++
		return false
	}
	d.changed = true
	return true
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

// delegates reports whether there is more to delegate in a lease than the link of its session, which is the
// first of it. So it is not of static ones, and may not be of those of earlier settings.
func (a *access) delegates(lease netip.Prefix, s *session) bool {
	return a.Delegate > 0 && lease.Bits() < prefixBits && prefix6(lease.Addr()) == s.prefix
}

// otherHalf is the half of a prefix in which its first /64 is not.
func otherHalf(p netip.Prefix) netip.Prefix {
	n := prefix6(p.Addr()) | 1<<(prefixBits-p.Bits()-1)
	return netip.PrefixFrom(addr6(n, 0), p.Bits()+1)
}

// storedDelegation is followed by the octets of its client.
type storedDelegation struct {
	IAID   uint32
	Until  int64
	Prefix storedPrefix
	Client uint8
}

func (e *Engine) appendDelegations(b []byte, h handle) []byte {
	for _, d := range e.delegations[h] {
		b = appendRecord(b, &storedDelegation{d.iaid, int64(d.until), stored(d.prefix), uint8(len(d.client))})
		b = append(b, d.client...)
	}
	return b
}

// readDelegations reads those of a session; false if they cannot be read.
func (r *resuming) readDelegations(n uint16) (list []delegation, ok bool) {
	for range n {
		var in storedDelegation
		if !r.record(&in) {
			return nil, false
		}
		client := make([]byte, in.Client)
		if _, err := io.ReadFull(r.in, client); err != nil {
			return nil, false
		}
		list = append(list, delegation{in.Prefix.prefix(), string(client), in.IAID, time.Duration(in.Until)})
	}
	return list, true
}

// adoptDelegations takes over those of a session, when it has its routes. One of a prefix that it has no more is
// passed over: its client asks again.
func (r *resuming) adoptDelegations(h handle, s *session, list []delegation) {
	for _, d := range list {
		if s.has.has(TypeIPv6) && (slices.Contains(r.delegable(h, s, true), d.prefix) || slices.Contains(r.delegable(h, s, false), d.prefix)) {
			r.delegations.bind(h, d)
		}
	}
}
