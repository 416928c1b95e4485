// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package usrsctp

import "encoding/binary"

// Hash is of the messages of a stream, in their order: FNV-1a of 64 bits over the octets of each and then its
// length.
type Hash uint64

// What FNV-1a is made of.
const (
	offsetBasis Hash = 0xcbf29ce484222325
	prime       Hash = 0x100000001b3
)

// NewHash is the one of no message.
func NewHash() Hash { return offsetBasis }

// Add takes a message.
func (h *Hash) Add(message []byte) {
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(message)))
	for _, octets := range [][]byte{message, length[:]} {
		for _, one := range octets {
			*h = (*h ^ Hash(one)) * prime
		}
	}
}
