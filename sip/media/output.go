// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// MaxPaths is how many paths a stream has: sockets at local addresses.
const MaxPaths = 16

// Socket is the number that a batch has for one of the two sockets of a path: that of RTP, or
// that of RTCP.
func Socket(path int, control bool) int {
	if control {
		return 2*path + 1
	}
	return 2 * path
}

// PathOf takes the number of a socket apart.
func PathOf(socket int) (path int, control bool) { return socket / 2, socket%2 == 1 }

// Output is what calls of a stream put out: packets for the peer, and what has happened.
type Output struct {
	packet.Batch
	// Events are in their order.
	Events []Event
}

// Reset empties the output and keeps its memory.
func (o *Output) Reset() {
	o.Batch.Reset()
	o.Events = o.Events[:0]
}

// EventKind says what has happened to a stream.
type EventKind uint8

// Kinds of events.
const (
	MediaBegan    EventKind = iota // the first packet of the peer
	MediaLost                      // nothing has come for a while, although it should
	MediaBack                      // it comes again
	PathHeard                      // the first packet by the path that we send by
	SourceMoved                    // media goes to where the peer's comes from
	DigitBegan                     // the peer presses a key
	DigitEnded                     // it has released it
	PeerLeft                       // the peer has said by RTCP that it sends no more
	HeldByPeer                     // the peer has said by signalling that it wants to hear nothing
	ResumedByPeer                  // it wants to again
)

// String is the kind in snake_case.
func (k EventKind) String() string {
	names := [...]string{"media_began", "media_lost", "media_back", "path_heard", "source_moved", "digit_began", "digit_ended", "peer_left", "held_by_peer", "resumed_by_peer"}
	if int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}

// Event is something that has happened.
type Event struct {
	Kind EventKind
	// Path is the one that a packet came by, or that is lost.
	Path int
	// From and To are the peer's addresses before and after SourceMoved.
	From, To netip.AddrPort
	// Digit is the event of RFC 4733, and Pressed how long it lasted.
	Digit   uint8
	Pressed time.Duration
}

// Key is the key of the event in Digit (RFC 4733 section 3.2), or its number where it is of none.
func (e *Event) Key() string {
	if int(e.Digit) < len(keys) {
		return keys[e.Digit : e.Digit+1]
	}
	return strconv.Itoa(int(e.Digit))
}
