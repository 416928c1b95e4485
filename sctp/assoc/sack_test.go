// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// ready is a script whose first data has come and is acknowledged.
func ready(t *testing.T, par Parameters, local, remote int) *script {
	s := accepted(t, par, local, remote)
	s.peer(s.data(0, "first"))
	s.expect("the first data of an association", "SACK+0") // RFC 9260 section 5.1
	s.events = nil
	return s
}

// TestDelayedSACK acknowledges every second packet, or after SACK.Delay, which is never more than 500 ms (RFC 9260
// section 6.2).
func TestDelayedSACK(t *testing.T) {
	for _, tt := range []struct{ par, want time.Duration }{{0, 0}, {200, 200}, {500, 500}, {501, 500}, {10_000, 500}} {
		par := quiet()
		par.SACKDelay = tt.par * time.Millisecond
		s := ready(t, par, 1, 1)
		s.peer(s.data(1, "a"))
		if tt.want > 0 {
			s.run(tt.want*time.Millisecond - 1)
			s.expect("too early")
		}
		s.run(1)
		s.expect(fmt.Sprint(tt.par), "SACK+1")
	}
	s := ready(t, quiet(), 1, 1)
	s.peer(s.data(1, "a"), s.data(2, "b"), s.data(3, "c"))
	s.expect("one packet of three chunks")
	s.peer(s.data(4, "d"))
	s.expect("the second packet", "SACK+4")
	s.run(time.Second)
	s.expect("nothing more")
	s.peer(s.data(5, "e"))
	s.say(10)
	s.expect("a SACK goes with data", "SACK+5 DATA+0")
	s.run(900 * time.Millisecond)
	s.expect("no SACK is owed any more")
}

// TestImmediateSACK does not wait for what the sender wants to know at once (RFC 9260 sections 6.2 and 6.7).
func TestImmediateSACK(t *testing.T) {
	s := ready(t, quiet(), 1, 1)
	urgent := chunk.Data{TSN: scriptTSN + 1, Message: 1, Immediate: true, First: true, Last: true, User: []byte("x")}
	s.message = 2
	s.peer(urgent.Append(nil, false))
	s.expect("I bit", "SACK+1")
	s.peer(s.data(4, "gap"))
	s.expect("a gap", "SACK+1,3-3")
	s.peer(s.data(6, "gap"), s.data(7, "gap"))
	s.expect("another", "SACK+1,3-3,5-6")
	s.peer(s.data(8, "gap"))
	s.expect("the gaps are not filled", "SACK+1,3-3,5-7")
	s.peer(s.data(2, "fill"))
	s.expect("nor now", "SACK+2,2-2,4-6")
	s.peer(s.data(3, "fill"), s.data(5, "fill"))
	s.run(200 * time.Millisecond)
	s.expect("filled", "SACK+8")
	s.peer(s.data(5, "again"))
	s.expect("a duplicate", "SACK+8,twice:5")
	s.peer(s.data(8, "again"), s.data(9, "new"), s.data(8, "again"))
	s.expect("duplicates with new data", "SACK+9,twice:8,twice:8")
	s.peer(s.data(10, "new"))
	s.run(time.Second)
	s.expect("they are told once", "SACK+10")
	if s.e.Counters.Duplicate != 3 {
		t.Errorf("%+v", s.e.Counters)
	}
}

// TestGapsFit reports the lowest gaps that fit into a packet, in one SACK (RFC 9260 section 6.7).
func TestGapsFit(t *testing.T) {
	s := ready(t, quiet(), 1, 1)
	for i := range 700 {
		s.peer(s.data(2+2*i, "x"))
	}
	s.take()
	s.peer(s.data(2+2*700, "x"))
	packets := s.take()
	if len(packets) != 1 || len(packets[0].Octets) > 1240 || len(packets[0].Octets) < 1236 {
		t.Fatalf("%d packets", len(packets))
	}
	_, rest, _ := chunk.Open(packets[0].Octets)
	c, _, _ := chunk.Next(rest)
	ack, err := chunk.ParseSACK(c.Body)
	if err != nil {
		t.Fatal(err)
	}
	blocks := slices.Collect(ack.Blocks())
	for i, b := range blocks {
		if want := uint16(2 + 2*i); b != (chunk.Block{First: want, Last: want}) {
			t.Fatalf("block %d is %v", i, b)
		}
	}
	if len(blocks) != 303 {
		t.Errorf("%d blocks", len(blocks))
	}
	for range 100 { // so many duplicates must not crowd the gaps out
		s.peer(s.data(2, "x"))
	}
}

