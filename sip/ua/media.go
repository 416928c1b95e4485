// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

// Media writes and reads the session descriptions of one call, by RFC 3264. The engine says
// when each is due, and takes what is in them for opaque.
//
// All descriptions of a call have the same o= line, the address in it included, but for the
// version, which is one more whenever anything changed; and the same m= lines in the same
// order (RFC 3264 section 8). Where media are received follows the path.
type Media interface {
	// Offer returns a description for the peer to answer, with addresses of a path. It is
	// open until Accept or Withdraw; there is one at a time. nil is none: the peer is to offer.
	Offer(path int) ([]byte, error)
	// Answer answers an offer. An error refuses it, by 488.
	Answer(offer []byte, path int) ([]byte, error)
	// Accept takes the answer to the last offer.
	Accept(answer []byte) error
	// Withdraw takes the last offer back: it was refused, and the session is as it was
	// (RFC 3261 section 14.1).
	Withdraw()
	// Hold says whether the next descriptions shall ask the peer to send nothing.
	Hold(on bool)
}
