// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestReleasedGives: what a session has that is to go with an SGSN that has restarted, a terminal gets that comes
// after the restart, by another NSAPI: the addresses that are its alone, and the networks behind it.
func TestReleasedGives(t *testing.T) {
	w := newWorld(t, func(s *Settings) {
		withStatic(s)
		routedSettings(s)
	})
	grant := Grant{Routes: append(routes("172.20.1.0/24", "172.20.2.0/25"), Route{netip.MustParsePrefix("2001:db8:9000:4200::/56"), true})}
	for n := range uint8(2) {
		m := w.createRequest(testIMSI(1), "dual", gtp.PDPTypeIPv4v6)
		m.NSAPI, m.TEIDData, m.Recovery = 5+n, 0x1001+uint32(n), gtp.Some(n)
		_, a := w.asks(m)
		var r gtp.CreateResponse
		w.answer(w.authorize(a.Ticket, grant), &r)
		if got := r.EndUserAddress.Value; r.Cause != gtp.CauseAccepted || got.IPv4 != netip.MustParseAddr(own4) || !netip.MustParsePrefix(own6).Contains(got.IPv6) {
			t.Fatalf("by NSAPI %d: %v, %v", 5+n, r.Cause, got)
		}
		if f := w.e.stats.RoutesRefused; f != [NumRouteFaults]uint64{} {
			t.Errorf("by NSAPI %d: routes refused %v", 5+n, f)
		}
		grant.Routes[1].Prefix = netip.MustParsePrefix("172.20.2.0/24") // around what it had
	}
	if w.tick(0); w.e.contexts.used() != 1 || w.e.stats.Ended[EndPeerRestart] != 1 {
		t.Errorf("%d contexts, ended %v", w.e.contexts.used(), w.e.stats.Ended)
	}
}

// TestReleasedMakesRoom: what counts as an SGSN's when it restarts leaves room for what it asks for then, though
// another one's is to go, too.
func TestReleasedMakesRoom(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.Limits.ContextsPerPeer = 2 })
	create := func(n int, counter uint8) gtp.Cause {
		m := w.createRequest(testIMSI(n), "internet", gtp.PDPTypeIPv4)
		m.TEIDData, m.Recovery = uint32(n), gtp.Some(counter)
		return w.create(m).Cause
	}
	create(1, 1)
	create(2, 1)
	w.from = other
	create(3, 1)
	for _, n := range []int{4, 5} {
		if cause := create(n, 2); cause != gtp.CauseAccepted {
			t.Errorf("of the other, %d: %v", n, cause)
		}
	}
	w.from = sgsn
	if cause := create(6, 2); cause != gtp.CauseAccepted {
		t.Errorf("%v", cause)
	}
	if w.tick(0); w.e.contexts.used() != 3 || w.e.stats.Ended[EndPeerRestart] != 3 {
		t.Errorf("%d contexts, ended %v", w.e.contexts.used(), w.e.stats.Ended)
	}
}
