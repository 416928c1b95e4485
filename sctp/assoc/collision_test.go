// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// TestSimultaneousSetup has both ends ask at once, and one of their packets get lost: one association is made, of the
// same tags at both ends (RFC 9260 sections 5.2.1 and 5.2.4).
func TestSimultaneousSetup(t *testing.T) {
	for drop := -1; drop < 8; drop++ {
		for _, later := range []time.Duration{0, 3 * time.Millisecond, 7 * time.Millisecond, 12 * time.Millisecond} {
			t.Run(fmt.Sprint(drop, later), func(t *testing.T) { testSimultaneousSetup(t, drop, later) })
		}
	}
}

func testSimultaneousSetup(t *testing.T, drop int, later time.Duration) {
	w := newWorld(t, dual(), Defaults())
	n := 0
	w.lost = func(int, Packet) bool {
		n++
		return n-1 == drop
	}
	for i, h := range w.hosts {
		// Parameters that are not the endpoint's own must stand in the INIT ACK, too.
		par := Defaults()
		par.StreamsOut, par.PartialReliability, par.ReceiveBuffer = 5, false, 100_000
		if i == 1 && h.a != nil {
			break // the other was faster
		}
		a, err := h.end.Connect(w.hosts[1-i].end.config.Addresses, 5000, 0, par, w.now, &h.out)
		if err != nil {
			t.Fatal(err)
		}
		h.a = a
		h.flush()
		w.run(later)
	}
	w.run(10 * time.Second)
	a, b := w.hosts[0].a, w.hosts[1].a
	if a.state != established || b.state != established || a.tag != b.peerTag || b.tag != a.peerTag || len(w.hosts[0].end.byTag) != 1 || len(w.hosts[1].end.byTag) != 1 {
		t.Fatalf("states %d, %d; tags %x %x, %x %x", a.state, b.state, a.tag, a.peerTag, b.tag, b.peerTag)
	}
	if a.nextTSN != b.got.cumulative+1 || b.nextTSN != a.got.cumulative+1 {
		t.Errorf("the ends differ in their first TSNs")
	}
	w.hosts[0].say(0, []byte("a"), false)
	w.hosts[1].say(0, []byte("b"), false)
	w.run(5 * time.Second)
	w.expect(0, []string{"0:b"})
	w.expect(1, []string{"0:a"})
	if a.addresses {
		if !bytes.Equal(a.key, b.key) {
			t.Error("the keys differ")
		}
	}
}

// TestCollisionAnswer has an INIT cross ours: the answer has what our INIT had, and goes to an address that the user
// has named (RFC 9260 section 5.2.1).
func TestCollisionAnswer(t *testing.T) {
	par := quiet()
	par.StreamsOut, par.StreamsIn, par.ReceiveBuffer, par.PartialReliability = 3, 5, 77_777, false
	for _, echoed := range []bool{false, true} {
		s := connecting(t, quiet(), 1, 1)
		s.e.leave(s.a)
		a, err := s.e.Connect(s.remote, scriptPeerPort, 0, par, s.now, &s.out)
		if err != nil {
			t.Fatal(err)
		}
		s.a = a
		s.take()
		s.init.Addresses = scriptRemote
		if echoed {
			s.answerInit("cookie")
		}
		state := s.a.state
		s.take()
		s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit))
		ack := s.initAck()
		if ack.Tag != a.tag || ack.TSN != a.firstTSN || ack.In != 5 || ack.Out != 3 || ack.Window != 77_777 || ack.ForwardTSN {
			t.Errorf("%+v", ack)
		}
		s.raw(Pair{s.local[0], scriptRemote[1]}, 0, s.init.Append(nil, chunk.TypeInit))
		if !echoed && (len(s.packets) != 1 || s.packets[0].Remote != scriptRemote[0]) {
			t.Errorf("the answer goes to an address that the user has not named: %v", s.packets)
		}
		s.take()
		if s.init.Addresses = append(slices.Clone(scriptRemote), addresses("2001:db8:66::1")...); echoed {
			s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit))
			s.expect("an INIT with a new address", "ABORT:11")
		}
		if s.a.state != state {
			t.Errorf("state %d", s.a.state)
		}
	}
}
