// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
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

// errPeerShutdown is that of a write after the peer has shut down; it is EPIPE.
var errPeerShutdown = fmt.Errorf("the peer has shut the association down: %w", syscall.EPIPE)
