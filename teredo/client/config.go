// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
)

// Specification constants.
const (
	// DefaultTimeout is T, the wait for one advertisement (RFC 4380 section 5.2.1).
	DefaultTimeout = 4 * time.Second
	// DefaultAttempts is N, the solicitations sent in all before a server counts
	// as silent (RFC 4380 section 5.2.1).
	DefaultAttempts = 3
	// DefaultRefresh is the Teredo refresh interval (RFC 4380 section 5.2).
	DefaultRefresh = 30 * time.Second

	peerLifetime   = 30 * time.Second  // since the last reception (RFC 4380 section 5.2.4)
	retryInterval  = 2 * time.Second   // of echo tests and bubbles (RFC 4380 section 5.2.4)
	maxAttempts    = 4                 // one and three repeats (RFC 4380 section 5.2.4)
	bubbleInterval = 2 * time.Second   // least time between attempts (RFC 4380 section 5.2.6)
	bubbleWindow   = 300 * time.Second // holds at most maxAttempts (RFC 4380 section 5.2.6)
)

// Implementation constants.
const (
	firstBackoff = time.Second // off-line wait; doubles
	lastBackoff  = time.Minute

	// Between two rounds of questions to a secondary address that does not answer.
	firstComparison = 30 * time.Second // doubles
	lastComparison  = 10 * time.Minute

	// establishedFor is how long a peer counts as contacted since the host last
	// sent to it: what a NAT or firewall must grant an idle TCP connection (RFC
	// 5382 REQ-5, RFC 6092 REC-35), since a shorter time would cut such
	// connections, and a peer is not a flow.
	establishedFor = 2*time.Hour + 4*time.Minute

	sweepInterval = 30 * time.Second // between sweeps of stale entries

	// answerPause is the least time between indirect answers to one peer: more
	// than a round trip, so that two clients do not answer each other without
	// end, and less than the peer's retry interval, so that each retry is
	// answered.
	answerPause = time.Second

	// maxAnswers is how many indirect answers go to one peer within bubbleWindow
	// without a direct response: twice what the peer may ask for in it, since a
	// peer that was restarted asks again.
	maxAnswers = 2 * maxAttempts

	// These keep a flood of bubbles from making us a source of noise. The limit
	// per network, an IPv4 /24 of which one address has 20 at once, holds for new
	// peers that speak first too; more on them is in strangers.go.
	answersPerPeer, answersPerPeerBurst       = 2, 8
	answersPerNetwork, answersPerNetworkBurst = 10, 39
	answersInAll, answersInAllBurst           = 200, 400
	errorsPerSecond, errorsBurst              = 100, 100

	limiterBuckets = 4096
)

// legacyPrefix was used before 2001::/32 was assigned; some old servers announce
// it still.
var legacyPrefix = netip.MustParsePrefix("3ffe:831f::/32")

// Server is a Teredo server by its IPv4 addresses.
type Server struct {
	Primary netip.Addr
	// Secondary is asked only to tell what NAT we are behind. Not valid: no one
	// is asked and the kind of NAT stays unknown.
	Secondary netip.Addr
}

// Policy says which inbound packets of peers reach the host.
type Policy uint8

const (
	// Allow delivers packets of any peer.
	Allow Policy = iota
	// Established delivers packets of peers only to which the host has sent a
	// packet within the last two hours and four minutes, and ICMPv6 errors about
	// such packets. Bubbles of other clients are not answered.
	Established
)

