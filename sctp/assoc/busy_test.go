// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// TestBusyAt tells heartbeats, which no one waits for, from all else.
func TestBusyAt(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*script)
		busy    bool
	}{
		"a heartbeat": {func(s *script) { s.peer(chunk.AppendHeartbeat(nil, []byte("x"))) }, false},
		"its answer": {func(s *script) {
			s.a.Probe(s.pair, s.now, &s.out)
			s.collect()
			s.answerHeartbeats(func(Pair) bool { return true })
		}, false},
		"an INIT":         {func(s *script) { s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit)) }, true},
		"data":            {func(s *script) { s.peer(s.data(0, "x")) }, true},
		"data of ours":    {func(s *script) { s.say(10) }, true},
		"a SACK":          {func(s *script) { s.peer(s.sack(0, large)) }, true},
		"a shutdown":      {func(s *script) { s.peer(chunk.AppendShutdown(nil, s.a.firstTSN-1)) }, true},
		"an unknown type": {func(s *script) { s.peer(chunk.Append(nil, 0xbe, 0, nil)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := accepted(t, quiet(), 1, 1)
			if s.e.BusyAt() != s.now {
				t.Error("the set-up does not count")
			}
			s.run(time.Minute)
			if c.happens(s); (s.e.BusyAt() == s.now) != c.busy {
				t.Errorf("busy %v ago", s.now.Sub(s.e.BusyAt()))
			}
		})
	}
}
