// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// full is how many octets of a message fill a chunk of the scripts, whose size is pmdcs.
const (
	full  = 1212
	pmdcs = 1228
)

// window is the state of congestion control of a path.
type window struct{ cwnd, ssthresh, partial, flight int }

// expectWindow compares that of the first path.
func (s *script) expectWindow(what string, want window) {
	s.t.Helper()
	p := s.a.paths[0]
	if got := (window{p.cwnd, p.ssthresh, p.partial, p.flight}); got != want {
		s.t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// several are so many packets of one chunk each, from a TSN on.
func several(from, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("DATA+%d", from+i))
	}
	return list
}

// large is the window of a peer that takes all.
const large = 1 << 20

// TestInitialWindow is that of RFC 9260 section 7.2.1, for IPv6 and IPv4, and for small packets.
func TestInitialWindow(t *testing.T) {
	for _, tt := range []struct {
		largest int
		ipv4    bool
		want    int
	}{{1228, false, 4344}, {1228, true, 4404}, {1468, false, 4344}, {1468, true, 4404}, {1000, false, 4000}, {1000, true, 4000}, {8948, false, 17896}, {2200, true, 4404}, {2203, true, 4406}} {
		var c congestion
		c.begin(tt.largest, tt.ipv4)
		if c.cwnd != tt.want || c.ssthresh < 1<<30 || c.partial != 0 {
			t.Errorf("%d octets, IPv4 %t: %d, want %d", tt.largest, tt.ipv4, c.cwnd, tt.want)
		}
	}
}

// TestSlowStartAndAvoidance follows the window from slow start into congestion avoidance, SACK by SACK (RFC 9260
// sections 7.2.1 and 7.2.2).
func TestSlowStartAndAvoidance(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	p := s.a.paths[0]
	p.ssthresh = 6000
	s.say(24 * full)
	s.expect("begin", several(0, 4)...)
	s.expectWindow("begin: the last packet goes over the window", window{4344, 6000, 0, 4912})
	next := 4
	for _, step := range []struct {
		what  string
		acked int
		sent  int
		want  window
	}{
		{"slow start", 2, 3, window{5572, 6000, 0, 6140}},
		{"slow start to above the threshold", 4, 3, window{6800, 6000, 0, 7368}},
		{"avoidance", 6, 2, window{6800, 6000, 2456, 7368}},
		{"avoidance", 8, 2, window{6800, 6000, 4912, 7368}},
		{"a window was acknowledged", 10, 3, window{8028, 6000, 568, 8596}},
		{"avoidance", 12, 2, window{8028, 6000, 3024, 8596}},
		{"five at once, Max.Burst sent", 17, 4, window{9256, 6000, 1136, 7368}},
		{"the window was not used", 19, 1, window{9256, 6000, 3592, 6140}},
		{"nor now", 23, 0, window{9256, 6000, 8504, 1228}},
		{"all is acknowledged", 24, 0, window{9256, 6000, 0, 0}},
	} {
		s.peer(s.sack(step.acked, large))
		s.expect(step.what, several(next, step.sent)...)
		next += step.sent
		s.expectWindow(step.what, step.want)
	}
}

