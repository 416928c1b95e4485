// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"net/netip"
	"testing"
	"time"

	"github.com/pion/rtcp"
)

const stranger = "[2001:db8:bad::1]:4444"

// TestHijack has strangers send to A in the middle of a call. Media never goes to them, what
// they send is not played, and the call goes on.
func TestHijack(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name string
		// packet makes the i-th of what the stranger sends, every 20 ms, from what it knows of B.
		packet func(b *end, i int) []byte
		drop   Drop
		before func(w *world)
		from   string
	}{
		{name: "another source", packet: func(b *end, i int) []byte { return forge(99, b.out.sequence+uint16(i), b.timestamp(start)) }, drop: DropSSRC},
		{name: "another source, from the peer's address", from: "[2001:db8:b::1]:6000",
			packet: func(b *end, i int) []byte { return forge(99, uint16(i), 0) }, drop: DropSSRC},
		{name: "another source, right after a change", before: func(w *world) { w.agree(w.a, w.agreed(w.b, 0)) },
			packet: func(_ *end, i int) []byte { return forge(99, uint16(i), 0) }, drop: DropSSRC},
		{name: "numbers far ahead", packet: func(b *end, i int) []byte {
			return forge(b.out.ssrc, b.out.sequence+400+uint16(i), b.out.base+uint32(b.out.frame)*Samples)
		}, drop: DropWindow},
		{name: "numbers far behind", packet: func(b *end, i int) []byte {
			return forge(b.out.ssrc, b.out.sequence-400+uint16(i), b.out.base+uint32(b.out.frame)*Samples)
		}, drop: DropWindow},
		{name: "numbers of another turn", packet: func(b *end, i int) []byte {
			return forge(b.out.ssrc, b.out.sequence+32768+uint16(i), b.out.base+uint32(b.out.frame)*Samples)
		}, drop: DropWindow},
		{name: "a timestamp of another time", packet: func(b *end, i int) []byte {
			return forge(b.out.ssrc, b.out.sequence+uint16(i), b.out.base+1<<30)
		}, drop: DropWindow},
		{name: "our own packets sent back", packet: func(*end, int) []byte { return nil }, drop: DropOwn},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			var own []byte
			w.seen = func(fromA bool, _ int, p []byte) {
				if fromA {
					own = append(own[:0], p...)
				}
			}
			w.connect()
			w.run(time.Second)
			if tt.before != nil {
				tt.before(w)
			}
			from := stranger
			if tt.from != "" {
				from = tt.from
			}
			for i := range 50 {
				w.run(20 * ms)
				p := tt.packet(w.b, i)
				if p == nil {
					p = own
				}
				w.inject(w.a, from, p)
			}
			w.run(time.Second)
			stats := w.a.Stats()
			if w.a.Remote() != w.b.address[0] {
				t.Errorf("media goes to %s", w.a.Remote())
			}
			if stats.Drops[tt.drop] != 50 || stats.Lost != 0 || w.a.tally.Damaged != 0 || w.a.tally.Missing() != 0 {
				t.Errorf("%d dropped; %+v", stats.Drops[tt.drop], stats)
			}
		})
	}
}

// TestPerfectForgery knows source, numbers and timestamps, as one on the way does, and is
// ahead of the peer. Media goes on to the peer as long as it is heard, even right after a
// change; only what the stranger sends is played, which its address could not have prevented.
func TestPerfectForgery(t *testing.T) {
	w := newWorld(t, nil)
	w.connect()
	w.run(time.Second)
	w.agree(w.a, w.agreed(w.b, 0))
	for range 100 {
		w.run(Frame)
		w.inject(w.a, stranger, forge(w.b.out.ssrc, w.b.out.sequence+2, w.b.timestamp(w.now)))
		if w.a.Remote() != w.b.address[0] {
			t.Fatalf("media goes to %s", w.a.Remote())
		}
	}
	// Authentic media cannot be forged at all.
	w = newWorld(t, nil)
	a, b := secure(t, w.agreed(w.b, 0), w.agreed(w.a, 0), 1, 2)
	w.agree(w.a, a)
	w.agree(w.b, b)
	w.sendBy(w.a, 0)
	w.sendBy(w.b, 0)
	w.run(time.Second)
	for range 50 {
		w.run(Frame)
		w.inject(w.a, stranger, forge(w.b.out.ssrc, w.b.out.sequence+2, w.b.timestamp(w.now)))
	}
	if stats := w.a.Stats(); stats.Drops[DropNotAuthentic] != 50 || w.a.tally.Damaged != 0 || stats.Lost != 0 {
		t.Errorf("%+v", stats)
	}
}

