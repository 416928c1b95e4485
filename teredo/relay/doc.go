// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package relay is the engine of a Teredo relay and of a host-specific relay
// (RFC 4380 section 5.4): it carries packets between IPv6 hosts and Teredo
// clients. It is pure: packets and the time go in, packets come out. It is not
// safe for concurrent use, but for lanes: see [Lane].
//
// One packet's way, and the file of each step:
//
//	IPv6 -> UDP   transmit.go  rules on the addresses, hop limit and size
//	              attempt.go   a peer not heard lately: queue, bubble, repeat
//	              keyed.go     the source address of bubbles
//	              echo.go      the answer to a client's connectivity test
//	UDP -> IPv6   receive.go   whose packet it is, trust, the queue
//	              deliver.go   where it may go
//	client ->     binding.go   a client shows where it is
//	   client     bindings.go  those that have
//	              carry.go     from one to another
//	both          quick.go     traffic of trusted peers, on any core
//	              icmp.go      ICMPv6 errors to senders
//
//house:engine
package relay

import "time"

// Specification constants.
const (
	// bubbleInterval is the time-out after which a bubble is repeated, and
	// bubbleTries how many are sent in all: one and three repetitions (RFC 4380
	// section 5.4.1).
	bubbleInterval = 2 * time.Second
	bubbleTries    = 4
)

// Implementation constants.
const (
	// A peer that answered none of bubbleTries is asked by one more when traffic comes
	// behind firstPause, which doubles up to lastPause. That is remembered for silence
	// behind the first bubble of its last test.
	firstPause, lastPause = 8 * time.Second, 60 * time.Second
	silence               = 300 * time.Second
	// memory is how long a peer that has fallen silent is remembered, or longer if
	// it is valid for longer. Else its entry is not valid for sending, but what it
	// sends is still accepted.
	memory = 300 * time.Second
	// refreshNum/refreshDen is the part of the peer timeout after which traffic
	// to a peer asks for a sign of life: a one-way flow would otherwise stall
	// each time the entry runs out.
	refreshNum, refreshDen = 3, 4
	// doubtAge is how long ago a trusted client was heard when a sign that its NAT may
	// have changed or forgotten its mapping is worth a bubble. The fast path knows it as
	// STAMP_DOUBT.
	doubtAge = 2 * time.Second
	// sweepPeriod is how long a sweep of the table for such peers takes, in
	// slices of sweepBuckets: 256 KiB of memory, some 0.1 ms.
	sweepPeriod  = 32 * time.Second
	sweepBuckets = 4096
	// publishRoom is how many peers may wait for [Relay.Publish]: more than a
	// batch of datagrams can make trusted.
	publishRoom = 256
	// maxUntrusted bounds the peers under test: more than the default bubble
	// rate can have under test at once, and 1/16 of the default table.
	maxUntrusted = 1 << 16
	// untrustedShare is the part of a small table that peers under test may take.
	untrustedShare = 4
	// sourceShare and serverShare are the parts of the bubble rate that new peers
	// of one IPv6 /64, and of one Teredo server, may use (RFC 4380 section 7.3.5).
	sourceShare, serverShare = 8, 4
	// errorShare is the part of the ICMPv6 errors that go to one IPv6 /64.
	errorShare = 4
	// strangerRate and strangerBurst bound the clients a second, at one IPv4
	// address, that speak to a host-specific relay first.
	strangerRate, strangerBurst = 10, 20
	// tickBurst bounds the work of one Tick, so that packets do not wait long.
	tickBurst = 256
)

// Socket is the index of the one UDP socket in the datagrams of the output.
const Socket = 0
