// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/media/fetch"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// slowly takes what comes a little at a time.
type slowly struct{}

func (slowly) Write(b []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return len(b), nil
}

// TestTail: a file that the send buffer takes at once is on its way for long after that. The last report has all that was sent
// of it, and those before tell of it meanwhile.
func TestTail(t *testing.T) {
	w := newWorld(t)
	w.file("film", 900_000)
	w.serve("")
	small := quickClient()
	small.Parameters.ReceiveBuffer = 32 << 10
	c := w.mustDial(small, both)
	between := 0
	r, err := c.Get(t.Context(), fetch.Options{
		Request: transfer.Request{Name: "film", Report: 20}, Output: slowly{},
		Progress: func(p fetch.Progress) {
			if p.Sender != nil && p.Sender.Sent > 100 && p.Octets < p.Total {
				between++
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Sender.Sent < r.Chunks || r.Chunks < 700 || between == 0 {
		t.Errorf("%d chunks were sent, and %d have come; %d reports between: %+v", r.Sender.Sent, r.Chunks, between, r.Sender)
	}
}