// TestPerfectBurst has the same stranger be quick: several packets between two of the peer. At
// any time nothing moves. Right after a change media does, and is back with the next packet of
// the peer that is ahead of them.
func TestPerfectBurst(t *testing.T) {
	for _, changed := range []bool{false, true} {
		w := newWorld(t, nil)
		w.connect()
		w.run(3 * time.Second)
		if changed {
			w.agree(w.a, w.agreed(w.b, 0))
		}
		w.run(5 * time.Millisecond)
		for i := range uint16(4) {
			w.inject(w.a, stranger, forge(w.b.out.ssrc, w.b.out.sequence+i, w.b.timestamp(w.now)))
		}
		if moved := w.a.Remote() != w.b.address[0]; moved != changed {
			t.Errorf("changed %t: media goes to %s", changed, w.a.Remote())
		}
		w.run(200 * time.Millisecond)
		if w.a.Remote() != w.b.address[0] {
			t.Errorf("changed %t: media stays at %s", changed, w.a.Remote())
		}
	}
}

// TestReplay sends the peer's own packets again, from elsewhere.
func TestReplay(t *testing.T) {
	for _, secured := range []bool{false, true} {
		w := newWorld(t, nil)
		a, b := w.agreed(w.b, 0), w.agreed(w.a, 0)
		if secured {
			a, b = secure(t, a, b, 1, 2)
		}
		w.agree(w.a, a)
		w.agree(w.b, b)
		w.sendBy(w.a, 0)
		w.sendBy(w.b, 0)
		var packets [][]byte
		w.seen = func(fromA bool, _ int, p []byte) {
			if !fromA {
				packets = append(packets, append([]byte(nil), p...))
			}
		}
		w.run(time.Second)
		w.b.SendBy(0, w.now)
		for _, p := range packets {
			w.inject(w.a, stranger, p)
		}
		w.run(time.Second)
		if w.a.Remote() != w.b.address[0] || w.a.tally.Repeated != 0 || w.a.Stats().Lost != 0 {
			t.Errorf("secure %t: media goes to %s, %+v", secured, w.a.Remote(), w.a.Stats())
		}
	}
}

