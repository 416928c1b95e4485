// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// TestHeldSuperseded: of two requests for one context the later one counts, in whichever order they are
// authorized, and whether the later one had to wait at all.
func TestHeldSuperseded(t *testing.T) {
	for _, row := range []struct {
		name string
		then string // the access point of the later request
	}{{"both wait", "dual"}, {"the later one does not", "internet"}} {
		t.Run(row.name, func(t *testing.T) {
			w := newAuthorized(t, func(s *Settings) { s.APNs[0].Authorize = false })
			b, old := w.asks(w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4))
			m := w.createRequest(imsi1, row.then, gtp.PDPTypeIPv4)
			m.TEIDControl = gtp.Some(uint32(0x2222))
			w.seq++
			got := w.raw(pathControl, w.encode(gtp.Header{Version: gtp.V1, HasSequence: true, Sequence: w.seq}, m))
			asks := append([]Ask(nil), w.out.Asks...)
			// The one before is answered, so that its SGSN, which may be another one, does not repeat it.
			if refused := causes(w, got, w.seq-1); len(refused) != 1 || refused[0] != gtp.CauseSystemFailure {
				t.Fatalf("the first one was answered %v", refused)
			}
			for _, a := range asks {
				got = w.authorize(a.Ticket, Grant{})
			}
			if made := causes(w, got, w.seq); len(made) != 1 || made[0] != gtp.CauseAccepted {
				t.Fatalf("the later one was answered %v", made)
			}
			if got = w.authorize(old.Ticket, Grant{}); len(got) != 0 || w.e.stats.GrantsLate != 1 || w.e.stats.Ended[EndRecreated] != 0 {
				t.Errorf("%d datagrams, ended %v", len(got), w.e.stats.Ended)
			}
			got = w.raw(pathControl, bytes.Clone(b))
			if again := causes(w, got, w.seq-1); len(again) != 1 || again[0] != gtp.CauseSystemFailure || len(w.out.Asks) != 0 || w.e.contexts.used() != 1 {
				t.Errorf("repeated, it was answered %v, and asked %d times", again, len(w.out.Asks))
			}
		})
	}
}

// TestHeldForgets: of requests that are answered nothing is kept while one before them waits still.
func TestHeldForgets(t *testing.T) {
	w := newAuthorized(t, func(s *Settings) { s.Limits.Waiting = 4 })
	w.asks(w.createRequest(testIMSI(1), "internet", gtp.PDPTypeIPv4))
	for n := range 10 {
		_, a := w.asks(w.createRequest(testIMSI(2+n), "internet", gtp.PDPTypeIPv4))
		w.authorize(a.Ticket, Grant{Verdict: Refused})
	}
	if n := w.e.held.queue.Len(); n != 1 {
		t.Errorf("%d are kept", n)
	}
}

// TestHeldRestart: a request of an SGSN that has restarted since opens no context, of which that SGSN knew
// nothing, nor does its old restart counter end those that were opened since.
func TestHeldRestart(t *testing.T) {
	w := newAuthorized(t, nil)
	ask := func(n int, counter uint8) Ask {
		m := w.createRequest(testIMSI(n), "internet", gtp.PDPTypeIPv4)
		m.TEIDData, m.Recovery = uint32(n), gtp.Some(counter)
		_, a := w.asks(m)
		return a
	}
	before, late := ask(1, 3), ask(2, 3)
	w.now = w.now.Add(time.Second)
	after := ask(3, 4)
	for _, a := range []Ask{before, after, late} {
		got := w.authorize(a.Ticket, Grant{})
		if a.Ticket != after.Ticket && len(got) != 0 {
			t.Errorf("%d datagrams for a request of before", len(got))
		}
	}
	if w.tick(time.Second); w.e.contexts.used() != 1 || w.e.stats.Restarts != 1 || w.e.stats.Ended[EndPeerRestart] != 0 || w.e.stats.Dropped[CreateForgotten] != 2 {
		t.Errorf("%d contexts, %d restarts, dropped %v", w.e.contexts.used(), w.e.stats.Restarts, w.dropped())
	}
}

// causes are those of the Create Responses with a sequence number.
func causes(w *world, got []packet.Datagram, sequence uint16) (list []gtp.Cause) {
	w.Helper()
	for _, d := range ofType(got, gtp.TypeCreateResponse) {
		h, err := gtp.ParseHeader(d.Payload)
		if err != nil {
			w.Fatal(err)
		}
		var r gtp.CreateResponse
		if h.Sequence == sequence {
			_, _ = w.codec.Parse(&h, &r)
			list = append(list, r.Cause)
		}
	}
	return list
}

// TestHeldShares: one node takes not all places of requests that wait, and has its own again when they are
// answered.
func TestHeldShares(t *testing.T) {
	w := newAuthorized(t, func(s *Settings) { s.Limits.Waiting = 4 })
	refused := func(n int) {
		t.Helper()
		if c := w.create(w.createRequest(testIMSI(n), "internet", gtp.PDPTypeIPv4)); c.Cause != gtp.CauseNoResources {
			t.Errorf("one too many: %v", c.Cause)
		}
	}
	_, first := w.asks(w.createRequest(testIMSI(1), "internet", gtp.PDPTypeIPv4))
	w.asks(w.createRequest(testIMSI(2), "internet", gtp.PDPTypeIPv4))
	refused(3)
	w.from = other
	w.asks(w.createRequest(testIMSI(4), "internet", gtp.PDPTypeIPv4))
	refused(5)
	w.from = sgsn
	w.authorize(first.Ticket, Grant{Verdict: Refused})
	w.asks(w.createRequest(testIMSI(6), "internet", gtp.PDPTypeIPv4))
	refused(7)
	w.tick(time.Minute)
	w.empty()
}

// TestHeldNoRoom: nobody is asked about a context that there is no room for, nor by a request that is too long to
// be held.
func TestHeldNoRoom(t *testing.T) {
	w := newAuthorized(t, func(s *Settings) { s.APNs[0].Authorize, s.Limits.ContextsPerPeer = false, 1 })
	m := w.createRequest(testIMSI(1), "dual", gtp.PDPTypeIPv4)
	m.Private = gtp.Some(gtp.PrivateExtension{Value: make([]byte, maxHeldMessage)})
	if c := w.create(m); c.Cause != gtp.CauseNoResources || len(w.out.Asks) != 0 {
		t.Errorf("a long one: %v, %d asks", c.Cause, len(w.out.Asks))
	}
	w.open(2, "internet", gtp.PDPTypeIPv4)
	if c := w.create(w.createRequest(testIMSI(3), "dual", gtp.PDPTypeIPv4)); c.Cause != gtp.CauseNoResources || len(w.out.Asks) != 0 {
		t.Errorf("beyond what the node may have: %v, %d asks", c.Cause, len(w.out.Asks))
	}
}
