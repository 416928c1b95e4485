// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/translate/clat"
)

// held is an address that a session had on an uplink.
type held struct {
	at      port.Uplink6
	address netip.Addr
}

// on is the address that the next session on an uplink should claim, so that connections go on:
// not valid on another uplink, or where there is none.
func (h held) on(at port.Uplink6) (address netip.Addr) {
	if sameUplink(h.at, at) {
		address = h.address
	}
	return address
}

// leaves is what the session leaves to the next one: its address, unless somebody else has that.
func (s *session) leaves() held {
	s.signal.Lock()
	defer s.signal.Unlock()
	if s.claim == clat.Taken {
		return held{}
	}
	return held{s.at, s.address}
}