// TestNoSource has strangers send while no source of the peer's is known, or the one that is known is silent.
// Media goes to who is where signalling has said, and nothing else is played.
func TestNoSource(t *testing.T) {
	connected := func(w *world) {
		w.connect()
		w.run(time.Second)
	}
	left := func(w *world) {
		w.b.Bye(w.now, &w.b.batch)
		w.put(w.b)
		w.run(time.Second)
	}
	behindNAT := func(w *world, rtp string) {
		private := w.agreed(w.b, 0)
		private.RTP = netip.MustParseAddrPort(rtp)
		w.agree(w.a, private)
		w.sendBy(w.a, 0)
	}
	for _, tt := range []struct {
		name   string
		before func(w *world)
		from   string
		drop   Drop // dropNone: it is the peer
	}{
		{"the peer has sent nothing yet", func(w *world) { w.agree(w.a, w.agreed(w.b, 0)) }, stranger, DropPlace},
		{"the peer has said that it leaves", func(w *world) { connected(w); left(w) }, stranger, DropPlace},
		{"the peer is silent", func(w *world) {
			connected(w)
			w.lose = func(int, bool, bool, []byte) bool { return true }
			w.run(10 * time.Second)
		}, stranger, DropSSRC},
		{"the peer is silent since signalling has named another place of it", func(w *world) {
			connected(w)
			w.lose = func(int, bool, bool, []byte) bool { return true }
			behindNAT(w, "198.51.100.7:7000")
			w.run(10 * time.Second)
		}, stranger, DropPlace},
		{"a peer behind a NAT has left", func(w *world) {
			behindNAT(w, "192.168.0.1:7000")
			w.agree(w.b, w.agreed(w.a, 0))
			w.sendBy(w.b, 0)
			w.run(time.Second)
			left(w)
		}, stranger, DropPlace},
		{"of a peer behind a NAT nothing is known", func(w *world) { behindNAT(w, "100.64.3.1:7000") }, "198.51.100.7:4444", dropNone},
		{"from the peer's host, another port", func(w *world) { w.agree(w.a, w.agreed(w.b, 0)) }, "[2001:db8:b::1]:7000", dropNone},
		{"from the peer's network", func(w *world) { w.agree(w.a, w.agreed(w.b, 0)) }, "[2001:db8:b::77]:7000", dropNone},
		{"by the same Teredo server", func(w *world) { behindNAT(w, "[2001:0:c000:201::1]:7000") }, "[2001:0:c000:201::2]:7000", DropPlace},
		{"by the same NAT64", func(w *world) { behindNAT(w, "[64:ff9b::c000:201]:7000") }, "[64:ff9b::c633:6401]:7000", DropPlace},
		{"from the IPv4 network", func(w *world) { behindNAT(w, "198.51.100.7:7000") }, "198.51.100.8:7000", DropPlace},
		{"held in the manner of RFC 2543", func(w *world) {
			connected(w)
			left(w)
			behind := w.agreed(w.b, 0)
			behind.RTP, behind.RTCP = zero, zero
			w.agree(w.a, behind)
		}, stranger, DropPlace},
	} {
		w := newWorld(t, nil)
		tt.before(w)
		to, before := w.a.Remote(), w.a.Stats()
		for i := range uint16(50) {
			w.run(Frame)
			w.inject(w.a, tt.from, forge(99, 500+i, uint32(i)*Samples))
		}
		stats := w.a.Stats()
		if tt.drop == dropNone {
			if w.a.Remote() != netip.MustParseAddrPort(tt.from) || stats.Received-before.Received != 49 {
				t.Errorf("%s: media goes to %s, %+v", tt.name, w.a.Remote(), stats)
			}
			continue
		}
		if w.a.Remote() != to || stats.Received != before.Received || stats.Drops[tt.drop]-before.Drops[tt.drop] != 50 {
			t.Errorf("%s: media goes to %s, %+v", tt.name, w.a.Remote(), stats)
		}
		// The peer is heard when it speaks again.
		w.lose = func(int, bool, bool, []byte) bool { return false }
		w.connect()
		w.run(time.Second)
		if w.a.Remote() != w.b.address[0] || w.a.Stats().Received-stats.Received < 40 {
			t.Errorf("%s, then the peer: media goes to %s, %+v", tt.name, w.a.Remote(), w.a.Stats())
		}
	}
}

// TestEarlyMedia is heard before signalling has said where the peer is, and given up if that is elsewhere.
func TestEarlyMedia(t *testing.T) {
	for from, heard := range map[string]bool{stranger: false, "[2001:db8:b::1]:6000": true} {
		w := newWorld(t, nil)
		burst := func(from string, ssrc uint32, at uint16) {
			for i := range uint16(10) {
				w.run(Frame)
				w.inject(w.a, from, forge(ssrc, at+i, uint32(at+i)*Samples))
			}
		}
		burst(from, 99, 500)
		if n := w.a.Stats().Received; n != 9 {
			t.Errorf("%s: %d are taken before the answer", from, n)
		}
		w.agree(w.a, w.agreed(w.b, 0))
		burst(from, 99, 510)
		if n := w.a.Stats().Received; (n == 19) != heard {
			t.Errorf("%s: %d are taken in all", from, n)
		}
		if !heard {
			burst(w.b.address[0].String(), 7, 1)
		}
		if stats := w.a.Stats(); stats.Received != 19 || w.a.Remote() != w.b.address[0] {
			t.Errorf("%s: media goes to %s, %+v", from, w.a.Remote(), stats)
		}
	}
}