// TestWindowGrowth has single SACKs meet windows of each kind.
func TestWindowGrowth(t *testing.T) {
	for _, tt := range []struct {
		name               string
		c                  congestion
		acked, before      int
		empty              bool
		cwnd, partial      int
		aloneIsOver        bool
		recoveringGoesOnAs bool
	}{
		{"slow start, less than a packet", congestion{cwnd: 4000, ssthresh: 9000}, 100, 4000, false, 4100, 0, true, false},
		{"slow start, more than a packet", congestion{cwnd: 4000, ssthresh: 9000}, 4000, 4000, false, 5228, 0, true, false},
		{"slow start at the threshold", congestion{cwnd: 9000, ssthresh: 9000}, 4000, 9000, false, 10228, 0, true, false},
		{"slow start, not used", congestion{cwnd: 4000, ssthresh: 9000}, 2000, 3999, false, 4000, 0, true, false},
		{"slow start in recovery", congestion{cwnd: 4000, ssthresh: 9000, recovering: true}, 2000, 4000, false, 4000, 0, true, true},
		{"avoidance, less than a window", congestion{cwnd: 9000, ssthresh: 4000, partial: 100}, 8899, 9000, false, 9000, 8999, true, false},
		{"avoidance, a window", congestion{cwnd: 9000, ssthresh: 4000, partial: 100}, 8900, 9000, false, 10228, 0, true, false},
		{"avoidance, more than a window", congestion{cwnd: 9000, ssthresh: 4000, partial: 8000}, 8900, 9000, false, 10228, 7900, true, false},
		{"avoidance, a window that was not used", congestion{cwnd: 9000, ssthresh: 4000, partial: 8000}, 8900, 8999, false, 9000, 9000, true, false},
		{"avoidance, all acknowledged", congestion{cwnd: 9000, ssthresh: 4000, partial: 100}, 200, 200, true, 9000, 0, true, false},
		{"after a timeout", congestion{cwnd: 1228, ssthresh: 4912, alone: true}, 1228, 1228, false, 2456, 0, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.c
			c.grow(tt.acked, tt.before, pmdcs, tt.empty)
			if c.cwnd != tt.cwnd || c.partial != tt.partial || c.alone == tt.aloneIsOver || c.recovering != tt.recoveringGoesOnAs {
				t.Errorf("%+v", c)
			}
		})
	}
}

// lossy is a script with a window that is open wide, and 14 packets out.
func lossy(t *testing.T) *script {
	par := quiet()
	par.MaxBurst = 100
	s := accepted(t, par, 1, 1)
	s.a.paths[0].cwnd = 20 * pmdcs
	s.say(14 * full)
	s.expect("begin", several(0, 14)...)
	return s
}

// TestFastRetransmit has the first packet get lost, and its copy, too (RFC 9260 sections 7.2.3 and 7.2.4).
func TestFastRetransmit(t *testing.T) {
	s := lossy(t)
	s.peer(s.sack(0, large, chunk.Block{First: 2, Last: 2}))
	s.peer(s.sack(0, large, chunk.Block{First: 2, Last: 3}))
	s.expect("two reports")
	s.expectWindow("two reports", window{24560, unlimited, 0, 12 * pmdcs})
	s.peer(s.sack(0, large, chunk.Block{First: 2, Last: 4}))
	s.expect("the third", "DATA+0")
	s.expectWindow("the window is halved once", window{12280, 12280, 0, 11 * pmdcs})
	s.say(3 * full)
	s.expect("the window is full")
	for last := uint16(5); last <= 7; last++ {
		s.peer(s.sack(0, large, chunk.Block{First: 2, Last: last}))
	}
	s.expect("reports of the copy: no second fast retransmission, but new data", "DATA+14", "DATA+15")
	s.expectWindow("the window stays", window{12280, 12280, 0, 10 * pmdcs})
	s.run(time.Second)
	s.expect("T3", "DATA+0")
	s.expectWindow("T3", window{pmdcs, 6140, 0, pmdcs})
	if s.e.Counters.FastRetrans != 1 || s.e.Counters.Timeouts != 1 || s.e.Counters.Retransmitted != 1 {
		t.Errorf("%+v", s.e.Counters)
	}
}

