// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
)

// Specification defaults.
const (
	refreshInterval       = 30 * time.Second // RFC 4380, section 5.2: 30 s unless configured
	qualificationTimeout  = 4 * time.Second  // RFC 4380, section 5.2.1: T
	qualificationAttempts = 3                // RFC 4380, section 5.2.1: N
	peerTimeout           = 30 * time.Second // RFC 4380, section 5.2.4: valid since the last reception
)

// Implementation defaults.
const (
	relayPort     = 3545                    // Beside the server's port, so that both roles fit on one address.
	relayMaxPeers = 1 << 20                 // One million peers.
	hostMaxPeers  = 1 << 16                 // A client or a single host talks to far fewer.
	queuePackets  = 16                      // A window's worth of a young TCP connection.
	queueBytes    = 16 * 1280               // The same in full-sized packets.
	relayQueue    = 16 << 20                // Waiting packets of a relay in all.
	clientQueue   = 1 << 20                 // Waiting packets of a client in all.
	bubbleRate    = 10_000                  // Some 0.6 MB/s of bubbles: what a flood of unknown peers may cost.
	icmpRate      = 100                     // As the kernel's own limit in spirit: errors are a courtesy.
	probeAfter    = 1500 * time.Millisecond // A changed mapping is noticed within 5 s, and a pause of a second asks nobody.
	onChangeLimit = 10 * time.Second        // A hook that calls a name service on the way.
	ratePerSource = 200                     // A client needs less than one packet a second, a busy relay some tens.
	rateTotal     = 100_000                 // What one core answers with room to spare.
	burst         = 400                     // Two seconds' worth.
	routeMetric   = 4096                    // Worse than any native default route (1024).
	carryRate     = 20_000                  // Some 200 Mbit/s of full packets.
	carryClient   = 1_000                   // Some 10 Mbit/s: calls and shells, not archives.
	randomPorts   = 64                      // Some 10 MB of socket buffers at most.
	linger        = 30 * time.Second        // An upgrade takes seconds; peers that go on longer have nobody to speak for them.
)

// DefaultServer returns a server as it is where the file says nothing; its
// address must still be set.
func DefaultServer() Server {
	return Server{
		Name:          RoleServer,
		Prefixes:      []netip.Prefix{teredo.Prefix},
		Port:          teredo.Port,
		RatePerSource: ratePerSource,
		RateTotal:     rateTotal,
		Burst:         burst,
		MTU:           teredo.MTU,
	}
}

// DefaultRelay returns a relay as it is where the file says nothing.
func DefaultRelay() Relay {
	return Relay{
		Name:            RoleRelay,
		Mode:            ModeRelay,
		Bind:            netip.AddrPortFrom(netip.IPv4Unspecified(), relayPort),
		Prefixes:        []netip.Prefix{teredo.Prefix},
		Serve:           []netip.Prefix{netip.MustParsePrefix("2000::/3")},
		Interface:       "teredo-relay",
		MTU:             teredo.MTU,
		Route:           true,
		MaxPeers:        relayMaxPeers,
		PeerTimeout:     peerTimeout,
		QueuePackets:    queuePackets,
		QueueBytes:      queueBytes,
		QueueTotalBytes: relayQueue,
		BubbleRate:      bubbleRate,
		ICMPRate:        icmpRate,

		EchoThroughServer: true,
		CarryRate:         carryRate,
		CarryClientRate:   carryClient,
		KeepState:         true,
		FastPath:          FastPathAuto,
		FastPathLinger:    linger,
	}
}

// DefaultClient returns a client as it is where the file says nothing; its
// server must still be set.
//
// Unsolicited packets are dropped by default: most hosts behind a NAT rely on
// it as their only firewall, and Teredo would open them to the whole IPv6
// Internet without their owner having said so.
//
// No port is reserved by default: it opens the router to everybody for as long
// as the reservation lives, which for UPnP is beyond a crash of this host, on the
// word of whatever answers in the local network. Most hosts need none, since
// bubbles open their NATs as it is.
func DefaultClient() Client {
	return Client{
		Name:                  RoleClient,
		Secondary:             Secondary{Mode: SecondaryAuto},
		Interface:             "teredo",
		Prefixes:              []netip.Prefix{teredo.Prefix},
		RefreshInterval:       refreshInterval,
		ProbeAfter:            probeAfter,
		OnChangeTimeout:       onChangeLimit,
		QualificationTimeout:  qualificationTimeout,
		QualificationAttempts: qualificationAttempts,
		Unsolicited:           UnsolicitedEstablished,
		Native:                NativeAside,
		RandomPorts:           randomPorts,
		Hairpin:               true,
		LoadReduction:         true,
		RouteMetric:           routeMetric,
		MaxPeers:              hostMaxPeers,
		QueuePackets:          queuePackets,
		QueueBytes:            queueBytes,
		QueueTotalBytes:       clientQueue,
		PortMapping:           PortMappingNone,
		FastPath:              FastPathAuto,
	}
}