// TestBehindNAT has a peer whose SDP names a private address: media goes to where it comes
// from once two packets have shown it, and stays there over a re-INVITE that says the same.
func TestBehindNAT(t *testing.T) {
	for _, latch := range []bool{true, false} {
		w := newWorld(t, func(a, _ *Settings) { a.Latch = latch })
		private := w.agreed(w.b, 0)
		private.RTP, private.RTCP = netip.MustParseAddrPort("192.168.0.1:7000"), netip.MustParseAddrPort("192.168.0.1:7001")
		w.agree(w.a, private)
		w.agree(w.b, w.agreed(w.a, 0))
		w.sendBy(w.a, 0)
		w.sendBy(w.b, 0)
		w.run(time.Second)
		w.agree(w.a, private)
		w.run(time.Second)
		if got := w.a.Remote() == w.b.address[0]; got != latch {
			t.Errorf("latching %t: media goes to %s", latch, w.a.Remote())
		}
		if stats := w.a.Stats(); stats.Drops[DropProbation] != 1 || stats.Received < 95 {
			t.Errorf("latching %t: %+v", latch, stats)
		}
	}
}

// TestHighestPort has media come from the last port, which no port for reports is beside.
func TestHighestPort(t *testing.T) {
	w := newWorld(t, nil)
	a := w.agreed(w.b, 0)
	a.RTP, a.RTCP = netip.MustParseAddrPort("192.168.0.1:7000"), netip.MustParseAddrPort("192.168.0.1:7001")
	w.agree(w.a, a)
	w.sendBy(w.a, 0)
	from := "198.51.100.7:65535"
	for i := range uint16(3) {
		w.inject(w.a, from, forge(99, i, uint32(i)*Samples))
	}
	if w.a.Remote().String() != from || w.a.guard.control != a.RTCP {
		t.Errorf("media goes to %s, reports to %s", w.a.Remote(), w.a.guard.control)
	}
}

// TestNewSource has a peer begin anew with another SSRC, as some do after a hold. It has to
// wait until the old one is gone: less long when signalling has said that something changes.
func TestNewSource(t *testing.T) {
	for _, tt := range []struct {
		name        string
		after       time.Duration
		least, most uint64 // refused
	}{{"after a change", time.Second, 2, 4}, {"out of nothing", 3 * time.Second, 24, 27}} {
		w := newWorld(t, nil)
		w.connect()
		w.run(tt.after)
		w.b.out.ssrc, w.b.out.sequence, w.b.out.base = 4711, 9, 77
		w.run(2 * time.Second)
		stats := w.a.Stats()
		if refused := stats.Drops[DropSSRC] + stats.Drops[DropProbation]; refused < tt.least || refused > tt.most || w.a.guard.ssrc != 4711 {
			t.Errorf("%s: %+v", tt.name, stats)
		}
		if w.a.tally.Displaced != 0 || stats.Leaps != 0 {
			t.Errorf("%s: %d frames are displaced, %d leaps", tt.name, w.a.tally.Displaced, stats.Leaps)
		}
	}
}

// TestNewSourceAtNewPlace has signalling name another private address of the peer, whose media then comes by another
// port of its NAT with another SSRC: by a telephone that another has transferred the call to, as an example.
func TestNewSourceAtNewPlace(t *testing.T) {
	for _, secured := range []bool{false, true} {
		w := newWorld(t, nil)
		a, b := w.agreed(w.b, 0), w.agreed(w.a, 0)
		if secured {
			a, b = secure(t, a, b, 1, 2)
		}
		a.RTP = netip.MustParseAddrPort("192.168.0.1:7000")
		w.agree(w.a, a)
		w.agree(w.b, b)
		w.sendBy(w.a, 0)
		w.sendBy(w.b, 0)
		w.run(5 * time.Second)
		if w.a.Remote() != w.b.address[0] {
			t.Fatalf("media goes to %s", w.a.Remote())
		}
		a.RTP = netip.MustParseAddrPort("192.168.0.2:7002")
		w.agree(w.a, a)
		w.b.out.ssrc, w.b.out.sequence, w.b.out.base = 4711, 9, 77
		w.b.address[0] = netip.AddrPortFrom(w.b.address[0].Addr(), 6002)
		if secured { // the key proves it, wherever it comes from
			w.b.address[0] = netip.MustParseAddrPort("[2001:db8:c::1]:6002")
		}
		before := w.a.Stats().Received
		w.run(2 * time.Second)
		stats := w.a.Stats()
		if w.a.Remote() != w.b.address[0] || stats.Received-before < 90 || stats.Drops[DropSSRC] > 10 {
			t.Errorf("secure %t: media goes to %s, %+v", secured, w.a.Remote(), stats)
		}
	}
}