// TestGapBlocks compares the blocks with a plain count, for random TSNs.
func TestGapBlocks(t *testing.T) {
	w := newWorld(t, dual(), Defaults())
	for range 200 {
		first := w.dice.Uint32()
		got, plain := tsns{cumulative: first - 1}, map[uint32]bool{}
		for range 300 {
			tsn := first + w.dice.Uint32N(400)
			if got.has(tsn) != (plain[tsn] || before(tsn, got.cumulative+1)) {
				t.Fatalf("has %d: %t", tsn-first, got.has(tsn))
			}
			if !got.has(tsn) {
				got.add(tsn)
			}
			if plain[tsn] = true; w.dice.IntN(200) == 0 {
				skip := first + w.dice.Uint32N(100)
				got.skip(skip)
				for n := first; n != skip+1; n++ {
					plain[n] = true
				}
			}
		}
		var want []chunk.Block
		cumulative := first - 1
		for plain[cumulative+1] {
			cumulative++
		}
		for i := uint32(1); i < 500; i++ {
			if !plain[cumulative+i] {
				continue
			}
			if n := len(want); n > 0 && want[n-1].Last == uint16(i-1) {
				want[n-1].Last++
			} else {
				want = append(want, chunk.Block{First: uint16(i), Last: uint16(i)})
			}
		}
		blocks := got.gaps(nil, 1000)
		if got.cumulative != cumulative || !slices.Equal(blocks, want) {
			t.Fatalf("from %d: %d, %v; want %d, %v", first, got.cumulative, blocks, cumulative, want)
		}
		if most := len(want) / 2; !slices.Equal(got.gaps(nil, most), want[:most]) {
			t.Fatalf("the first %d of %v are %v", most, want, got.gaps(nil, most))
		}
	}
}

// TestOneSACKPerPacket sends no more than one (RFC 9260 section 6.2).
func TestOneSACKPerPacket(t *testing.T) {
	s := ready(t, quiet(), 1, 1)
	bad := (&chunk.Data{TSN: scriptTSN + 3, Stream: 99, First: true, Last: true, User: []byte("x")}).Append(nil, false)
	s.peer(chunk.AppendHeartbeat(nil, []byte("x")), s.data(5, "x"), s.data(5, "x"), bad, s.data(7, "x"))
	if got := strings.Join(s.sent(), " "); strings.Count(got, "SACK") != 1 {
		t.Errorf("sent is %q", got)
	}
}

// TestInvalidStream acknowledges data of a stream that there is none of, and says so (RFC 9260 section 6.5).
func TestInvalidStream(t *testing.T) {
	s := ready(t, quiet(), 1, 1)
	for n, stream := range []uint16{10, 65535} { // 0 to 9 are the peer's
		s.peer((&chunk.Data{TSN: scriptTSN + 1 + uint32(n), Stream: stream, First: true, Last: true, User: []byte("x")}).Append(nil, false))
		packets := s.packets
		s.expect("invalid", fmt.Sprintf("ERROR:1 SACK+%d", n+1))
		if _, rest, _ := chunk.Open(packets[0].Octets); rest[8] != byte(stream>>8) || rest[9] != byte(stream) {
			t.Errorf("the ERROR is %x", rest[:12])
		}
	}
	if s.received() != "" || len(s.a.in) > 10 || s.e.Counters.BadStream != 2 {
		t.Errorf("%+v", s.e.Counters)
	}
}

// TestNoUserData aborts (RFC 9260 section 6.2).
func TestNoUserData(t *testing.T) {
	s := ready(t, quiet(), 1, 1)
	s.peer((&chunk.Data{TSN: scriptTSN + 1, First: true, Last: true}).Append(nil, false))
	s.expect("no user data", "ABORT:9")
	if e, failed := s.saw(Failed); !failed || e.Cause != chunk.CauseNoUserData {
		t.Errorf("%v, %+v", failed, e)
	}
}

// TestFarTSN drops data that no gap can tell, at both ends of what is near, and answers at once.
func TestFarTSN(t *testing.T) {
	for _, tt := range []struct {
		ahead uint32
		kept  bool
	}{{65535, true}, {65536, false}, {1 << 20, false}, {1<<31 - 1, false}} {
		s := ready(t, quiet(), 1, 1)
		s.peer((&chunk.Data{TSN: scriptTSN + tt.ahead, Message: 7, First: true, Last: true, User: []byte("x")}).Append(nil, false))
		if tt.kept {
			s.expect("near", "SACK+0,65535-65535")
		} else if s.expect("far", "SACK+0"); s.e.Counters.BeyondWindow != 1 || s.a.held != 0 {
			t.Errorf("%d ahead: %+v", tt.ahead, s.e.Counters)
		}
	}
	s := ready(t, quiet(), 1, 1)
	old := (&chunk.Data{TSN: scriptTSN, First: true, Last: true, User: []byte("x")}).Append(nil, false)
	s.peer(old)
	s.expect("old", "SACK+0,twice:0")
}

