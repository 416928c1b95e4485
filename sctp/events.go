// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"slices"

	"github.com/isthmus-net/isthmus/sctp/assoc"
	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// EventKind says what has happened to an association.
type EventKind = assoc.EventKind

// Kinds of events (RFC 9260 section 11.2, RFC 6458 section 6.1).
const (
	PathConfirmed  = assoc.PathConfirmed  // the peer has answered at an address that it had only named
	PathActive     = assoc.PathActive     // a path carries packets again
	PathFailing    = assoc.PathFailing    // a path has missed an answer and is avoided (RFC 7829)
	PathInactive   = assoc.PathInactive   // a path has missed too many
	PrimaryChanged = assoc.PrimaryChanged // data goes by another path: see Pair
	Restarted      = assoc.Restarted      // the peer has begun again: what was under way is lost
	AddressAdded   = assoc.AddressAdded   // the peer can be reached at another address: see Pair
	AddressRemoved = assoc.AddressRemoved // or no more
	ChangeDone     = assoc.ChangeDone     // the peer has taken a change of our addresses
	ChangeRefused  = assoc.ChangeRefused  // or has not: see Cause
	SendFailed     = assoc.SendFailed     // a message was not delivered: see Message, Data and Reason
	PeerShutdown   = assoc.PeerShutdown   // the peer sends nothing more
	Closed         = assoc.Closed         // the association has ended as it should
	Failed         = assoc.Failed         // it has ended otherwise: see Reason and Cause
)

// Event is something that has happened to an association.
type Event struct {
	Kind   EventKind
	Pair   Pair // of a path; Local alone of one of our addresses
	Reason Reason
	Cause  chunk.CauseCode
	Text   string // that came with the cause, as it was sent
	// Message and Data are those of a message that was not delivered.
	Message MessageInfo
	Data    []byte
	// Lost is how many events before this one were lost, since no one took those that waited.
	Lost int
}

// maxEvents is how many events of an association wait.
const maxEvents = 32

// Events returns the channel of the association's events, which is closed behind the last one. Events wait there from
// the beginning of the association on, up to 32 of them; what does not fit is lost, and counted in the next one.
func (c *Conn) Events() <-chan Event {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	if c.events == nil { // thousands of associations whose events nobody takes have no room for 32 each
		c.events = make(chan Event, maxEvents)
		for i := range c.waiting {
			c.events <- c.waiting[i]
		}
		c.waiting = nil
		if c.ended != nil {
			close(c.events)
		}
	}
	return c.events
}

// tell has an event wait for the user.
func (c *Conn) tell(ev *assoc.Event) {
	if len(c.waiting)+len(c.events) == maxEvents { // no one else puts events in
		if ev.Kind != Closed && ev.Kind != Failed {
			c.loseEvent()
			return
		}
		c.dropFirst() // the last one says how it has ended
	}
	e := Event{Kind: ev.Kind, Pair: ev.Pair, Reason: ev.Reason, Cause: ev.Cause, Text: ev.Text, Lost: c.lost}
	if ev.Kind == SendFailed {
		e.Message, e.Data = messageInfo(&ev.Data), slices.Clone(ev.Data.User)
	}
	c.lost = 0
	if c.events == nil {
		c.waiting = append(c.waiting, e)
		return
	}
	c.events <- e
}

// dropFirst makes room for an event.
func (c *Conn) dropFirst() {
	var first Event
	if c.events == nil {
		first = c.waiting[0] // before all others move into its place
		c.waiting = slices.Delete(c.waiting, 0, 1)
	} else {
		select {
		case first = <-c.events:
		default: // the user has taken all meanwhile
			return
		}
	}
	c.lost += first.Lost
	c.loseEvent()
}

// loseEvent counts one.
func (c *Conn) loseEvent() {
	c.lost++
	c.endpoint.eventsLost++
}