// TestFastRecovery has two packets of a window get lost: the window is cut once, both are sent, the first at once and
// the second as the window allows; it is left when all that was out is acknowledged.
func TestFastRecovery(t *testing.T) {
	s := lossy(t)
	s.peer(s.sack(0, large, chunk.Block{First: 2, Last: 2}, chunk.Block{First: 4, Last: 4}))
	s.peer(s.sack(0, large, chunk.Block{First: 2, Last: 2}, chunk.Block{First: 4, Last: 5}))
	s.expect("two reports")
	s.peer(s.sack(0, large, chunk.Block{First: 2, Last: 2}, chunk.Block{First: 4, Last: 6}))
	s.expect("the third of both", "DATA+0", "DATA+2")
	s.expectWindow("one cut", window{12280, 12280, 0, 10 * pmdcs})
	if p := s.a.paths[0]; !p.recovering || p.recoverTSN != s.a.firstTSN+13 {
		t.Errorf("recovers until %d", p.recoverTSN-s.a.firstTSN)
	}
	// Packet 9 is lost, too. While the path recovers and the cumulative TSN moves, all that is reported missing counts.
	s.peer(s.sack(2, large, chunk.Block{First: 2, Last: 7}, chunk.Block{First: 9, Last: 9}))
	s.peer(s.sack(9, large, chunk.Block{First: 2, Last: 2}))
	s.expect("two reports of 9")
	s.expectWindow("no growth in recovery", window{12280, 12280, 0, 4 * pmdcs})
	s.peer(s.sack(9, large, chunk.Block{First: 2, Last: 3}))
	s.expect("the third", "DATA+9")
	s.expectWindow("no second cut", window{12280, 12280, 0, 3 * pmdcs})
	s.peer(s.sack(13, large))
	if !s.a.paths[0].recovering {
		t.Error("recovery ends before all is acknowledged")
	}
	s.peer(s.sack(14, large))
	s.expectWindow("the end", window{12280, 12280, 0, 0})
	if s.a.paths[0].recovering {
		t.Error("recovery does not end")
	}
}

// TestMissReports counts reports by the highest TSN that is newly acknowledged (RFC 9260 section 7.2.4).
func TestMissReports(t *testing.T) {
	block := func(first, last uint16) chunk.Block { return chunk.Block{First: first, Last: last} }
	for _, tt := range []struct {
		name  string
		sacks [][]chunk.Block
		want  []uint8 // reports of chunks 0, 4 and 8
	}{
		{"one packet", [][]chunk.Block{{block(2, 2)}}, []uint8{1, 0, 0}},
		{"the same again", [][]chunk.Block{{block(2, 2)}, {block(2, 2)}}, []uint8{1, 0, 0}},
		{"below a gap that is known", [][]chunk.Block{{block(2, 2), block(6, 6)}, {block(2, 3), block(6, 6)}}, []uint8{2, 1, 0}},
		{"above it", [][]chunk.Block{{block(2, 2), block(6, 6)}, {block(2, 2), block(6, 7)}}, []uint8{2, 2, 0}},
		{"a SACK that has overtaken another", [][]chunk.Block{{block(2, 4), block(6, 8), block(10, 10)}, {block(2, 3)}}, []uint8{1, 1, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := lossy(t)
			for _, blocks := range tt.sacks {
				s.peer(s.sack(0, large, blocks...))
			}
			for i, want := range tt.want {
				if got := s.a.sent.at(4 * i).misses; got != want {
					t.Errorf("chunk %d has %d reports, want %d", 4*i, got, want)
				}
			}
		})
	}
}

// TestFastRetransmitIgnoresWindow sends the one packet although the window is full (RFC 9260 section 7.2.4, 3).
func TestFastRetransmitIgnoresWindow(t *testing.T) {
	s := lossy(t)
	p := s.a.paths[0]
	p.cwnd = 2 * pmdcs
	for last := uint16(2); last <= 4; last++ {
		s.peer(s.sack(0, large, chunk.Block{First: 2, Last: last}))
	}
	s.expect("the third report", "DATA+0")
	s.expectWindow("at least four packets", window{4 * pmdcs, 4 * pmdcs, 0, 11 * pmdcs})
}

// TestSlowStartAfterTimeout has one packet on its way until it is acknowledged, and the rest follow in slow start (RFC
// 9260 sections 6.3.3 and 7.2.3).
func TestSlowStartAfterTimeout(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.say(6 * full)
	s.expect("begin", several(0, 4)...)
	s.run(time.Second)
	s.expect("T3", "DATA+0")
	s.expectWindow("T3", window{pmdcs, 4 * pmdcs, 0, pmdcs})
	s.peer(chunk.AppendHeartbeat(nil, []byte("x")))
	s.expect("nothing but an answer", "HEARTBEAT-ACK")
	s.run(2*time.Second - time.Millisecond)
	s.expect("RTO is doubled")
	s.run(time.Millisecond)
	s.expect("T3 again", "DATA+0")
	s.peer(s.sack(1, large))
	s.expect("acknowledged", "DATA+1", "DATA+2")
	s.expectWindow("slow start", window{2 * pmdcs, 4 * pmdcs, 0, 2 * pmdcs})
	s.peer(s.sack(3, large))
	s.expect("first what is marked, then new data", "DATA+3", "DATA+4", "DATA+5")
	s.expectWindow("slow start", window{3 * pmdcs, 4 * pmdcs, 0, 3 * pmdcs})
}