// TestClosedWindow has the user not read: when the window is closed data beyond the highest TSN is dropped, what fills
// a gap is taken, and each is answered at once (RFC 9260 section 6.2).
func TestClosedWindow(t *testing.T) {
	par := quiet()
	par.ReceiveBuffer = 5000
	s := ready(t, par, 1, 1)
	s.a.Read(5, s.now, &s.out)
	block := strings.Repeat("x", 1000)
	for i := 1; i <= 4; i++ {
		s.peer(s.data(i, block))
	}
	s.peer(s.data(6, block)) // its message waits for 5's, which is behind it: so the numbers say
	s.take()
	window := func() int {
		_, rest, _ := chunk.Open(s.packets[len(s.packets)-1].Octets)
		c, _, _ := chunk.Next(rest)
		ack, _ := chunk.ParseSACK(c.Body)
		return int(ack.Window)
	}
	s.peer(s.data(7, block))
	if window() != 0 {
		t.Errorf("the window is %d", window())
	}
	s.expect("beyond", "SACK+4,2-2")
	s.peer(s.data(5, block))
	s.expect("what fills the gap is taken")
	s.peer(s.data(7, block))
	s.expect("beyond", "SACK+6")
	if s.e.Counters.BeyondWindow != 2 {
		t.Errorf("%+v", s.e.Counters)
	}
	// The user reads: the peer is told when a quarter of the buffer is free, and not for each octet.
	updates := 0
	for range 60 {
		s.a.Read(100, s.now, &s.out)
		s.collect()
		updates += len(s.take())
	}
	if updates < 1 || updates > 4 {
		t.Errorf("%d updates of the window", updates)
	}
	s.peer(s.data(7, block))
	s.run(time.Second)
	s.expect("open again", "SACK+7")
}

// TestGapFillersAreBounded has a peer open a gap as wide as may be, and fill it while the user does not read: no more
// is taken than twice the buffer.
func TestGapFillersAreBounded(t *testing.T) {
	par := quiet()
	par.ReceiveBuffer = 20_000
	s := ready(t, par, 1, 1)
	far := (&chunk.Data{TSN: scriptTSN + 1000, Message: 1, Unordered: true, First: true, Last: true, User: []byte("x")}).Append(nil, false)
	s.peer(far)
	for i := 1; i < 1000; i++ {
		s.peer(s.data(i, strings.Repeat("x", 1000)))
	}
	if got := s.a.occupied(); got > 3*par.ReceiveBuffer {
		t.Errorf("%d octets are held of a buffer of %d", got, par.ReceiveBuffer)
	}
}

// TestSACKTakesTheWayOfTheData goes back to where the data came from, and does not vary; for a duplicate that came the
// same way as the last SACK went, it tries another (RFC 9260 section 6.4).
func TestSACKTakesTheWayOfTheData(t *testing.T) {
	s := ready(t, quiet(), 1, 2)
	second := s.a.path(Pair{s.local[0], s.remote[1]})
	second.confirmed = true
	s.raw(second.Pair, s.a.tag, s.data(1, "a"), s.data(3, "gap"))
	s.expect("from the second", "to 1: SACK+1,2-2")
	s.peer(s.data(4, "gap"))
	s.expect("from the first", "SACK+1,2-3")
	s.peer(s.data(4, "again"))
	s.expect("a duplicate", "to 1: SACK+1,2-3,twice:4")
	s.peer(s.data(4, "again"))
	s.expect("the same duplicate", "SACK+1,2-3,twice:4")
	s.raw(second.Pair, s.a.tag, s.data(4, "again"))
	s.expect("by the second", "to 1: SACK+1,2-3,twice:4")
}

