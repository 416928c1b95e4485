// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import "time"

var stateNames = [...]string{
	"closed", "cookie-wait", "cookie-echoed", "established", "shutdown-pending", "shutdown-sent", "shutdown-received",
	"shutdown-ack-sent",
}

// Status is what an association shows of itself (RFC 9260 section 11.1.8, RFC 6458 section 8.2.1).
type Status struct {
	State            string // by its name in RFC 9260 section 4
	Primary, Current Pair   // that new data is to go by, and that it goes by
	In, Out          uint16 // streams

	Unsent, Unacknowledged int // messages that wait; chunks that are out
	Queued                 int // octets in the send buffer
	PeerWindow             int // octets that the peer has room for
	NextTSN                uint32
	Errors                 int // missed answers in a row

	// What both ends have offered.
	PartialReliability, Interleaving, AddressChanges bool

	Paths []PathStatus
}

// PathStatus is what a path shows of itself (RFC 6458 section 8.2.2).
type PathStatus struct {
	Pair
	State     PathState
	Confirmed bool // the peer is known to be at the address
	Doubted   bool // an early probe has found another to answer sooner
	Down      bool // the link is
	Errors    int  // missed answers in a row

	SRTT, RTTVar, RTO      time.Duration // SRTT is 0 before anything was measured
	CWND, SSThresh, Flight int           // octets
	MTU                    int           // octets of the largest packet of IP
	UDPPort                uint16        // the peer's; 0 if packets travel in IP
	Parameters             PathParameters
}

// Status returns what the association is doing.
func (a *Association) Status() Status {
	s := Status{
		State: stateNames[a.state], In: a.inLimit, Out: a.streams, Unacknowledged: a.sent.length, Queued: a.queued,
		PeerWindow: a.peerWindow, NextTSN: a.nextTSN, Errors: a.errors,
		PartialReliability: a.forwards, Interleaving: a.interleaved, AddressChanges: a.addresses && !a.changes.unknown[AddAddress],
	}
	for i := range a.outs {
		s.Unsent += a.outs[i].waiting.length
	}
	if a.primary != nil {
		s.Primary, s.Current = a.primary.Pair, a.destination().Pair
	}
	for _, p := range a.paths {
		s.Paths = append(s.Paths, PathStatus{
			Pair: p.Pair, State: a.shown(p.state), Confirmed: p.confirmed, Doubted: p.suspicion.moved, Down: p.down, Errors: p.errors,
			SRTT: p.srtt, RTTVar: p.rttvar, RTO: p.rto, CWND: p.cwnd, SSThresh: p.ssthresh, Flight: p.flight,
			MTU: p.mtu, UDPPort: p.port, Parameters: p.Parameters,
		})
	}
	return s
}

// Parameters returns those of the association; a path may have others.
func (a *Association) Parameters() Parameters { return a.par }

// SetParameters changes the parameters of a living association and of all its paths. Streams, buffers and what the
// peer was offered stay as they were set up.
func (a *Association) SetParameters(par Parameters, now time.Time) error {
	if err := par.Check(); err != nil {
		return err
	}
	fixed := a.par
	a.par = par
	a.par.StreamsOut, a.par.StreamsIn = fixed.StreamsOut, fixed.StreamsIn
	a.par.SendBuffer, a.par.ReceiveBuffer = fixed.SendBuffer, fixed.ReceiveBuffer
	a.par.PartialReliability, a.par.Interleaving, a.par.AddressChanges = fixed.PartialReliability, fixed.Interleaving, fixed.AddressChanges
	for _, p := range a.paths {
		a.tune(p, par.PathParameters, now)
	}
	a.endpoint.settle(a)
	return nil
}

// SetPathParameters changes those of one path.
func (a *Association) SetPathParameters(pair Pair, par PathParameters, now time.Time) error {
	p := a.path(pair)
	if p == nil {
		return ErrNoPath
	}
	if err := par.Check(); err != nil {
		return err
	}
	a.tune(p, par, now)
	a.endpoint.settle(a)
	return nil
}

// tune gives a path its parameters, which count from now on.
func (a *Association) tune(p *Path, par PathParameters, now time.Time) {
	beats := par.HeartbeatInterval != p.Parameters.HeartbeatInterval
	p.Parameters = par
	if !p.measured && p.errors == 0 {
		p.rto = par.RTOInitial
	}
	p.rto = min(max(p.rto, par.RTOMin), par.RTOMax)
	if beats && a.alive() && p.use == normal && p.waitsFor.IsZero() {
		p.heartbeatAt = a.heartbeatTime(p, now)
	}
	if par.MaxMTU < p.mtu {
		p.mtu, p.search = max(par.MaxMTU, p.least()), search{}
	}
	a.startSearch(p, now)
}
