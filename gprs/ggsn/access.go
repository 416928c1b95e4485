// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"errors"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/gprs/pool"
)

// maxNumbers is how many access points can be told apart, those that are gone included.
const maxNumbers = 1 << 16

// access is an access point with its leases. Its number does not change, also when the
// settings no longer have it.
type access struct {
	APN
	gone                      bool
	router                    *link.Router // of the links that its contexts with IPv6 are
	said                      link.Settings
	anew                      bool // it says something else than before
	disputed                  bool // some of its addresses are those of another network as well that is not apart
	four, six, fixed4, fixed6 leases
	leftRouted                []netip.Prefix // that were among Routed before, and have routes of terminals in them
}

// vrf is a network behind the node: who has which address there.
type vrf struct {
	by4 map[uint32]handle // sessions
	by6 map[uint64]handle // by the upper half of their addresses

	delegate []int                       // lengths of prefixes that are delegated, the longest first
	guests   map[netip.Prefix]*pool.Pool // where leases are that their sessions have of another pool
	behind   behind

	inside4, inside6 inside
	beside           []*vrf // the other ones that the host forwards to from this one
	speaker          speaker
}

// leases are those of some pools of one access point and family. Those that contexts have
// stay when the settings have no pool any more.
type leases struct {
	pool  *pool.Pool
	bits  int            // the length of each
	named []netip.Prefix // the pools of the settings; of an access point that is gone the last
	left  []netip.Prefix // that were named before; contexts may have addresses of them
}

// all are the leases of an access point.
func (a *access) all() [4]*leases { return [4]*leases{&a.four, &a.six, &a.fixed4, &a.fixed6} }

// leaseBits are the lengths of an access point's leases, in the order of [access.all].
func (a *APN) leaseBits() [4]int {
	six := prefixBits - bits.TrailingZeros(uint(max(a.LinkPrefixes, 1)))
	if a.Delegate > 0 {
		six = a.Delegate
	}
	return [4]int{32, six, 32, prefixBits}
}

// leaseSettings are what the pool of some ranges leases: addresses of IPv4, or prefixes for
// links, but none of the node's own.
func (a *APN) leaseSettings(of int, prefixes []netip.Prefix) pool.Settings {
	s := pool.Settings{Length: a.leaseBits()[of], Hold: a.Hold}
	for _, p := range prefixes {
		s.Ranges = append(s.Ranges, pool.PrefixRange(p))
	}
	for _, part := range a.Named {
		if slices.ContainsFunc(prefixes, part.Prefix.Overlaps) {
			s.Parts = append(s.Parts, part)
		}
	}
	for _, router := range []netip.Addr{a.Router4, a.Router6} {
		if router.IsValid() {
			s.Except = append(s.Except, netip.PrefixFrom(router, router.BitLen()))
		}
	}
	return s
}

// resize gives the leases other ranges.
func (l *leases) resize(s pool.Settings, prefixes []netip.Prefix, random uint64) (err error) {
	l.left, l.named = l.leaving(prefixes), prefixes
	if len(prefixes) == 0 {
		return nil
	}
	l.bits = s.Length
	if l.pool != nil {
		return l.pool.Resize(s)
	}
	l.pool, err = pool.New(s, random)
	return err
}

// applyAPNs takes over the access points of settings that were checked: of an error nothing
// is left, since none comes once the first pool has changed.
func (e *Engine) applyAPNs(s *Settings) error {
	next := append([]*access(nil), e.apns...)
	numbers := make([]int, len(s.APNs))
	for i := range s.APNs {
		numbers[i] = slices.IndexFunc(e.apns, func(a *access) bool { return a.key() == s.APNs[i].key() && a.VRF == s.APNs[i].VRF })
		if numbers[i] < 0 {
			numbers[i] = len(next)
			next = append(next, &access{})
		}
	}
	if len(next) > maxNumbers {
		return errors.New("so many access points have come and gone that there is no number for one more: restart the node")
	}
	if err := e.checkLengths(s); err != nil {
		return err
	}
	if err := e.checkBehind(s); err != nil {
		return err
	}
	names := make(map[string]uint16, len(s.APNs))
	for i, n := range numbers {
		changed := *next[n]
		if err := e.change(&changed, &s.APNs[i], s.UUID); err != nil {
			return err
		}
		next[n] = &changed
		names[changed.key()] = uint16(n)
	}
	for _, a := range next {
		n, ok := names[a.key()]
		a.gone = !ok || next[n] != a
		for int(a.VRF) >= len(e.vrfs) {
			e.vrfs = append(e.vrfs, &vrf{by4: make(map[uint32]handle), by6: make(map[uint64]handle)})
		}
	}
	for i, v := range e.vrfs {
		v.setInside(next, uint8(i))
		v.setDelegate(next, uint8(i))
	}
	setBeside(e.vrfs, next)
	e.apns, e.byName, e.anyName = next, names, -1
	e.setDisputed()
	if s.Default != "" {
		e.anyName = int(names[nameKey(s.Default)])
	}
	return nil
}

// change gives an access point other settings.
func (e *Engine) change(a *access, to *APN, uuid [16]byte) (err error) {
	if int(to.VRF) < len(e.vrfs) {
		a.setRouted(e.vrfs[to.VRF], to.Routed)
	}
	a.APN = *to
	says := to.linkSettings(uuid)
	says.Delegate = says.Delegate || len(a.leftRouted) > 0
	says.Replace(&a.said)
	a.anew, a.said = a.router != nil && !says.Same(&a.said), says
	if a.router, err = link.New(says); err != nil {
		return err
	}
	for i, prefixes := range to.ranges() {
		if err = a.all()[i].resize(to.leaseSettings(i, prefixes), prefixes, e.random.Uint64()); err != nil {
			return err
		}
	}
	return nil
}

// accessOf returns the access point that a request names; ok is false if there is none. A
// name may have the operator's behind it (TS 23.003 section 9.1.2).
func (e *Engine) accessOf(name gtp.APN) (n uint16, ok bool) {
	var room [100]byte
	key := name.AppendKey(room[:0])
	if n, ok = e.byName[string(key)]; ok {
		return n, true
	}
	if bytes.HasSuffix(key, []byte(".gprs")) {
		if i := bytes.LastIndex(key, []byte(".mnc")); i > 0 {
			if n, ok = e.byName[string(key[:i])]; ok {
				return n, true
			}
		}
	}
	if e.anyName >= 0 && len(key) > 0 {
		return uint16(e.anyName), true
	}
	return 0, false
}

func (e *Engine) accessPoint(s *session) *access { return e.apns[s.apn] }

func (e *Engine) vrfOf(s *session) *vrf { return e.vrfs[e.apns[s.apn].VRF] }
