// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// Out is what calls of the engine produce: packets of both families in Batch.IP, and
// events.
type Out struct {
	packet.Batch
	Events []Event
}

// Reset empties it and keeps its memory.
func (o *Out) Reset() {
	o.Batch.Reset()
	o.Events = o.Events[:0]
}

// Event is something that an operator may have to know later: who had a port when.
type Event struct {
	Kind   EventKind
	Time   time.Time
	Client netip.Prefix // who; for sessions see Inside
	// Pool is the address T, First and Last are its ports: of a block, or of one
	// binding.
	Pool        netip.Addr
	First, Last uint16
	// Of sessions.
	Transport state.Transport
	Inside    netip.AddrPort // X',x
	Peer      netip.AddrPort // Z,z
	// Reason says what limit was reached, or why a packet was dropped.
	Reason Reason
	// Dropped is the packet, of PacketDropped alone.
	Dropped translate.Report
}

// EventKind is what happened.
type EventKind uint8

// The kinds.
const (
	BlockStart    EventKind = iota // a client got a block of ports, or one port outside of blocks
	BlockStop                      // it gave them back
	SessionStart                   // with Settings.SessionEvents
	SessionStop                    // the same
	LimitReached                   // a client has all that it may, or the pool is empty; each client at most once a minute
	PacketDropped                  // one of which RFC 7915 wants the operator told (4.5, 5.1.1); each reason once a minute
)

var eventNames = [...]string{"block_start", "block_stop", "session_start", "session_stop", "limit_reached", "packet_dropped"}

// String returns the name of the kind in snake_case.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "unknown"
}
