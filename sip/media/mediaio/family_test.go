// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediaio

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/offer"
)

// TestPeerOfTheOtherFamily has a call by IPv6 be offered media at an IPv4 address alone (RFC 6157 section 4): they go by
// the path of that family that leads there, whichever path signalling goes by, and back when the peer has IPv6.
func TestPeerOfTheOtherFamily(t *testing.T) {
	const signalling = 0
	h := newHost(t, Config{})
	leads := 0 // the path by which the routes lead to bob
	alice := newParty(t, h, "::1", func(s *Settings) {
		s.Toward = func(to netip.Addr) (int, bool) { return leads, leads != 0 && to == netip.MustParseAddr("127.0.0.9") }
	})
	bob := newParty(t, h, "127.0.0.9", nil)
	alice.open(t, signalling, "::1")
	bob.open(t, 0, "127.0.0.9")
	o, err := bob.Offer(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alice.Answer(o, signalling); !errors.Is(err, offer.ErrFamily) {
		t.Fatalf("without a path of that family: %v", err)
	}
	alice.open(t, 2, "127.0.0.3")
	alice.open(t, 1, "127.0.0.2")
	if _, err := alice.Answer(o, signalling); !errors.Is(err, offer.ErrFamily) {
		t.Fatalf("without a route: %v", err)
	}
	leads = 1
	bob.Withdraw()
	if _, a := exchange(t, bob, 0, alice); !strings.Contains(a, "c=IN IP4 127.0.0.2\r\n") {
		t.Fatalf("the answer is\n%s", a)
	}
	if err := alice.SendBy(signalling); err != nil { // as when the call is established
		t.Fatal(err)
	}
	alice.frames(t, 10)
	bob.frames(t, 10)
	alice.awaitEvent(t, media.PathHeard, 1)
	if o, _ := exchange(t, alice, signalling, bob); !strings.Contains(o, "c=IN IP4 127.0.0.2\r\n") {
		t.Errorf("an offer of ours is\n%s", o)
	}
	bob.frames(t, 10)
	leads = 2
	if o, _ := exchange(t, alice, signalling, bob); !strings.Contains(o, "c=IN IP4 127.0.0.3\r\n") {
		t.Errorf("where the routes have changed, an offer of ours is\n%s", o)
	}
	alice.frames(t, 10)
	bob.frames(t, 10)

	bob.open(t, 6, "::1")
	if err := bob.Move(6); err != nil {
		t.Fatal(err)
	}
	if _, a := exchange(t, bob, 6, alice); !strings.Contains(a, "c=IN IP6 ::1\r\n") {
		t.Errorf("the answer to IPv6 is\n%s", a)
	}
	alice.ClosePath(1)
	alice.ClosePath(2)
	bob.ClosePath(0)
	alice.frames(t, 10)
	bob.frames(t, 10)
}
