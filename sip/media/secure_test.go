// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"net/netip"
	"testing"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
)

// TestNothingBeforeKeys has a stranger send sound, keys and reports to a stream that requires keys, before the answer has
// brought any (RFC 4568 section 5.1.1): none has an effect, and the peer is heard as if nobody had been before it.
func TestNothingBeforeKeys(t *testing.T) {
	w := newWorld(t, func(a, _ *Settings) { a.RequireKeys = true })
	for i := range uint16(10) {
		w.run(Frame)
		w.inject(w.a, stranger, forge(99, 500+i, uint32(i)*Samples))
		p := rtp.Packet{Header: rtp.Header{Version: 2, PayloadType: DefaultTypes.Events, SSRC: 98, SequenceNumber: i}, Payload: []byte{5, endBit | volume, 1, 0}}
		digit, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		w.inject(w.a, stranger, digit)
	}
	report, err := rtcp.Marshal([]rtcp.Packet{&rtcp.ReceiverReport{SSRC: 99}, &rtcp.Goodbye{Sources: []uint32{99}}})
	if err != nil {
		t.Fatal(err)
	}
	w.a.Handle(Socket(0, true), netip.MustParseAddrPort(stranger), report, w.now, &w.a.batch)
	w.put(w.a)
	if stats := w.a.Stats(); len(w.a.events) > 0 || stats.Received != 0 || stats.ReceivedReports != 0 || stats.Drops[DropNotAuthentic] != 21 {
		t.Errorf("before the answer: events %v, %+v", w.a.happened(), stats)
	}
	if err := w.a.Agree(w.agreed(w.b, 0), w.now); err == nil {
		t.Error("an agreement without keys is taken")
	}
	a, b := secure(t, w.agreed(w.b, 0), w.agreed(w.a, 0), 1, 2)
	w.agree(w.a, a)
	w.agree(w.b, b)
	w.sendBy(w.a, 0)
	w.sendBy(w.b, 0)
	w.run(Frame * 10)
	if got := w.a.happened(); len(got) != 2 || got[0] != MediaBegan || w.a.Stats().Lost != 0 {
		t.Errorf("after it: events %v, %+v", got, w.a.Stats())
	}
}