// TestSACKOfWhatWasNotSent ends the association; blocks that cannot be are passed over (RFC 9260 section 6.2.1).
func TestSACKOfWhatWasNotSent(t *testing.T) {
	for _, tt := range []struct {
		name string
		sack func(s *script) []byte
		ends bool
		bad  uint64
		left int // octets in flight, in packets
	}{
		{"the next TSN", func(s *script) []byte { return s.sack(5, large) }, true, 1, 0},
		{"far ahead", func(s *script) []byte { return s.sack(1<<31-1, large) }, true, 1, 0},
		{"all", func(s *script) []byte { return s.sack(4, large) }, false, 0, 0},
		{"long ago", func(s *script) []byte { return s.sack(-5, large) }, false, 0, 4},
		{"a block beyond", func(s *script) []byte { return s.sack(1, large, chunk.Block{First: 4, Last: 4}) }, false, 1, 3},
		{"a block that goes beyond", func(s *script) []byte { return s.sack(1, large, chunk.Block{First: 2, Last: 4}) }, false, 1, 3},
		{"a block of all", func(s *script) []byte { return s.sack(1, large, chunk.Block{First: 2, Last: 65535}) }, false, 1, 3},
		{"a block of 0", func(s *script) []byte { return s.sack(1, large, chunk.Block{First: 0, Last: 3}) }, false, 1, 3},
		{"a block backwards", func(s *script) []byte { return s.sack(0, large, chunk.Block{First: 3, Last: 2}) }, false, 1, 4},
		{"blocks out of order", func(s *script) []byte {
			return s.sack(0, large, chunk.Block{First: 4, Last: 4}, chunk.Block{First: 2, Last: 2})
		}, false, 1, 3},
		{"blocks that overlap", func(s *script) []byte {
			return s.sack(0, large, chunk.Block{First: 2, Last: 3}, chunk.Block{First: 3, Last: 4})
		}, false, 1, 2},
		{"twice the same block", func(s *script) []byte {
			return s.sack(0, large, chunk.Block{First: 2, Last: 3}, chunk.Block{First: 2, Last: 3})
		}, false, 1, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := accepted(t, quiet(), 1, 1)
			s.say(4 * full)
			s.take()
			s.peer(tt.sack(s))
			if ended := s.a.state == closed; ended != tt.ends || s.e.Counters.BadSACK != tt.bad {
				t.Errorf("ended %t, %+v", ended, s.e.Counters)
			}
			if tt.ends {
				s.expect("the end", "ABORT:13")
			} else if s.a.paths[0].flight != tt.left*pmdcs {
				t.Errorf("%d octets are in flight", s.a.paths[0].flight)
			}
		})
	}
}

// TestOldSACK drops a SACK that another has overtaken (RFC 9260 section 6.2.1, D i).
func TestOldSACK(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.say(4 * full)
	s.peer(s.sack(3, 10_000))
	s.peer(s.sack(2, 1, chunk.Block{First: 2, Last: 2}))
	if s.a.peerWindow != 10_000-full || s.a.sent.length != 1 || s.e.Counters.OldSACK != 1 {
		t.Errorf("window %d, %d chunks, %+v", s.a.peerWindow, s.a.sent.length, s.e.Counters)
	}
}

// TestPeerWindow follows the peer's window (RFC 9260 section 6.2.1, A to D): user data counts, without headers.
func TestPeerWindow(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	s.init.Window = 5000
	s.accept()
	window := func(what string, want int) {
		t.Helper()
		if s.a.peerWindow != want {
			t.Errorf("%s: the window is %d, want %d", what, s.a.peerWindow, want)
		}
	}
	window("at first", 5000)
	s.say(6 * full)
	window("sent", 5000-4*full)
	s.take()
	s.peer(s.sack(1, 2000))
	window("three are out", 0)
	s.expect("no room", []string(nil)...)
	s.run(time.Second)
	window("one is out", 3*full-full)
	s.expect("T3", "DATA+1")
	s.peer(s.sack(2, 2000, chunk.Block{First: 2, Last: 2}))
	s.take()
	window("the other is marked, and sent again", 2000-full)
}

