// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// loose is a piece of an unordered message of the peer's, with its bits B and E: the nth chunk from the first TSN.
func (s *script) loose(n, message, fragment uint32, bits string, octets int) []byte {
	return (&chunk.Data{
		TSN: scriptTSN + n, Message: message, Fragment: fragment, Unordered: true, User: bytes.Repeat([]byte("x"), octets),
		First: strings.Contains(bits, "B"), Last: strings.Contains(bits, "E"),
	}).Append(nil, s.a.interleaved)
}

// delivered are the sizes of the pieces that the user has got, which are all unordered.
func (s *script) delivered() (octets []int) {
	for _, e := range s.events {
		if e.Kind == Received && e.Data.Unordered {
			octets = append(octets, len(e.Data.User))
		}
	}
	return octets
}

// TestLargeUnordered has unordered messages come that are larger than the receive buffer, with losses, and small ones of
// the same stream between: pieces of one are delivered before it is whole, and nothing unordered of the stream between them
// (RFC 9260 section 6.9).
func TestLargeUnordered(t *testing.T) {
	for _, interleaved := range []bool{false, true} {
		t.Run(fmt.Sprint(interleaved), func(t *testing.T) {
			par := Defaults()
			par.Interleaving, par.ReceiveBuffer = interleaved, 20_000
			w := pair(t, par)
			w.checked = true
			w.lost = func(int, Packet) bool { return w.dice.IntN(20) == 0 }
			var want []string
			for i := range 10 {
				large := fmt.Sprint(i) + strings.Repeat("x", 50_000)
				w.hosts[0].say(0, []byte(large), true)
				want = append(want, "0:"+large)
				for k := range 3 {
					small := fmt.Sprintf("small %d %d", i, k)
					w.hosts[0].say(0, []byte(small), true)
					want = append(want, "0:"+small)
				}
			}
			w.run(600e9)
			got := map[string]int{}
			for _, one := range w.hosts[1].got {
				got[one]++
			}
			for _, one := range want {
				if got[one] != 1 {
					t.Errorf("%.20q has come %d times", one, got[one])
				}
			}
			if a := w.hosts[1].a; len(w.hosts[1].got) != len(want) || a.held != 0 || a.unread != 0 {
				t.Errorf("%d messages of %d have come, %d octets are held", len(w.hosts[1].got), len(want), a.held)
			}
		})
	}
}

// TestTruncatedUnordered gives up a message of which the user has the beginning: that is told, and what has waited behind it
// is delivered.
func TestTruncatedUnordered(t *testing.T) {
	for _, interleaved := range []bool{false, true} {
		s := forwarding(t, interleaved)
		s.a.par.ReceiveBuffer = 4000
		s.peer(s.loose(0, 0, 0, "B", 1100))
		s.peer(s.loose(1, 0, 1, "", 1100))
		s.peer(s.loose(3, 1, 0, "BE", 7)) // waits
		octets := s.delivered()
		if fmt.Sprint(octets) != "[1100 1100]" || s.a.held != cost(make([]byte, 7)) {
			t.Errorf("delivered are %v, %d are held", octets, s.a.held)
		}
		s.events = nil
		var skips []chunk.Skip
		if interleaved {
			skips = []chunk.Skip{{Unordered: true}}
		}
		s.peer(chunk.AppendForwardTSN(nil, scriptTSN+2, skips, interleaved))
		_, told := s.saw(Truncated)
		if e, ok := s.saw(Received); !told || !ok || len(e.Data.User) != 7 || s.a.held != 0 || len(s.a.in[0].loose) != 0 {
			t.Errorf("interleaved %t: told %t, delivered %t, %d are held", interleaved, told, ok, s.a.held)
		}
	}
}

// TestLateFragment has a fragment of an unordered message come after that was skipped, since the TSNs of I-DATA need not be
// side by side: it is not kept. The numbers go round.
func TestLateFragment(t *testing.T) {
	s := forwarding(t, true)
	s.peer(s.loose(0, 0, 0, "B", 1))
	s.peer(chunk.AppendForwardTSN(nil, scriptTSN+1, []chunk.Skip{{Unordered: true, Message: 0}}, true))
	s.peer(s.loose(4, 0, 2, "E", 1))
	s.peer(s.loose(2, 1, 0, "BE", 1), s.loose(3, 2, 0, "BE", 1))
	if got := s.received(); got != "x x" || s.a.held != 0 || s.a.got.cumulative != scriptTSN+4 {
		t.Errorf("received is %q, %d octets are held", got, s.a.held)
	}
	for i := range uint32(12) { // of which 0 is done
		s.peer(s.loose(5+i, i<<29, 0, "BE", 1))
	}
	if got := s.received(); strings.Count(got, "x") != 11 {
		t.Errorf("received is %q", got)
	}
}

// TestFragmentBehindPartial has a fragment of another message fill a gap behind the message that is being delivered: it is
// kept, and that message is delivered when the first is done.
func TestFragmentBehindPartial(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.a.par.ReceiveBuffer = 4000
	s.peer(s.loose(1, 0, 0, "E", 20))
	s.peer(s.loose(2, 0, 0, "B", 1500))
	s.peer(s.loose(3, 0, 0, "", 1500))
	s.peer(s.loose(0, 0, 0, "B", 10)) // of the one that waits
	s.peer(s.loose(4, 0, 0, "E", 30))
	octets := s.delivered()
	if fmt.Sprint(octets) != "[1500 1500 30 10 20]" || s.a.held != 0 {
		t.Errorf("delivered are %v, %d octets are held", octets, s.a.held)
	}
}

// TestWholeBehindPartial has a small unordered message come whose number is that of the next ordered one, while another is
// delivered in pieces: it waits, and is delivered as what it is.
func TestWholeBehindPartial(t *testing.T) {
	s := forwarding(t, true)
	s.a.par.ReceiveBuffer = 4000
	s.peer(s.loose(0, 1, 0, "B", 1500))
	s.peer(s.loose(1, 1, 1, "", 1500))
	s.peer(s.loose(2, 0, 0, "BE", 7))
	s.peer(s.loose(3, 1, 2, "E", 30))
	if got := s.delivered(); fmt.Sprint(got) != "[1500 1500 30 7]" || s.a.in[0].next != 0 {
		t.Errorf("delivered are %v", got)
	}
}

// TestSkippedBehindPartial gives up a message behind a small one that waits until another is delivered, which began later: what
// waits was acknowledged, and is delivered.
func TestSkippedBehindPartial(t *testing.T) {
	for _, interleaved := range []bool{false, true} {
		s := forwarding(t, interleaved)
		s.a.par.ReceiveBuffer = 4000
		s.peer(s.loose(2, 1, 0, "B", 1500))
		s.peer(s.loose(3, 1, 1, "", 1500))
		s.peer(s.loose(0, 0, 0, "BE", 7))
		s.peer(chunk.AppendForwardTSN(nil, scriptTSN+1, []chunk.Skip{{Stream: 1}}, interleaved))
		s.peer(s.loose(4, 1, 2, "E", 30))
		if got := s.delivered(); fmt.Sprint(got) != "[1500 1500 30 7]" || s.a.held != 0 {
			t.Errorf("interleaved %t: delivered are %v, %d octets are held", interleaved, got, s.a.held)
		}
	}
}
