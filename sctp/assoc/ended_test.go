// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// TestAnswersOfTheDead has a packet end its association behind a chunk that is to be answered: the answer goes to no one,
// least of all to the peer of another association whose user reads next.
func TestAnswersOfTheDead(t *testing.T) {
	par := quiet()
	par.ReceiveBuffer = 4000
	s := accepted(t, par, 1, 1)
	dead, from := s.a, s.pair
	s.pair.Remote = addresses("2001:db8:1::c")[0]
	s.init.Tag++
	s.accept()
	s.peer(s.data(0, string(make([]byte, 1000))), s.data(1, string(make([]byte, 1000))))
	s.run(time.Second)
	s.take()
	s.raw(from, dead.tag, chunk.AppendHeartbeat(nil, []byte("x")), plain(chunk.TypeAbort))
	s.expect("the end of the first")
	s.a.Read(s.a.unread, s.now, &s.out)
	s.collect()
	for _, p := range s.packets {
		if got := types(p); len(got) != 1 || got[0] != chunk.TypeSACK {
			t.Errorf("the other peer has got %v", got)
		}
	}
	if len(s.packets) != 1 {
		t.Errorf("%d packets", len(s.packets))
	}
}
