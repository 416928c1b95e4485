// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package netattr reads the attributes of netlink messages in place, so that a
// million routes cost no memory.
package netattr

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// All walks the attributes of a message, the type of each without its flags, and
// ends at the first that is broken. The values are parts of b.
func All(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			n := int(binary.NativeEndian.Uint16(b))
			if n < unix.SizeofRtAttr || n > len(b) {
				return
			}
			attr := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(attr, b[unix.SizeofRtAttr:n]) {
				return
			}
			b = b[min(len(b), (n+3)&^3):] // the next one is aligned
		}
	}
}
