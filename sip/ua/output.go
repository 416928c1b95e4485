// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// Output takes what an engine wants sent, and what it has to tell.
type Output struct {
	Packets []Packet
	Events  []Event
	// Lookups are URIs whose servers are to be found (RFC 3263), for which requests wait until
	// [Engine.Resolved].
	Lookups []message.URI
}

// Packet is a message that is to be sent from the address To.Local, which is that of a path.
type Packet struct {
	To   transaction.Target
	Data []byte
	// Fallback is where a response goes by TCP if there is no connection with To any more; not valid: to To.
	Fallback netip.AddrPort
}

// Reset empties it for the next use.
func (o *Output) Reset() {
	clear(o.Packets)
	o.Packets, o.Events, o.Lookups = o.Packets[:0], o.Events[:0], o.Lookups[:0]
}

// CallID is an engine's number of a call; none is 0.
type CallID int

// Kind says what an event is.
type Kind uint8

// Kinds of events.
const (
	// Incoming: someone calls; [Engine.Answer] or [Engine.Reject] says what becomes of it.
	Incoming Kind = iota
	// Ringing: the peer of a call of ours rings.
	Ringing
	// Redirected: the peer is called at another address, Remote.
	Redirected
	// Established: the call stands.
	Established
	// Ended: the call is no more; Status and Reason say why, 0 for an ordinary end.
	Ended
	// Moving: the call leaves Path From for Path. Media shall be sent from there at once,
	// and be received at both until they arrive on the new one.
	Moving
	// Moved: the peer knows the new address. Took is the time since Moving.
	Moved
	// MoveFailed: the peer has refused the move, or could not be asked; the call is on Path
	// From as before.
	MoveFailed
	// PeerMoved: the peer is to be reached at Remote from now on.
	PeerMoved
	// Held, Resumed: our end of the call was held or resumed, and the peer knows.
	Held
	Resumed
	// HoldFailed: the peer refused that; the call is as it was.
	HoldFailed
	// Renegotiated: the peer changed the session; the call's Media know how.
	Renegotiated
	// Registered: the registrar has exactly our binding of Path.
	Registered
	// Unregistered: it has none any more.
	Unregistered
	// RegistrationFailed: it did not take ours. Took is the time until the next attempt.
	RegistrationFailed
)

var kindNames = [...]string{
	Incoming: "incoming", Ringing: "ringing", Redirected: "redirected", Established: "established", Ended: "ended",
	Moving: "moving", Moved: "moved", MoveFailed: "move_failed", PeerMoved: "peer_moved",
	Held: "held", Resumed: "resumed", HoldFailed: "hold_failed", Renegotiated: "renegotiated",
	Registered: "registered", Unregistered: "unregistered", RegistrationFailed: "registration_failed",
}

// String is the kind in snake_case.
func (k Kind) String() string { return kindNames[k] }

// Event is what the engine has to tell.
type Event struct {
	Kind Kind
	// Call is the call that it is about, 0 if it is about none.
	Call CallID
	// Path and From are numbers of paths.
	Path, From int
	// Remote is the peer's address of record, or what the kind says.
	Remote message.URI
	// Status and Reason are those of a response, or what stands for one: 408 if no one
	// answered, 503 if the request could not leave.
	Status int
	Reason string
	// Repaired is set for a Moved that took an INVITE with Replaces.
	Repaired bool
	Took     time.Duration
}

// Stats count what the engine does and refuses.
type Stats struct {
	Transactions                             transaction.Stats
	Calls, Moves, MovesFailed, MovesRepaired uint64
	Glares, Registrations, ByTCP, BackToUDP  uint64
	Malformed, Strays, RefusedCalls, Unsent  uint64
	// Impostors are requests in a dialog from somebody else than its peer.
	Impostors                      uint64
	KeepAlivesSent, KeepAlivesLost uint64
}
