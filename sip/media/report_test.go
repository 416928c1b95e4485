// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"encoding/binary"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/pion/rtcp"
)

// TestReportTimes holds RFC 3550 section 6.3: intervals of 5 s on average, spread over half to
// one and a half times that, the first one of half the length.
func TestReportTimes(t *testing.T) {
	w := newWorld(t, nil)
	var times []time.Time
	w.lose = func(_ int, fromA, control bool, _ []byte) bool {
		if fromA && control {
			times = append(times, w.now)
		}
		return false
	}
	held := func(with *end) Agreement {
		a := w.agreed(with, 0)
		a.Send, a.Receive = false, false
		return a
	}
	w.agree(w.a, held(w.b))
	w.agree(w.b, held(w.a))
	w.sendBy(w.a, 0)
	w.sendBy(w.b, 0)
	w.run(4 * time.Hour)
	least, most := 2500*time.Millisecond, time.Duration(math.Ceil(7.5e9/compensation))
	if first := times[0].Sub(start); first > most/2+time.Millisecond || float64(first) < float64(least)/2/compensation {
		t.Errorf("the first report after %s", first)
	}
	var sum time.Duration
	for i := 1; i < len(times); i++ {
		gap := times[i].Sub(times[i-1])
		if float64(gap) < float64(least)/compensation || gap > most+time.Millisecond {
			t.Errorf("report %d after %s", i, gap)
		}
		sum += gap
	}
	// Reconsideration makes the average longer again by what compensation took.
	if mean := sum / time.Duration(len(times)-1); math.Abs(mean.Seconds()-5) > 0.15 {
		t.Errorf("every %s", mean)
	}
}

// TestReports has both know what the other lost, and how far away it is.
func TestReports(t *testing.T) {
	w := newWorld(t, nil)
	n := 0
	w.lose = func(_ int, fromA, control bool, _ []byte) bool {
		if !fromA || control {
			return false
		}
		n++
		return n%4 == 0
	}
	w.delay = func(_ int, fromA bool) time.Duration {
		if fromA {
			return 30 * time.Millisecond
		}
		return 70 * time.Millisecond
	}
	w.connect()
	w.run(time.Minute)
	a, b := w.a.Stats(), w.b.Stats()
	if trip := a.Peer.RoundTrip; trip < 99*time.Millisecond || trip > 101*time.Millisecond {
		t.Errorf("the round trip is %s", trip)
	}
	if !a.Peer.Valid || a.Peer.Lost == 0 || a.Peer.Lost > b.Lost || b.Lost-a.Peer.Lost > 200 || a.Peer.Fraction < 60 || a.Peer.Fraction > 68 {
		t.Errorf("A hears %+v of B, which lost %d", a.Peer, b.Lost)
	}
	if !b.Peer.Valid || b.Peer.Lost != 0 || b.Peer.Fraction != 0 {
		t.Errorf("B hears %+v of A", b.Peer)
	}
}

// reports collects what A sends.
func (w *world) reports() *[][]rtcp.Packet {
	list := new([][]rtcp.Packet)
	w.lose = func(_ int, fromA, control bool, b []byte) bool {
		if fromA && control {
			packets, err := rtcp.Unmarshal(b)
			if err != nil {
				w.t.Errorf("%x: %v", b, err)
			}
			*list = append(*list, packets)
		}
		return false
	}
	return list
}

