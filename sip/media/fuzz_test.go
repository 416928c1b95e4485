// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/media/sdes"
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
			if len(w.a.batch.Events) > 2*len(p)+8 || len(w.a.batch.UDP) > 1 {
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

// call is a call between two ends in which nothing is measured but its work.
func call(t testing.TB, secured bool) (a, b *Stream, tick func()) {
	t.Helper()
	var ends [2]*Stream
	for i := range ends {
		var err error
		if ends[i], err = New(Settings{Name: "x", Source: Numbered{}, Sink: new(Tally), Latch: true}, seed(byte(i+1)), start); err != nil {
			t.Fatal(err)
		}
	}
	aAddr, bAddr := netip.MustParseAddrPort("[2001:db8::1]:5000"), netip.MustParseAddrPort("[2001:db8::2]:6000")
	agree := func(s *Stream, with int, sending, receiving byte) {
		a := Agreement{RTP: aAddr, RTCP: aAddr, Send: true, Receive: true, Format: Format{Send: DefaultTypes, Receive: DefaultTypes}}
		if with == 1 {
			a.RTP, a.RTCP = bAddr, bAddr
		}
		if secured {
			k, _ := sdes.NewKey(seed(sending))
			r, _ := sdes.NewKey(seed(receiving))
			a.Secure, a.Sending, a.Receiving = true, sdes.Attribute{Suite: sdes.AES80, Key: k}, sdes.Attribute{Suite: sdes.AES80, Key: r}
		}
		if err := s.Agree(a, start); err != nil {
			t.Fatal(err)
		}
		if err := s.SendBy(0, start); err != nil {
			t.Fatal(err)
		}
	}
	agree(ends[0], 1, 1, 2)
	agree(ends[1], 0, 2, 1)
	now := start
	var outs [2]Output
	tick = func() {
		for i, s := range ends {
			outs[i].Reset()
			s.sendDue(now, &outs[i])
		}
		for i, s := range ends {
			from := aAddr
			if i == 0 {
				from = bAddr
			}
			for _, d := range outs[1-i].UDP {
				s.Handle(d.Socket, from, d.Payload, now, &outs[i])
			}
		}
		now = now.Add(Frame)
	}
	return ends[0], ends[1], tick
}

// TestNothingAllocated has packets of a call cost no memory, sent or received.
func TestNothingAllocated(t *testing.T) {
	for _, secured := range []bool{false, true} {
		a, _, tick := call(t, secured)
		for range 100 {
			tick()
		}
		if n := testing.AllocsPerRun(500, tick); n > 0 {
			t.Errorf("secure %t: %.1f allocations for two packets sent and received", secured, n)
		}
		if stats := a.Stats(); stats.Received < 600 || stats.Lost != 0 {
			t.Errorf("%+v", stats)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	for _, secured := range []bool{false, true} {
		name := "plain"
		if secured {
			name = "SRTP"
		}
		b.Run(name, func(b *testing.B) {
			_, _, tick := call(b, secured)
			b.ReportAllocs()
			for b.Loop() {
				tick()
			}
		})
	}
}
