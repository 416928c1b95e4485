// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"testing"

	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/digest"
)

// auts answers a challenge by a number of a SIM, which needs no password, as whoever has seen its AUTS can.
func (s *sim) auts(c *digest.Challenge, sqn aka.SQN, count uint32) {
	s.t.Helper()
	n, ok := aka.ParseNonce(c.Nonce)
	if !ok {
		s.t.Fatalf("no challenge of AKA: %+v", c)
	}
	m := s.request()
	credentials := c.Answer(s.name, c.Algorithm.HA1(s.name, c.Realm, ""), m.Method, m.URI, "cnonce", count)
	credentials.AUTS = s.m.AUTS(n.RAND, sqn).String()
	m.Add("Authorization", credentials.String())
	s.send(m)
}

// TestAKAReplayedAUTS has somebody send an AUTS again that a SIM has sent: no number falls, or is used up. A number that
// the SIM takes for too far ahead does fall (TS 33.102 section 6.3.5).
func TestAKAReplayedAUTS(t *testing.T) {
	const theirs = 5000<<5 | 3
	for _, tt := range []struct {
		name   string
		last   aka.SQN // the registrar's, before
		other  bool    // by another nonce of the same challenge
		want   aka.SQN // the number after the SIM's AUTS, and the next challenge
		reason string
	}{
		{"the same nonce", 0, false, 5002<<5 | 5, "replayed_nonce 1, resynchronised 1"},
		{"another of the same challenge", 0, true, 5002<<5 | 5, "resynchronised 2"},
		{"a number that the SIM would take", 6000 << 5, false, 6003<<5 | 3, "replayed_nonce 1, resynchronised 1"},
		{"one that is too far ahead", 1 << 40, false, 5002<<5 | 5, "replayed_nonce 1, resynchronised 1"},
	} {
		e := engine(t)
		s := newSIM(t, e)
		e.auth.count(s.name, tt.last)
		c, replayed := s.challenged(), s.challenged()
		if !tt.other {
			replayed = c
		}
		s.auts(&c, theirs, 1)
		s.now = s.now.Add(challengeHold + 1)
		next := s.challenged()
		if got := e.auth.sqn[s.name]; got != tt.want {
			t.Errorf("%s: the number is %#x, want %#x", tt.name, got, tt.want)
		}
		if r, _ := s.respond(&next, 1, "Contact: <sip:sim>"); r.Status != 200 {
			t.Errorf("%s: then\n%s", tt.name, r)
		}
		before := e.auth.sqn[s.name]
		s.auts(&replayed, theirs, 2)
		if got := e.auth.sqn[s.name]; got < before || refused(e) != tt.reason {
			t.Errorf("%s: the number falls from %#x to %#x; refused as %s", tt.name, before, got, refused(e))
		}
	}
}