// Config of a [Client]. Zero values mean the defaults.
type Config struct {
	// Rand is a cryptographic source of randomness, read once, by New.
	Rand io.Reader
	// Prefixes are the /32 service prefixes that a server may announce and in
	// which other clients have their addresses; default 2001::/32.
	Prefixes []netip.Prefix
	// LegacyPrefix takes an advertisement of 3ffe:831f::/32 as one of 2001::/32.
	LegacyPrefix bool
	// Timeout, Attempts and Refresh are T, N and the refresh interval.
	Timeout  time.Duration
	Attempts int
	Refresh  time.Duration
	// Credential is for secure qualification (RFC 4380 section 5.2.2); an empty
	// identifier is none.
	Credential teredo.Credential
	// RefreshSearch finds the longest interval that the NAT allows, up to 120 s (RFC
	// 4380 section 5.2.7).
	RefreshSearch bool
	// LocalDiscovery looks for other clients on the same link (RFC 4380 section
	// 5.2.8). What the discovery address receives goes to HandleDiscovery.
	LocalDiscovery bool
	// Standby keeps the client qualified while the host has native IPv6, for those who bind to its
	// address; without it the client is dormant then (RFC 4380 section 5.5).
	Standby bool
	// Fallback is a relay that carries packets between clients, for peers that no
	// direct way leads to; not valid: there is none.
	Fallback netip.AddrPort
	// Probe is how long the host may send without anything coming back before the
	// server is asked whether the mapping has changed. With it the client also
	// ranks its servers and leaves a silent one early. 0: only the refresh looks.
	Probe time.Duration
	// Inbound is the policy for unsolicited packets.
	Inbound Policy
	// AllowPrivate opens IPv4 ranges that the global unicast check refuses.
	AllowPrivate []netip.Prefix
	// MaxPeers bounds the list of recent peers, default 65536; at most a quarter
	// of it holds peers that are not trusted.
	MaxPeers int
	// FastPeers bounds the peers whose data may take a fast path at once; 0 is no
	// such path. See [Client.FastChanges].
	FastPeers int
	// QueuePackets, QueueBytes and QueueTotalBytes bound what waits for one peer
	// and for all; defaults 16, 20480 and 1 MiB.
	QueuePackets, QueueBytes, QueueTotalBytes int

	// RandomPorts bounds the sockets beside the service port by which peers are
	// reached from behind a symmetric NAT (RFC 6081 sections 5.4 and 5.5);
	// default [DefaultRandomPorts], less than 0 is none.
	RandomPorts int
	// NoHairpin keeps our local address out of indirect bubbles and ignores that
	// of others (RFC 6081 section 5.6).
	NoHairpin bool
	// Alternates are ranges of alternate addresses that get a bubble although
	// their client does not share our public address.
	Alternates []netip.Prefix
	// NoLoadReduction looks for a silent peer by its server at once (RFC 6081
	// section 5.7).
	NoLoadReduction bool
	// OpeningTTL is the outer time to live of a direct bubble that only has to
	// open our own NAT: more than our NATs are away, less than the peer's. 0 is
	// that of other packets.
	OpeningTTL uint8
}

// check fills in the defaults and refuses what cannot work.
func (c *Config) check() error {
	if c.Rand == nil {
		return errors.New("the client needs a source of randomness")
	}
	if len(c.Prefixes) == 0 {
		c.Prefixes = []netip.Prefix{teredo.Prefix}
	}
	for _, p := range c.Prefixes {
		if !p.Addr().Is6() || p.Bits() != 32 {
			return fmt.Errorf("service prefix %s is not an IPv6 prefix of 32 bits", p)
		}
	}
	if c.Credential.ID != "" {
		if err := c.Credential.Check(); err != nil {
			return err
		}
	}
	defaultTo(&c.Timeout, DefaultTimeout)
	defaultTo(&c.Attempts, DefaultAttempts)
	defaultTo(&c.Refresh, DefaultRefresh)
	if c.Probe > 0 {
		c.Probe = max(c.Probe, leastProbe)
	}
	defaultTo(&c.MaxPeers, 1<<16)
	defaultTo(&c.QueuePackets, 16)
	defaultTo(&c.QueueBytes, 16*teredo.MTU)
	defaultTo(&c.QueueTotalBytes, 1<<20)
	if c.RandomPorts == 0 {
		c.RandomPorts = DefaultRandomPorts
	}
	return nil
}

func defaultTo[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}
