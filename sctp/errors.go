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

// Error is why an association has failed.
type Error struct {
	Reason Reason
	Cause  chunk.CauseCode // of the ABORT (RFC 9260 section 3.3.10); 0 if there is none
}

// Error implements error.
func (e *Error) Error() string {
	if e.Cause == 0 {
		return e.Reason.String()
	}
	return fmt.Sprintf("%s: cause %d", e.Reason, e.Cause)
}

// Is makes the error one of those that TCP has: ECONNRESET, ECONNABORTED and ETIMEDOUT.
func (e *Error) Is(target error) bool {
	switch e.Reason {
	case assoc.ReasonAborted:
		return target == syscall.ECONNRESET
	case assoc.ReasonAborting, assoc.ReasonViolation:
		return target == syscall.ECONNABORTED
	case assoc.ReasonNoAnswer:
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