// TestTimeoutFillsOnePacket bundles as many of the earliest chunks as fit (RFC 9260 section 6.3.3, E3).
func TestTimeoutFillsOnePacket(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	for range 20 {
		s.say(84) // 100 octets of a chunk
	}
	s.take()
	s.run(time.Second)
	if got := s.sent(); len(got) != 1 || got[0] != "DATA+0 DATA+1 DATA+2 DATA+3 DATA+4 DATA+5 DATA+6 DATA+7 DATA+8 DATA+9 DATA+10 DATA+11" {
		t.Errorf("sent is %q", got)
	}
	s.expectWindow("T3", window{pmdcs, 4 * pmdcs, 0, 1200})
}

// TestIdleWindow halves the window for each RTO in which no data is sent, and remembers where it was (RFC 9260 section
// 7.2.1).
func TestIdleWindow(t *testing.T) {
	for _, tt := range []struct {
		idle time.Duration // in RTO
		cwnd int
	}{{0, 20_000}, {1, 10_000}, {2, 5000}, {3, 4 * pmdcs}, {100, 4 * pmdcs}} {
		s := accepted(t, quiet(), 1, 1)
		s.say(100)
		s.peer(s.sack(1, large))
		p := s.a.paths[0]
		p.cwnd = 20_000
		s.run(tt.idle * p.rto)
		s.say(100)
		want := 20_000
		if tt.idle == 0 {
			want = unlimited
		}
		if p.cwnd != tt.cwnd || p.ssthresh != want {
			t.Errorf("after %d RTO: %d, %d; want %d, %d", tt.idle, p.cwnd, p.ssthresh, tt.cwnd, want)
		}
	}
}

// TestMaxBurst sends no more than Max.Burst packets of new data at once, a SACK that goes with them or not (RFC 9260
// section 6.1, D).
func TestMaxBurst(t *testing.T) {
	par := quiet()
	par.MaxBurst = 3
	s := accepted(t, par, 1, 1)
	s.a.paths[0].cwnd = 1 << 20
	s.say(20 * full)
	s.expect("begin", several(0, 3)...)
	s.peer(s.sack(1, large))
	s.expect("a SACK", several(3, 3)...)
	s.peer(s.data(0, "x"))
	if got := s.sent(); len(got) > 4 || !slices.Contains(got, "DATA+6") || slices.Contains(got, "DATA+9") {
		t.Errorf("sent is %q", got)
	}
	if p := s.a.paths[0]; p.cwnd != 1<<20 {
		t.Errorf("the window was changed: %d", p.cwnd)
	}
}

// TestWindowsOfPaths keeps windows apart: what is acknowledged counts for the path that it went by (RFC 9260 section
// 7.2.1).
func TestWindowsOfPaths(t *testing.T) {
	s := accepted(t, quiet(), 1, 2)
	first, second := s.a.paths[0], s.a.path(Pair{s.local[0], s.remote[1]})
	second.confirmed = true
	s.say(4 * full)
	if !s.a.SetPrimary(second.Pair) {
		t.Fatal("not taken for primary")
	}
	s.say(2 * full)
	s.expect("two paths", "DATA+0", "DATA+1", "DATA+2", "DATA+3", "to 1: DATA+4", "to 1: DATA+5")
	s.peer(s.sack(4, large, chunk.Block{First: 2, Last: 2}))
	if first.cwnd != 4344+pmdcs || first.flight != 0 || !first.t3.IsZero() {
		t.Errorf("first: %+v", first.congestion)
	}
	if second.cwnd != 4344 || second.flight != pmdcs || second.t3.IsZero() {
		t.Errorf("second: %+v", second.congestion)
	}
}