// TestReneging has the peer drop what it had told (RFC 9260 sections 6.2.1, D iii, and 6.3.2, R4): it is in flight
// again, has one report, and a timer runs for it.
func TestReneging(t *testing.T) {
	begin := func() *script {
		s := accepted(t, quiet(), 1, 1)
		s.say(4 * full)
		s.take()
		s.peer(s.sack(0, large, chunk.Block{First: 2, Last: 4}))
		return s
	}
	for _, tt := range []struct {
		name string
		sack func(s *script) []byte
		left int
	}{
		{"the first of three", func(s *script) []byte { return s.sack(0, large, chunk.Block{First: 3, Last: 4}) }, 2},
		{"the last of three", func(s *script) []byte { return s.sack(0, large, chunk.Block{First: 2, Last: 3}) }, 2},
		{"all", func(s *script) []byte { return s.sack(0, large) }, 4},
		{"all behind the cumulative TSN", func(s *script) []byte { return s.sack(1, large) }, 3},
		{"all but the last", func(s *script) []byte { return s.sack(1, large, chunk.Block{First: 3, Last: 3}) }, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := begin()
			s.peer(tt.sack(s))
			p := s.a.paths[0]
			if p.flight != tt.left*pmdcs || p.t3.IsZero() {
				t.Errorf("%d octets are in flight, T3 at %v", p.flight, p.t3)
			}
			s.run(time.Minute)
			for range 20 {
				s.peer(s.sack(int(s.a.acked-s.a.firstTSN+1)+1, large))
				if s.a.sent.length == 0 {
					return
				}
				s.run(time.Second)
			}
			t.Error("what was dropped is not sent again")
		})
	}
	t.Run("a SHUTDOWN says nothing of gaps", func(t *testing.T) { // RFC 9260 section 3.3.8
		s := begin()
		s.peer(chunk.AppendShutdown(nil, s.a.firstTSN-1))
		if p := s.a.paths[0]; p.flight != pmdcs {
			t.Errorf("%d octets are in flight", p.flight)
		}
	})
}

// TestZeroWindowProbe asks a closed window again and again, later each time, and never takes the silence for a failure
// while SACKs come (RFC 9260 section 6.1, A).
func TestZeroWindowProbe(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	s.init.Window = 1500
	s.accept()
	s.say(5 * full)
	s.expect("as much as there is room for", "DATA+0")
	s.peer(s.sack(1, 0))
	s.expect("closed")
	probes, last, gap := 0, s.now, time.Duration(0)
	for s.now.Sub(start) < 2*time.Hour {
		s.run(100 * time.Millisecond)
		if got := s.sent(); len(got) > 0 {
			if len(got) != 1 || got[0] != "DATA+1" {
				t.Fatalf("probe %d is %q", probes, got)
			}
			if since := s.now.Sub(last); since < gap-200*time.Millisecond {
				t.Errorf("probe %d comes %v after the last, which came %v after its", probes, since, gap)
			} else {
				gap = since
			}
			if last = s.now; probes == 0 && gap < time.Second {
				t.Errorf("the first probe comes after %v", gap)
			}
			probes++
			s.peer(s.sack(1, 0)) // dropped
		}
	}
	if probes < 100 || s.a.state != established || s.a.errors != 0 || s.a.paths[0].errors != 0 || s.a.paths[0].state != Active {
		t.Errorf("%d probes, %d errors, the path has %d", probes, s.a.errors, s.a.paths[0].errors)
	}
	s.peer(s.sack(2, 10*full))
	s.expect("open", "DATA+2", "DATA+3")
}

// TestClosedWindowOfLinkDown asks a closed window at once, by another link, when the one in use is down: the SACK that opens
// it may have been lost there, and the next question is up to an RTO away.
func TestClosedWindowOfLinkDown(t *testing.T) {
	s := newScript(t, quiet(), 2, 1)
	s.init.Window = 1500
	s.accept()
	s.confirmAll()
	s.say(5 * full)
	s.expect("as much as there is room for", "DATA+0")
	s.peer(s.sack(1, 0))
	s.expect("closed")
	s.a.LinkDown(s.local[:1], s.now, &s.out)
	s.collect()
	packets := s.take()
	if len(packets) != 1 || s.describe(packets[0]) != "DATA+1" || packets[0].Local != s.local[1] {
		t.Errorf("sent is %v", packets)
	}
	s.raw(Pair{s.local[1], s.remote[0]}, s.a.tag, s.sack(2, 10*full))
	s.expect("open", "DATA+2", "DATA+3", "DATA+4")
}

// TestSilentZeroWindow counts probes that nothing answers as any other data.
func TestSilentZeroWindow(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	s.init.Window = 1500
	s.accept()
	s.say(5 * full)
	s.peer(s.sack(1, 0))
	s.run(2 * time.Hour)
	if e, failed := s.saw(Failed); !failed || e.Reason != ReasonNoAnswer {
		t.Errorf("a silent peer is waited for without end: %+v", e)
	}
}

// TestSillyWindow sends no small pieces into a window that opens bit by bit (RFC 9260 section 6.1, A).
func TestSillyWindow(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	s.init.Window = 1500
	s.accept()
	s.say(5 * full)
	s.take()
	s.peer(s.sack(1, full-1))
	s.expect("less than a chunk")
	s.peer(s.sack(1, full))
	s.expect("a chunk", "DATA+1")
}
