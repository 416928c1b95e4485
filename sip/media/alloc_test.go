// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/sip/media/sdes"
)

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
		if secured && testutil.UnderRace {
			continue // the detector empties the pools of crypto packages
		}
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