// TestSenderReport looks at what it says (RFC 3550 section 6.4.1), and at the name behind it.
func TestSenderReport(t *testing.T) {
	w := newWorld(t, nil)
	list := w.reports()
	w.connect()
	w.run(10 * time.Second)
	last := (*list)[len(*list)-1]
	sr, ok := last[0].(*rtcp.SenderReport)
	if !ok || len(last) != 2 {
		t.Fatalf("A sends %v", last)
	}
	// By both times of the report its place on the media clock is that of the wall.
	at := time.Unix(int64(sr.NTPTime>>32)-epochNTP, int64(sr.NTPTime&0xffffffff)*1e9>>32)
	if got := w.a.timestamp(at); int32(got-sr.RTPTime) < -1 || int32(got-sr.RTPTime) > 1 {
		t.Errorf("RTP time %d, want %d", sr.RTPTime, got)
	}
	if sr.SSRC != w.a.out.ssrc || sr.OctetCount != sr.PacketCount*Samples || sr.PacketCount == 0 || len(sr.Reports) != 1 || sr.Reports[0].SSRC != w.b.out.ssrc {
		t.Errorf("%+v", sr)
	}
	sdes, ok := last[1].(*rtcp.SourceDescription)
	if !ok || len(sdes.Chunks) != 1 || sdes.Chunks[0].Source != w.a.out.ssrc || sdes.Chunks[0].Items[0].Text != "a" {
		t.Errorf("%+v", last[1])
	}
	// Who sends no more is a receiver two reports later (section 6.4).
	held := w.agreed(w.b, 0)
	held.Send = false
	w.agree(w.a, held)
	w.run(25 * time.Second)
	if _, ok := (*list)[len(*list)-1][0].(*rtcp.ReceiverReport); !ok {
		t.Errorf("A still sends %v", (*list)[len(*list)-1])
	}
}

// TestReportAfterRestart reports what is lost since the peer began again with its numbers, and no more.
func TestReportAfterRestart(t *testing.T) {
	w := newWorld(t, nil)
	var out Output
	w.a.in.last = w.now
	for n := range 1000 {
		w.a.count(uint16(n), n == 0, w.now, &out)
	}
	if b := w.a.block(w.now); b.FractionLost != 0 || b.TotalLost != 0 {
		t.Errorf("before: %+v", b)
	}
	w.a.count(20000, false, w.now, &out)
	for n := range 50 {
		if n%5 != 1 {
			w.a.count(uint16(20001+n), false, w.now, &out)
		}
	}
	if b := w.a.block(w.now); b.FractionLost != 10*256/50 || b.TotalLost != 10 {
		t.Errorf("behind: %+v", b)
	}
}

// TestReportsMove has reports come from the new path, and go to where the peer's come from.
func TestReportsMove(t *testing.T) {
	w := newWorld(t, nil)
	w.connect()
	w.run(10 * time.Second)
	w.sendBy(w.a, 1)
	w.run(20 * time.Second) // B has only latched
	want := netip.AddrPortFrom(w.a.address[1].Addr(), w.a.address[1].Port()+1)
	if w.b.guard.control != want {
		t.Errorf("reports go to %s, want %s", w.b.guard.control, want)
	}
	if got := w.a.Stats().ReceivedReports; got < 4 {
		t.Errorf("%d reports have come", got)
	}
}

func TestBye(t *testing.T) {
	w := newWorld(t, nil)
	w.connect()
	w.run(time.Second)
	w.a.Bye(w.now, &w.a.batch)
	w.put(w.a)
	sent := w.a.Stats().Sent
	w.run(time.Minute)
	if got := w.b.happened(); got[len(got)-1] != PeerLeft && got[len(got)-1] != MediaLost {
		t.Errorf("events %v", got)
	}
	left := 0
	for _, k := range w.b.happened() {
		if k == PeerLeft {
			left++
		}
	}
	if left != 1 || w.a.Stats().Sent != sent || !w.a.Next().IsZero() && w.a.Next().Before(w.now) {
		t.Errorf("left %d times, %d sent since", left, w.a.Stats().Sent-sent)
	}
	// Who has sent nothing says nothing.
	w = newWorld(t, nil)
	w.a.Bye(w.now, &w.a.batch)
	if len(w.a.batch.UDP) != 0 {
		t.Error("a BYE of somebody that nobody has heard of")
	}
}

