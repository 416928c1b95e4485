// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/isthmus-net/isthmus/sctp/assoc"
	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// Reason says why an association or a message has failed.
type Reason = assoc.Reason

// Reasons.
const (
	ReasonNoAnswer   = assoc.ReasonNoAnswer   // the peer does not answer
	ReasonNoProtocol = assoc.ReasonNoProtocol // the peer's host has no SCTP
	ReasonAborted    = assoc.ReasonAborted    // the peer has said so, see the cause
	ReasonAborting   = assoc.ReasonAborting   // we have
	ReasonViolation  = assoc.ReasonViolation  // the peer has broken the protocol, see the cause
	ReasonStale      = assoc.ReasonStale      // the peer took too long to set up, twice
	ReasonRestarted  = assoc.ReasonRestarted  // the peer has begun again
	ReasonExpired    = assoc.ReasonExpired    // the message was not delivered in its time
)

// Errors of messages and of addresses that cannot be.
var (
	ErrStream    = assoc.ErrStream    // of a message: the peer has not as many streams
	ErrEmpty     = assoc.ErrEmpty     // of a message without octets
	ErrTooLarge  = assoc.ErrTooLarge  // of a message that is larger than the send buffer
	ErrNoChanges = assoc.ErrNoChanges // the peer does not take changes of addresses
	ErrLast      = assoc.ErrLast      // an association keeps one address at least
	// ErrBound is of an address that packets cannot come to: the endpoint is bound to others.
	ErrBound = errors.New("the endpoint is bound to other addresses")
)

// Error is why an association has failed.
type Error struct {
	Reason Reason
	Cause  chunk.CauseCode // of the ABORT (RFC 9260 section 3.3.10); 0 if there is none
	Text   string          // that came with the cause, of up to 256 octets as they were sent
	// Setup says that it was not set up yet.
	Setup bool
}

// Error implements error.
func (e *Error) Error() string {
	text := e.Reason.String()
	if e.Setup && e.Reason == assoc.ReasonAborted {
		text = "the peer takes no association"
	}
	if e.Cause != 0 {
		text = fmt.Sprintf("%s: %s", text, e.Cause)
	}
	if e.Text != "" {
		text = fmt.Sprintf("%s: %q", text, e.Text)
	}
	return text
}

// Is makes the error one of those that TCP has: ECONNREFUSED, ECONNRESET, ECONNABORTED and ETIMEDOUT.
func (e *Error) Is(target error) bool {
	switch {
	case e.Reason == assoc.ReasonNoProtocol, e.Reason == assoc.ReasonAborted && e.Setup:
		return target == syscall.ECONNREFUSED
	case e.Reason == assoc.ReasonAborted:
		return target == syscall.ECONNRESET
	case e.Reason == assoc.ReasonAborting, e.Reason == assoc.ReasonViolation:
		return target == syscall.ECONNABORTED
	case e.Reason == assoc.ReasonNoAnswer:
		return target == syscall.ETIMEDOUT
	}
	return false
}

// Errors that take the place of what was lost. The association goes on behind them.
var (
	// ErrTruncated is that of a read where the peer has given up a message whose first parts were read.
	ErrTruncated = errors.New("the peer has given up the rest of the message")
	// ErrRestarted is that of the next read and of the next write when the peer has begun again: what was under way both
	// ways is lost, and the peer knows nothing of what came before.
	ErrRestarted = errors.New("the peer has begun the association again, messages may be lost")
)

// errPeerShutdown is that of a write after the peer has shut down; it is EPIPE.
var errPeerShutdown = fmt.Errorf("the peer has shut the association down: %w", syscall.EPIPE)