// TestCollision has both sides draw the same SSRC (RFC 3550 section 8.2).
func TestCollision(t *testing.T) {
	w := newWorld(t, nil)
	w.b.out.ssrc = w.a.out.ssrc
	w.connect()
	w.run(time.Second)
	if w.a.out.ssrc == w.b.out.ssrc {
		t.Error("both have the same source still")
	}
	for _, e := range []*end{w.a, w.b} {
		if stats := e.Stats(); stats.Received < 40 {
			t.Errorf("%s: %+v", e.name, stats)
		}
	}
}

// TestEcho has the peer send all back: that is a loop, from the second time on, and the SSRC changes once (RFC 3550
// section 8.2). Reports count from the change on (section 6.4.1).
func TestEcho(t *testing.T) {
	w := newWorld(t, nil)
	reports := w.reports()
	var own [][]byte
	w.seen = func(_ bool, _ int, p []byte) { own = append(own, append([]byte(nil), p...)) }
	w.agree(w.a, w.agreed(w.b, 0))
	w.sendBy(w.a, 0)
	ssrc := w.a.out.ssrc
	for echoed := 0; echoed < 100; {
		w.run(Frame)
		for _, p := range own {
			w.inject(w.a, w.b.address[0].String(), p)
			echoed++
		}
		own = own[:0]
	}
	byes := 0
	for _, r := range *reports {
		if _, ok := r[len(r)-1].(*rtcp.Goodbye); ok {
			byes++
		}
	}
	if stats := w.a.Stats(); byes != 1 || w.a.out.ssrc == ssrc || stats.Drops[DropCollision] != 1 || stats.Drops[DropOwn] != 99 {
		t.Errorf("%d BYEs, %+v", byes, stats)
	}
	w.a.sendReport(w.now, &w.a.batch, false)
	w.put(w.a)
	if sr, ok := (*reports)[len(*reports)-1][0].(*rtcp.SenderReport); !ok || sr.PacketCount != 99 || sr.OctetCount != 99*Samples {
		t.Errorf("the report is %+v", sr)
	}
}

// TestHoldByNoAddress sends nothing, no report either, to a peer that holds the call in the
// manner of RFC 2543 (RFC 3264 section 8.4), and goes on afterwards.
func TestHoldByNoAddress(t *testing.T) {
	w := newWorld(t, nil)
	w.connect()
	w.run(time.Second)
	held := w.agreed(w.b, 0)
	held.RTP, held.RTCP, held.Send, held.Held = zero, zero, false, true
	w.agree(w.a, held)
	sent, reports := w.a.Stats().Sent, w.a.Stats().Reports
	w.run(time.Minute)
	if stats := w.a.Stats(); stats.Sent != sent || stats.KeptAlive != 0 || stats.Reports != reports || w.a.Remote().IsValid() {
		t.Errorf("%+v, to %s", stats, w.a.Remote())
	}
	w.agree(w.a, w.agreed(w.b, 0))
	w.run(time.Second)
	if got := w.a.Stats().Sent - sent; got != 50 || w.b.tally.Missing() == 0 || w.b.Stats().Lost != 0 {
		t.Errorf("%d sent in a second, %d lost", got, w.b.Stats().Lost)
	}
}