// TestReportsNowhere sends media alone to a peer that has no port for reports, until one comes from there.
func TestReportsNowhere(t *testing.T) {
	w := newWorld(t, nil)
	a := w.agreed(w.b, 0)
	a.RTCP = zero
	w.agree(w.a, a)
	w.sendBy(w.a, 0)
	for range 3000 {
		w.now = w.now.Add(Frame)
		w.a.Tick(w.now, &w.a.batch)
		for _, d := range w.a.batch.UDP {
			if _, control := PathOf(d.Socket); control || d.To != a.RTP {
				t.Fatalf("a packet to %s", d.To)
			}
		}
		w.a.batch.Reset()
	}
	if stats := w.a.Stats(); stats.Reports != 0 || stats.Sent == 0 {
		t.Errorf("%+v", stats)
	}
	w.agree(w.b, w.agreed(w.a, 0))
	w.sendBy(w.b, 0)
	w.run(time.Minute)
	if stats := w.a.Stats(); stats.Reports == 0 {
		t.Errorf("%+v", stats)
	}
}

// TestReportsOfStrangers have no effect.
func TestReportsOfStrangers(t *testing.T) {
	w := newWorld(t, nil)
	w.connect()
	w.run(10 * time.Second)
	bye := func(ssrc uint32) []byte {
		b, err := rtcp.Marshal([]rtcp.Packet{&rtcp.ReceiverReport{SSRC: ssrc}, &rtcp.Goodbye{Sources: []uint32{w.b.out.ssrc}}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	short := bye(1)
	peer := w.b.address[0].Addr().String()
	tests := []struct {
		name, from string
		packet     []byte
		drop       Drop
	}{
		{"from elsewhere", stranger, bye(w.b.out.ssrc), DropStranger},
		{"of another source", "[" + peer + "]:6001", bye(99), DropStranger},
		{"a BYE alone", "[" + peer + "]:6001", bye(w.b.out.ssrc)[8:], DropNotRTCP},
		{"cut off", "[" + peer + "]:6001", short[:len(short)-2], DropNotRTCP},
		{"empty", "[" + peer + "]:6001", nil, DropNotRTCP},
		{"of version 1", "[" + peer + "]:6001", append([]byte{0x40}, short[1:]...), DropNotRTCP},
	}
	for _, tt := range tests {
		before := w.a.Stats().Drops[tt.drop]
		w.a.Handle(Socket(0, true), netip.MustParseAddrPort(tt.from), tt.packet, w.now, &w.a.batch)
		if w.a.Stats().Drops[tt.drop] != before+1 || len(w.a.batch.Events) != 0 || !w.a.guard.known {
			t.Errorf("%s: %+v, %v", tt.name, w.a.Stats(), w.a.batch.Events)
		}
	}
}

// TestMemberTimeout forgets a peer that is silent for five intervals.
func TestMemberTimeout(t *testing.T) {
	w := newWorld(t, nil)
	w.connect()
	w.run(10 * time.Second)
	if w.a.members() != 2 {
		t.Fatal("the peer is no member")
	}
	w.lose = func(int, bool, bool, []byte) bool { return true }
	w.run(24 * time.Second)
	if w.a.members() != 2 {
		t.Error("the peer is forgotten too early")
	}
	w.run(12 * time.Second)
	if w.a.members() != 1 {
		t.Error("the peer is a member still")
	}
}

// TestRoundTripOfALiar does not take a delay that is longer than the time that has gone.
func TestRoundTripOfALiar(t *testing.T) {
	w := newWorld(t, nil)
	w.connect()
	w.run(10 * time.Second)
	before := w.a.Stats().Peer.RoundTrip
	w.a.readBlocks([]rtcp.ReceptionReport{{SSRC: w.a.out.ssrc, LastSenderReport: uint32(ntpTime(w.now) >> 16), Delay: 65536}}, w.now)
	if got := w.a.Stats().Peer.RoundTrip; got != before {
		t.Errorf("the round trip is %s", got)
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 0x00ffffff) // -1
	w.a.readBlocks([]rtcp.ReceptionReport{{SSRC: w.a.out.ssrc, TotalLost: binary.BigEndian.Uint32(b[:])}}, w.now)
	if got := w.a.Stats().Peer.Lost; got != -1 {
		t.Errorf("%d lost, want -1", got)
	}
}
