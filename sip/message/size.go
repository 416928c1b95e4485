// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

// unknownMTU is the largest request that goes by UDP where the path's MTU is not known, and
// reserve what is kept of one that is (RFC 3261 section 18.1.1).
const (
	unknownMTU = 1300
	reserve    = 200
)

// MaxDatagram is the largest request that goes by UDP over a path with this MTU, in octets; 0:
// the MTU is not known. A larger one goes by a transport with congestion control, so that the
// response, which may be larger, is not cut into fragments: over Teredo with its MTU of 1280
// that is from 1081 octets on.
func MaxDatagram(mtu int) int {
	if mtu == 0 {
		return unknownMTU
	}
	return max(mtu-reserve, 0)
}
