// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import "testing"

// A client whose packets all ask for an error leaves the others of its network theirs.
func TestErrorShares(t *testing.T) {
	b := engine(t, func(s *Settings) { s.Errors.SourceRate, s.Errors.SourceBurst = 10, 20 })
	bad := pkt{src: clientA, dst: server6, proto: 132, payload: filling(20)}
	for range 100 {
		b.in(bad)
	}
	if got := b.Stats().ErrorsSent[ErrorProtocol]; got < 5 || got > 20 {
		t.Errorf("%d errors for one client", got)
	}
	for _, src := range []string{"2001:db8:1:1::77", "2001:db8:1:1::78", "2001:db8:1:1::79"} {
		other := bad
		other.src = src
		b.one(b.in(other))
	}
}
