// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"testing"
	"time"

	"github.com/pion/rtcp"
)

// FuzzHandle gives a stream packets of anybody, between those of a call. What one says it
// does is bounded, and it goes on sending, to somewhere that signalling or the peer named.
func FuzzHandle(f *testing.F) {
	f.Add([]byte{0}, forge(1, 2, 3), false)
	report, _ := rtcp.Marshal([]rtcp.Packet{&rtcp.SenderReport{SSRC: 7}, &rtcp.Goodbye{Sources: []uint32{7}}})
	f.Add([]byte{1, 20, 200}, report, true)
	f.Fuzz(func(t *testing.T, plan, p []byte, secured bool) {
		if len(plan) > 64 {
			return
		}
		w := newWorld(t, nil)
		a, b := w.agreed(w.b, 0), w.agreed(w.a, 0)
		if secured {
			a, b = secure(t, a, b, 1, 2)
		}
		w.agree(w.a, a)
		w.agree(w.b, b)
		w.sendBy(w.a, 0)
		w.sendBy(w.b, 0)
		for i, step := range plan {
			w.run(time.Duration(step&0xfc) * time.Millisecond)
			if step&2 != 0 && len(p) >= 12 { // of the peer's source
				p[8], p[9], p[10], p[11] = byte(w.b.out.ssrc>>24), byte(w.b.out.ssrc>>16), byte(w.b.out.ssrc>>8), byte(w.b.out.ssrc)
				p[2], p[3] = byte((w.b.out.sequence+uint16(i))>>8), byte(w.b.out.sequence+uint16(i))
			}
			w.a.Handle(Socket(0, step&1 != 0), w.b.address[0], p, w.now, &w.a.batch)
			if len(w.a.batch.Events) > 2*maxTogether+8 || len(w.a.batch.UDP) > 1 {
				t.Fatalf("%d events, %d packets", len(w.a.batch.Events), len(w.a.batch.UDP))
			}
			w.put(w.a)
		}
		before := w.a.Stats().Sent
		w.run(time.Second)
		if w.a.Stats().Sent-before < 49 || w.a.Remote() != w.b.address[0] {
			t.Fatalf("%+v, to %s", w.a.Stats(), w.a.Remote())
		}
	})
}
