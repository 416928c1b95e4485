// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp"
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

// TestTailLeft: a file that was written is not one that was sent, where its client wants or takes no more of it.
func TestTailLeft(t *testing.T) {
	for name, row := range map[string]struct {
		leave           func(*sctp.Conn) error
		cancelled, gone int
	}{
		"cancelled": {func(c *sctp.Conn) error {
			return c.WriteMessage((&transfer.Cancel{Transfer: 1}).Append(nil), control)
		}, 1, 0},
		"aborted":   {func(c *sctp.Conn) error { c.Abort(""); return nil }, 0, 1},
		"shut down": {(*sctp.Conn).CloseWrite, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.file("film", 500_000)
			i := w.serve("")
			small := quickClient()
			small.Parameters.ReceiveBuffer = 16 << 10
			c := w.mustDial(small, both).Conn()
			if err := c.WriteMessage((&transfer.Request{Transfer: 1, Name: "film", Report: 20}).Append(nil), control); err != nil {
				t.Fatal(err)
			}
			s := w.session(i)
			w.until(func() bool { return i.counters.octets.Load() == 500_000 && s.conn.Status().PeerWindow == 0 })
			if err := row.leave(c); err != nil {
				t.Fatal(err)
			}
			w.until(func() bool { return s.sending() == nil })
			done, cancelled, gone := i.counters.done.Load(), i.counters.cancelled.Load(), dropped(i, "association_ended")
			if done != 0 || cancelled != uint64(row.cancelled) || gone != float64(row.gone) {
				t.Errorf("%d are counted as done, %d as cancelled, %v as ended with the association", done, cancelled, gone)
			}
		})
	}
}
