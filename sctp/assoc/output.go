// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// Pair is a local and a remote address of one family, between which packets go.
type Pair struct{ Local, Remote netip.Addr }

// Packet is a packet of SCTP on its way, in either direction.
type Packet struct {
	Pair
	// Port is the peer's of UDP (RFC 6951); 0 if the packet travels in IP.
	Port uint16
	// Fragment says that IP may fragment the packet: a chunk was cut for larger ones than the path carries now
	// (RFC 9260 section 6.9). No other packet may be fragmented.
	Fragment bool
	Octets   []byte
}

// Output is what calls of the engine put out. Its packets hold until Reset; the data of events alias the
// packet that was handled or the engine's memory, and hold until the next call.
type Output struct {
	Packets  []Packet
	Events   []Event
	Passages []Passage // of associations that are observed

	slab []byte
}

// Reset empties the output and keeps its memory.
func (o *Output) Reset() {
	clear(o.Packets)
	clear(o.Events)
	clear(o.Passages)
	o.Packets, o.Events, o.Passages, o.slab = o.Packets[:0], o.Events[:0], o.Passages[:0], o.slab[:0]
}

// slabSize is the first size of the memory for packets: a few of them.
const slabSize = 16 << 10

// alloc returns an empty slice of capacity n that holds until Reset.
func (o *Output) alloc(n int) []byte {
	if cap(o.slab)-len(o.slab) < n {
		o.slab = make([]byte, 0, max(slabSize, min(2*cap(o.slab), 1<<20), n))
	}
	start := len(o.slab)
	o.slab = o.slab[:start+n]
	return o.slab[start : start : start+n]
}

// give takes back what the slice that was handed out last does not need.
func (o *Output) give(b []byte, used int) {
	if end := len(o.slab); cap(b) <= end && end > 0 && cap(b) > 0 && &o.slab[end-cap(b)] == &b[:1][0] {
		o.slab = o.slab[:end-cap(b)+used]
	}
}

// EventKind says what has happened.
type EventKind uint8

// Kinds of events.
const (
	Accepted       EventKind = iota // a peer has set up an association
	Connected                       // our set-up is done
	Received                        // a message, or the next piece of one: see Data
	Writable                        // the send buffer is half empty again
	PathConfirmed                   // the peer has answered at an address that it had only named
	PathActive                      // a path carries packets again
	PathFailing                     // a path has missed an answer and is avoided (RFC 7829)
	PathInactive                    // a path has missed too many
	PrimaryChanged                  // new data goes by another path: see Pair
	Restarted                       // the peer has begun anew: what was under way is lost
	Truncated                       // of a message no more pieces will come: see Data
	AddressAdded                    // the peer can be reached at another address: see Pair
	AddressRemoved                  // or no more
	ChangeDone                      // the peer has taken a change of our addresses
	ChangeRefused                   // or has not: see Cause
	SendFailed                      // a message was not delivered: see Data, Reason
	PeerShutdown                    // the peer sends nothing more
	Closed                          // the association has ended as it should
	Failed                          // it has ended otherwise: see Reason and Cause
)

var eventWords = [...]string{
	"accepted", "connected", "received", "writable", "path confirmed", "path active", "path failing", "path inactive",
	"primary changed", "restarted", "truncated", "address added", "address removed", "change done", "change refused", "send failed", "peer shutdown", "closed", "failed",
}

// String returns the kind in words.
func (k EventKind) String() string {
	if int(k) >= len(eventWords) {
		return "unknown"
	}
	return eventWords[k]
}

// Event is something that has happened to an association.
type Event struct {
	Association *Association
	Kind        EventKind
	Reason      Reason
	Cause       chunk.CauseCode // that the peer has given, or that we gave it
	Text        string          // with the cause, as it was sent
	Pair        Pair            // of a path
	Data        Data
}

// Data is a message or a piece of one. The pieces of a message come in their order, and nothing else of its
// stream in between but messages that are not ordered as it is.
type Data struct {
	Stream      uint16
	Unordered   bool
	Protocol    uint32 // that the sender's user has named (RFC 9260 section 3.3.1)
	First, Last bool   // piece; of a message that is whole both
	User        []byte
}

// Reason says why an association or a message has failed.
type Reason uint8

// Reasons.
const (
	ReasonNone       Reason = iota
	ReasonNoAnswer          // the peer does not answer
	ReasonAborted           // the peer has said so, see the cause
	ReasonAborting          // our user has
	ReasonViolation         // the peer has broken the protocol, see the cause
	ReasonStale             // the peer took too long to set up, twice
	ReasonRestarted         // the peer has begun anew
	ReasonExpired           // the message was not delivered in its time
	ReasonNoProtocol        // the peer's host has no SCTP
)

var reasonWords = [...]string{
	"", "the peer does not answer", "the peer has aborted", "aborted", "the peer has broken the protocol",
	"the peer's cookie was stale", "the peer has begun anew", "the message was not delivered in its time",
	"the peer's host does not speak SCTP",
}

// String returns the reason for people.
func (r Reason) String() string {
	if int(r) >= len(reasonWords) {
		return "unknown"
	}
	return reasonWords[r]
}
