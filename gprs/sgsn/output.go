// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// Output is what calls of the engine put out: datagrams for GGSNs, packets for terminals,
// and what has happened.
type Output struct {
	packet.Batch
	// Links says to which terminal each packet of IP goes.
	Links []int
	// Events are in their order.
	Events []Event
}

// Reset empties the output and keeps its memory.
func (o *Output) Reset() {
	o.Batch.Reset()
	o.Links, o.Events = o.Links[:0], o.Events[:0]
}

// Device is the link of a packet of IP: each terminal has its own way from the engine.
func (o *Output) Device(i int) int { return o.Links[i] }

func (o *Output) deliver(link int, ip []byte) {
	o.SendIP(ip)
	o.Links = append(o.Links, link)
}

// EventKind says what has happened to a context, or to the way to a GGSN.
type EventKind uint8

// Kinds of events.
const (
	Attached      EventKind = iota // the context is open
	Configured                     // a router has advertised something new, a prefix is delegated, or something has expired
	NoRouter                       // no router answered solicitations
	Updated                        // an update that we asked for is answered
	UpdateFailed                   // it was not, or with a refusal: the context is as it was
	Moved                          // the context is at another of our addresses
	MoveFailed                     // one of the address at least stays where it was, or has ended
	Changed                        // the GGSN has updated it
	Refused                        // the context could not be opened: see Reason
	Ended                          // the context is closed: see Reason
	PathDown                       // a GGSN does not answer
	PathUp                         // it answers again
	PeerRestarted                  // its restart counter is another
)

// String returns the kind in words.
func (k EventKind) String() string {
	words := [...]string{"attached", "configured", "no router", "updated", "update failed", "moved", "move failed", "changed", "refused", "ended", "path down", "path up", "peer restarted"}
	if int(k) >= len(words) {
		return "unknown"
	}
	return words[k]
}

// Reason says why a context has ended, or why something failed. Its text is for people.
type Reason uint8

// Reasons.
const (
	ReasonNone           Reason = iota
	ReasonDetached              // we asked for it
	ReasonRefused               // the GGSN refused, see the cause
	ReasonNoAnswer              // N3-REQUESTS times
	ReasonBadAnswer             // the answer cannot be used
	ReasonVersion               // the GGSN does not speak the version of GTP
	ReasonNetwork               // the GGSN has deleted it
	ReasonErrorIndicated        // the GGSN has no context where our packets go
	ReasonRestarted             // the GGSN has restarted
	ReasonAbandoned             // left behind without a word
)

// String returns the reason in words.
func (r Reason) String() string {
	words := [...]string{
		"", "detached", "refused", "no answer", "the answer cannot be used", "the GGSN does not speak this version of GTP",
		"deleted by the GGSN", "the GGSN says that it has no such context", "the GGSN has restarted", "abandoned",
	}
	if int(r) >= len(words) {
		return "unknown"
	}
	return words[r]
}

// Event is something that has happened. The context may be looked up until the next call of
// the engine unless it has ended.
type Event struct {
	Kind EventKind
	// Key and Link are the context's; zero where the event is of a path.
	Key  gtp.TID
	Link int
	// Peer is the GGSN.
	Peer   netip.Addr
	Reason Reason
	// Cause is what the GGSN answered; 0: nothing.
	Cause gtp.Cause
	// Auth is what was said to user and password of a context that could not be opened, and AuthMessage with what words.
	Auth        AuthResult
	AuthMessage string
	// Took is how long the GGSN needed for the answer, from the first request.
	Took time.Duration
	// Traffic is what a context has carried that has ended.
	Traffic Traffic
	// Closing says that the GGSN had been asked to end the context.
	Closing bool
}
