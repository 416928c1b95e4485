// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Settings of an [Engine]. [Defaults] fills what has a usual value.
type Settings struct {
	// Address4 and Address6 are where SGSNs reach this node, on both planes; one of them
	// may be missing.
	Address4, Address6 netip.Addr
	// Peers are the nodes that may speak to it; there must be some.
	Peers []netip.Prefix
	// NoNodes are addresses that no other node has: those of this host, and those of its links
	// that are for broadcast. A request names none of them, unless it comes from there.
	NoNodes []netip.Addr
	// ReversedTID are nodes that write the octets of a TID in reverse order, as OpenGGSN
	// and its descendants do; the others write them as TS 09.60 section 12 has them.
	ReversedTID []netip.Prefix

	// T3Response is how long an answer is waited for, N3Requests how often a request is
	// sent (TS 29.060 section 7.6).
	T3Response time.Duration
	N3Requests int
	// EchoInterval is the time between two Echo Requests on a path; 0: none are sent. It is
	// a minute at least (TS 29.060 section 7.2.1).
	EchoInterval time.Duration
	// RestartCounter goes up whenever contexts were lost (TS 29.060 section 7.7.11).
	RestartCounter uint8
	// PathHold is how long the contexts of a node that no longer answers are kept; after it
	// they are released. Negative: they are kept.
	PathHold time.Duration

	// UUID tells this node's DHCPv6 from others, also after a restart.
	UUID [16]byte

	// APNs that may be asked for. Default is the name of the one that serves names that no
	// other has; empty: such requests are refused.
	APNs    []APN
	Default string

	// Records has [Output] tell of the charging records of sessions that have an account.
	Records bool

	// Subscribers are those who may have contexts, and the addresses that are theirs alone; nil: everybody
	// may, everywhere. What is changed here counts for contexts to come. [Settings.CheckSubscribers] checks them.
	Subscribers *Subscribers

	Limits Limits
}

// Limits bound the tables of an engine, and what one node may ask of it.
type Limits struct {
	Contexts        int // of all nodes
	Waiting         int // Create Requests that wait to be authorized
	ContextsPerPeer int // of one that asks for them; 0: as many as there are
	Peers           int // nodes that are remembered
	Requests        int // of one node in a second
	ErrorRate       int // Error Indications, and notifications of extension headers, for one node in a second
	ICMPRate        int // ICMP errors in a second; one IPv4 /24 or IPv6 /64 has a quarter of them
}

// Defaults returns the settings with what has a usual value.
func Defaults() Settings {
	return Settings{
		T3Response: 5 * time.Second, N3Requests: 3, EchoInterval: time.Minute, PathHold: 5 * time.Minute,
		Limits: Limits{Contexts: 100_000, Waiting: 10_000, Peers: 1024, Requests: 50_000, ErrorRate: 10, ICMPRate: 1000},
	}
}

const (
	minEcho = time.Minute
	maxAPNs = 1 << 12
)

// Check returns what is wrong with the settings, but for subscribers.
func (s *Settings) Check() error {
	if err := s.checkAddresses(); err != nil {
		return err
	}
	switch {
	case s.T3Response <= 0 || s.N3Requests < 1:
		return errors.New("a request needs a time to wait for its answer, and is sent once at least")
	case s.EchoInterval != 0 && s.EchoInterval < minEcho:
		return fmt.Errorf("an echo interval of %s is too short: set %s or more, or 0 for none", s.EchoInterval, minEcho)
	case s.Limits.Contexts < 1 || s.Limits.Peers < 1:
		return errors.New("no room for a context: set the limits of contexts and peers to 1 or more")
	case s.Limits.Contexts > maxContexts:
		return fmt.Errorf("%d contexts are too many: set %d or fewer", s.Limits.Contexts, maxContexts)
	}
	return s.checkAPNs()
}

func (s *Settings) checkAddresses() error {
	switch {
	case !s.Address4.IsValid() && !s.Address6.IsValid():
		return errors.New("the node has no address: give it one that SGSNs reach")
	case s.Address4.IsValid() && (!s.Address4.Is4() || !unicast(s.Address4)):
		return fmt.Errorf("%s cannot be the node's IPv4 address", s.Address4)
	case s.Address6.IsValid() && (!s.Address6.Is6() || s.Address6.Is4In6() || !unicast(s.Address6)):
		return fmt.Errorf("%s cannot be the node's IPv6 address", s.Address6)
	case len(s.Peers) == 0:
		return errors.New("no one may speak to the node: name the SGSNs that may in peers")
	}
	return nil
}

// unicast reports whether a node may have the address.
func unicast(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func (s *Settings) checkAPNs() error {
	if len(s.APNs) == 0 || len(s.APNs) > maxAPNs {
		return fmt.Errorf("%d access points: there must be 1 to %d", len(s.APNs), maxAPNs)
	}
	known := s.Default == ""
	for i := range s.APNs {
		a := &s.APNs[i]
		if err := a.check(); err != nil {
			return fmt.Errorf("access point %s: %w", a.Name, err)
		}
		known = known || a.key() == nameKey(s.Default)
		if slices.ContainsFunc(s.APNs[:i], func(b APN) bool { return b.key() == a.key() }) {
			return fmt.Errorf("access point %s is there twice", a.Name)
		}
	}
	if !known {
		return fmt.Errorf("the default access point %s is none of those that are there", s.Default)
	}
	return checkOverlap(s.APNs)
}

// checkOverlap refuses addresses that are in two pools of one network.
func checkOverlap(apns []APN) error {
	for i := range apns {
		own := apns[i].pools()
		for k, p := range own {
			if at := slices.IndexFunc(own[:k], p.Overlaps); at >= 0 {
				return fmt.Errorf("access point %s has addresses twice: in %s and %s", apns[i].Name, own[at], p)
			}
		}
		for j := range apns[:i] {
			a, b := &apns[i], &apns[j]
			if a.VRF != b.VRF {
				continue
			}
			for _, p := range a.pools() {
				for _, q := range b.pools() {
					if p.Overlaps(q) {
						return fmt.Errorf("access points %s and %s share addresses: %s and %s", b.Name, a.Name, q, p)
					}
				}
			}
		}
	}
	return nil
}
