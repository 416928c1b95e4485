// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// endings are who has begun the end of an association.
var endings = []struct {
	name  string
	begin func(s *script)
}{
	{"our user", (*script).shutdown},
	{"the peer", func(s *script) { s.peer(s.shutdownUpTo(0)) }},
}

// TestSlowEnd has a peer take what is to be delivered before the end for longer than T5, which is not yet running: a chunk each half
// minute (RFC 9260 section 9.2).
func TestSlowEnd(t *testing.T) {
	for _, tt := range endings {
		s := accepted(t, quiet(), 1, 1)
		s.a.peerWindow = full
		const chunks = 25
		for range chunks {
			s.say(full)
		}
		tt.begin(s)
		for n := range chunks {
			s.run(30 * time.Second)
			s.peer(s.sack(n+1, full))
		}
		if e, failed := s.saw(Failed); failed {
			t.Errorf("%s: %+v after %v", tt.name, e, s.now.Sub(start))
		}
		if s.a.state != shutdownSent && s.a.state != shutdownAckSent {
			t.Errorf("%s: all is acknowledged, and the state is %d", tt.name, s.a.state)
		}
		if want := s.now.Add(5 * time.Minute); s.a.state == shutdownSent && !s.a.guardAt.Equal(want) {
			t.Errorf("T5 ends %v, want %v", s.a.guardAt, want)
		}
		if s.a.state == shutdownAckSent && !s.a.guardAt.IsZero() {
			t.Error("T5 is running where no SHUTDOWN was sent")
		}
	}
}

// TestEndWithoutProgress has a peer answer, and take nothing more: that ends an association which is to end after as long as T5.
func TestEndWithoutProgress(t *testing.T) {
	for _, tt := range endings {
		s := accepted(t, quiet(), 1, 1)
		s.say(full)
		tt.begin(s)
		for range 1000 {
			if s.a.state == closed {
				break
			}
			s.peer(s.sack(0, 0))
			s.run(time.Second / 2)
		}
		if e, failed := s.saw(Failed); !failed || e.Reason != ReasonNoAnswer || s.now.Sub(start) != 5*time.Minute {
			t.Errorf("%s: %+v after %v", tt.name, e, s.now.Sub(start))
		}
	}
}

// TestRepetitionKeepsNothing has a peer repeat the answer to an old HEARTBEAT, or its SHUTDOWN, and not answer SHUTDOWN ACK: T2
// counts all the same.
func TestRepetitionKeepsNothing(t *testing.T) {
	for _, shutdown := range []bool{false, true} {
		s := reachState(t, 6)
		again := chunk.AppendHeartbeat(nil, s.a.heartbeatInfo(s.a.paths[0], 0, s.now))
		if again[0] = byte(chunk.TypeHeartbeatAck); shutdown {
			again = chunk.AppendShutdown(nil, s.a.acked)
		}
		for range 1000 {
			if s.a.state == closed {
				break
			}
			s.peer(again)
			s.run(time.Second / 2)
		}
		if e, failed := s.saw(Failed); !failed || e.Reason != ReasonNoAnswer {
			t.Errorf("by SHUTDOWN %v: state %d after %v, %+v", shutdown, s.a.state, s.now.Sub(start), e)
		}
	}
}
