// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"errors"
	"time"
)

// Parameters are the protocol's (RFC 9260 section 16, RFC 7829 section 5), and the sizes of what an association
// holds. Those of an association may change while it lives; streams and buffers are told at its set-up.
type Parameters struct {
	PathParameters // of each path that has none of its own

	AssociationMaxRetrans int           // errors in a row that end the association
	MaxInitRetrans        int           // of INIT and of COOKIE ECHO
	CookieLife            time.Duration // in which the answer to an INIT can be used
	MaxBurst              int           // packets of new data that one event may send
	HeartbeatMaxBurst     int           // unconfirmed paths that are probed in one RTO
	SACKDelay             time.Duration // how long an acknowledgement may wait, at most 500 ms

	// What goes beyond the RFCs: Strict switches it off.

	// EarlyProbe has another path asked, and taken, long before a timeout tells that one is broken; a path that has failed
	// asked when something comes by it; and data moved at once when the peer says so.
	EarlyProbe bool
	// LinkEvents has data leave an address of this host, and the peer asked to send elsewhere, as soon as the kernel says
	// that its link carries nothing: a handover that is announced. What a program itself says by LinkDown counts without.
	LinkEvents bool
	// SpuriousTimeouts has what a timeout took for lost be in flight as before, where no other path is, when an
	// acknowledgement shows that it was late (RFC 4138 section 5, an experiment).
	SpuriousTimeouts bool
	// SetupRace has the first INIT go to each further address that was named after 250 ms, and not only after T1-init.
	SetupRace bool

	// HideFailing shows the user potentially failed paths as active, as if there were only the states of RFC 9260 (RFC 7829
	// section 3.2, 12).
	HideFailing bool

	// What the peer is offered; it is used if the peer offers it, too.
	PartialReliability bool // messages may be given up (RFC 3758)
	Interleaving       bool // fragments of messages of several streams may mix (RFC 8260)
	AddressChanges     bool // addresses may come and go, authenticated (RFC 5061, RFC 4895)

	StreamsOut, StreamsIn uint16 // wanted; at most as many as the peer takes
	SendBuffer            int    // octets of messages that wait or are not yet acknowledged
	ReceiveBuffer         int    // octets that the peer may send before they are read
}

// PathParameters are those of a path.
type PathParameters struct {
	RTOInitial, RTOMin, RTOMax time.Duration
	// PathMaxRetrans errors in a row are borne; one more, and the path is inactive.
	PathMaxRetrans int
	// PotentiallyFailedMaxRetrans errors are borne before a path is avoided (RFC 7829 section 3.2). As many as
	// PathMaxRetrans or more switch that off.
	PotentiallyFailedMaxRetrans int
	// HeartbeatInterval is added to the RTO between two heartbeats of an idle path. Below zero there are none.
	HeartbeatInterval time.Duration
	// MaxMTU is the largest packet of IP, in octets, that is looked for (RFC 8899). It is not to be above the MTU of
	// the link.
	MaxMTU int
}

// Defaults are the values that the RFCs recommend.
func Defaults() Parameters {
	return Parameters{
		PathParameters: PathParameters{
			RTOInitial: time.Second, RTOMin: time.Second, RTOMax: time.Minute,
			PathMaxRetrans: 5, HeartbeatInterval: 30 * time.Second, MaxMTU: 1500,
		},
		AssociationMaxRetrans: 10, MaxInitRetrans: 8, CookieLife: time.Minute,
		EarlyProbe: true, LinkEvents: true, SpuriousTimeouts: true, SetupRace: true, PartialReliability: true, AddressChanges: true,
		MaxBurst: 4, HeartbeatMaxBurst: 1, SACKDelay: 200 * time.Millisecond,
		StreamsOut: 10, StreamsIn: 2048, SendBuffer: 256 << 10, ReceiveBuffer: 256 << 10,
	}
}

// Strict switches off what goes beyond the RFCs.
func (p *Parameters) Strict() {
	p.EarlyProbe, p.LinkEvents, p.SpuriousTimeouts, p.SetupRace = false, false, false, false
}

// Errors of parameters.
var (
	ErrRTO     = errors.New("RTO.Min must be above 0, and RTO.Initial and RTO.Max not below it")
	ErrRetrans = errors.New("retransmissions and bursts cannot be below 0")
	ErrDelay   = errors.New("SACK.Delay is from 0 to 500 ms")
	ErrTime    = errors.New("times are up to 30 days, RTO.Min is 1 ms or more, and cookies live for more than 0")
	ErrMTU     = errors.New("packets are at least 576 octets and at most 65535")
	ErrBuffer  = errors.New("a receive buffer has at least 1500 octets, a send buffer at least one, and both at most 1 GiB")
	ErrStreams = errors.New("there is at least one stream each way")
)

// Check returns what is wrong with the parameters; nil if nothing is.
func (p *Parameters) Check() error {
	switch {
	case p.AssociationMaxRetrans < 0, p.MaxInitRetrans < 0, p.MaxBurst < 0, p.HeartbeatMaxBurst < 0:
		return ErrRetrans
	case p.SACKDelay < 0, p.SACKDelay > maxSACKDelay:
		return ErrDelay
	case p.ReceiveBuffer < minWindow, p.ReceiveBuffer > maxBuffer, p.SendBuffer < 1, p.SendBuffer > maxBuffer:
		return ErrBuffer
	case p.CookieLife <= 0, p.CookieLife > maxTime:
		return ErrTime
	case p.StreamsIn == 0, p.StreamsOut == 0:
		return ErrStreams
	}
	return p.PathParameters.Check()
}

// Check returns what is wrong with the parameters; nil if nothing is.
func (p *PathParameters) Check() error {
	switch {
	case p.RTOMin <= 0, p.RTOMax < p.RTOMin, p.RTOInitial < p.RTOMin:
		return ErrRTO
	case p.RTOMin < granularity, p.RTOMax > maxTime, p.RTOInitial > maxTime, p.HeartbeatInterval > maxTime:
		return ErrTime
	case p.PathMaxRetrans < 0, p.PotentiallyFailedMaxRetrans < 0:
		return ErrRetrans
	case p.MaxMTU < leastIPv4, p.MaxMTU > 1<<16-1:
		return ErrMTU
	}
	return nil
}

// What RTO is computed with (RFC 9260 section 16), as shifts.
const (
	alphaShift = 3 // RTO.Alpha is 1/8
	betaShift  = 2 // RTO.Beta is 1/4
	// granularity is the least variance of round trips (RFC 9260 section 6.3.1, G1).
	granularity = time.Millisecond
)

// Bounds of parameters.
const (
	maxBuffer = 1 << 30
	maxTime   = 30 * 24 * time.Hour
)

// Bounds of what peers make us hold.
const (
	minWindow    = 1500     // octets, of the peer's receiver window (RFC 9260 section 3.3.2)
	maxAddresses = 16       // of a peer; more are not used
	maxPaths     = 64       // pairs of an association
	maxInit      = 16 << 10 // octets of an INIT, of which the cookie that answers it has the most
)
