// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/media/wav"
)

// file is one in memory.
type file struct{ b []byte }

func (f *file) WriteAt(p []byte, at int64) (int, error) {
	if n := int(at) + len(p); n > len(f.b) {
		f.b = append(f.b, make([]byte, n-len(f.b))...)
	}
	return copy(f.b[at:], p), nil
}

// song is a sound of so many frames in which no two are alike.
func song(frames int) *wav.Sound {
	s := &wav.Sound{Format: wav.MuLaw, Data: make([]byte, frames*Samples)}
	for i := range s.Data {
		s.Data[i] = byte(i/Samples*7 + i*i/3)
	}
	return s
}

// TestRecording has what is received equal what was sent, octet by octet, but for what a
// hard move loses.
func TestRecording(t *testing.T) {
	const frames = 200
	sent, got := song(frames), &file{}
	recorder := wav.NewRecorder(got, wav.MuLaw, 1<<20)
	w := newWorld(t, func(a, b *Settings) { a.Source, b.Sink = sent, recorder })
	w.connect()
	w.run(2 * time.Second)
	// The old way ends, and the new one is there 70 ms later.
	w.lose = func(path int, fromA, _ bool, _ []byte) bool { return path == 0 }
	w.inFlight = nil
	w.a.Mark(w.now)
	w.run(70 * time.Millisecond)
	w.sendBy(w.a, 1)
	w.run(4 * time.Second)
	if err := recorder.Close(); err != nil {
		t.Fatal(err)
	}
	received, err := wav.Decode(got.b)
	if err != nil || received.Len() < len(sent.Data) {
		t.Fatalf("the recording has %d samples, %v", received.Len(), err)
	}
	silent := bytes.Repeat([]byte{0xff}, Samples)
	var missing int64
	for i := range frames {
		there := received.Data[i*Samples : (i+1)*Samples]
		switch {
		case bytes.Equal(there, sent.Data[i*Samples:(i+1)*Samples]):
		case bytes.Equal(there, silent):
			missing++
		default:
			t.Errorf("frame %d is another", i)
		}
	}
	if stats := w.b.Stats(); missing == 0 || missing > 6 || stats.Lost != missing {
		t.Errorf("%d frames are missing, and %d are counted as lost", missing, stats.Lost)
	}
}

// TestHardMove goes through a move whose re-INVITE takes as long as media: the gap up is no
// longer than the break, the gap down a round trip more, and nobody sends to the old place.
func TestHardMove(t *testing.T) {
	for _, tt := range []struct {
		name     string
		signal   time.Duration // after the move, that the peer hears of it; 0: never
		latch    bool
		down, up time.Duration // gaps at most
	}{
		{"signalled at once", 25 * time.Millisecond, true, 80 * time.Millisecond, 40 * time.Millisecond},
		{"signalled at once, without latching", 25 * time.Millisecond, false, 80 * time.Millisecond, 40 * time.Millisecond},
		{"signalled late: it latches", 500 * time.Millisecond, true, 160 * time.Millisecond, 40 * time.Millisecond},
		{"never signalled: it latches", 0, true, 160 * time.Millisecond, 40 * time.Millisecond},
		{"signalled late, without latching", 500 * time.Millisecond, false, 560 * time.Millisecond, 40 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(_, b *Settings) { b.Latch = tt.latch })
			w.connect()
			w.run(time.Second)
			w.lose = func(path int, _, _ bool, _ []byte) bool { return path == 0 }
			w.inFlight = nil
			w.a.Mark(w.now)
			w.b.Mark(w.now)
			w.sendBy(w.a, 1)
			if tt.signal > 0 {
				w.run(tt.signal)
				w.agree(w.b, w.agreed(w.a, 1))
			}
			w.run(2 * time.Second)
			a, b := w.a.Handoff(w.now), w.b.Handoff(w.now)
			if a.Gap > tt.down || b.Gap > tt.up {
				t.Errorf("the gap down is %s, up %s", a.Gap, b.Gap)
			}
			if w.b.Remote() != w.a.address[1] {
				t.Errorf("media goes to %s", w.b.Remote())
			}
			if !slices.Contains(w.a.happened(), PathHeard) || a.FirstSent.IsZero() || a.FirstHeard.Sub(a.FirstSent) < 50*time.Millisecond {
				t.Errorf("the new path was used from %s on and heard at %s", a.FirstSent, a.FirstHeard)
			}
			// What was under way is lost, and what went to the old place until then.
			if lost := uint64(a.Lost); lost != w.a.tally.Missing() || a.Gap/Frame > time.Duration(lost)+1 {
				t.Errorf("%d lost down, %d missing, in a gap of %s", lost, w.a.tally.Missing(), a.Gap)
			}
			if w.a.tally.Displaced+w.b.tally.Displaced+w.a.tally.Repeated+w.b.tally.Repeated+w.a.tally.Damaged != 0 {
				t.Errorf("A %+v\nB %+v", w.a.tally, w.b.tally)
			}
		})
	}
}

// TestSoftMove loses nothing, whatever the ways differ by: the old socket still takes what is
// under way, and nothing latches back to it.
func TestSoftMove(t *testing.T) {
	for _, tt := range []struct {
		name     string
		old, new time.Duration
		signal   time.Duration
	}{
		{"equal ways", 25, 25, 25},
		{"from a slow way to a fast one", 200, 10, 10},
		{"from a fast way to a slow one", 10, 200, 200},
		{"signalled before media comes by the new way", 25, 25, 1},
		{"signalled long before, as the ways are slow", 200, 200, 1},
		{"signalled by a far proxy", 25, 25, 300},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.delay = func(path int, _ bool) time.Duration { return []time.Duration{tt.old, tt.new}[path] * time.Millisecond }
			w.connect()
			w.run(time.Second)
			w.a.Mark(w.now)
			w.sendBy(w.a, 1)
			w.run(tt.signal * time.Millisecond)
			w.agree(w.b, w.agreed(w.a, 1))
			w.run(2 * time.Second)
			differ := max(tt.new-tt.old, 0) * time.Millisecond
			for _, e := range []*end{w.a, w.b} {
				if stats := e.Stats(); stats.Lost != 0 || e.tally.Missing() != 0 || stats.LongestGap > differ+Frame {
					t.Errorf("%s: %d lost, %d missing, a gap of %s", e.name, stats.Lost, e.tally.Missing(), stats.LongestGap)
				}
			}
			moves := 0
			for _, k := range w.b.happened() {
				if k == SourceMoved {
					moves++
				}
			}
			if moves > 1 || w.b.Remote() != w.a.address[1] {
				t.Errorf("media moved %d times, and goes to %s", moves, w.b.Remote())
			}
		})
	}
}

// TestMoveBehindNAT has the addresses of SDP be private ones: what media has shown just before
// signalling said that something changes stays.
func TestMoveBehindNAT(t *testing.T) {
	w := newWorld(t, nil)
	private := func(last string) Agreement {
		a := w.agreed(w.a, 0)
		a.RTP = netip.MustParseAddrPort("192.168.0." + last + ":7000")
		return a
	}
	w.agree(w.a, w.agreed(w.b, 0))
	w.agree(w.b, private("1"))
	w.sendBy(w.a, 0)
	w.sendBy(w.b, 0)
	w.run(3 * time.Second)
	before := w.a.Stats().Lost
	w.sendBy(w.a, 1)
	w.run(200 * time.Millisecond)
	w.agree(w.b, private("2"))
	w.run(2 * time.Second)
	if lost := w.a.Stats().Lost - before; lost != 0 || w.b.Remote() != w.a.address[1] {
		t.Errorf("%d lost, and media goes to %s", lost, w.b.Remote())
	}
}

// TestLossBeforeAMove is none of the move's.
func TestLossBeforeAMove(t *testing.T) {
	w := newWorld(t, nil)
	n := 0
	w.lose = func(int, bool, bool, []byte) bool { n++; return n%10 == 0 && w.now.Sub(start) < time.Second }
	w.connect()
	w.run(2 * time.Second)
	w.a.Mark(w.now)
	w.sendBy(w.a, 1)
	w.run(time.Second)
	if h := w.a.Handoff(w.now); h.Lost != 0 || w.a.Stats().Lost == 0 || h.Gap != Frame {
		t.Errorf("%+v, of %d lost", h, w.a.Stats().Lost)
	}
}

// TestMoveAndBack has the first path come back.
func TestMoveAndBack(t *testing.T) {
	w := newWorld(t, nil)
	w.connect()
	for i := range 6 {
		w.run(700 * time.Millisecond)
		path := (i + 1) % 2
		w.sendBy(w.a, path)
		w.run(40 * time.Millisecond)
		w.agree(w.b, w.agreed(w.a, path))
		w.run(300 * time.Millisecond)
		if w.b.Remote() != w.a.address[path] {
			t.Fatalf("after move %d media goes to %s", i, w.b.Remote())
		}
	}
	if lost := w.a.Stats().Lost + w.b.Stats().Lost; lost != 0 {
		t.Errorf("%d lost", lost)
	}
}

// TestSecureMove keeps keys and rollover counters over moves, and changes keys at one as RFC
// 4568 section 7.1.4 asks: media of the old key is taken until that of the new one comes.
func TestSecureMove(t *testing.T) {
	for _, tt := range []struct {
		name   string
		newKey byte
	}{{"the key stays", 1}, {"a new key", 9}} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.a.out.sequence = 65500 // it comes round within a second
			w.a.out.frame = 0
			a, b := secure(t, w.agreed(w.b, 0), w.agreed(w.a, 0), 1, 2)
			w.agree(w.a, a)
			w.agree(w.b, b)
			w.sendBy(w.a, 0)
			w.sendBy(w.b, 0)
			w.seen = func(_ bool, _ int, p []byte) {
				if len(p) != headerLen+Samples+10 || bytes.Contains(p, []byte{0x15, 0x73, 0x4d, 0x05}) {
					t.Errorf("in clear: %x", p)
				}
			}
			w.run(2 * time.Second)
			w.sendBy(w.a, 1) // early, by the old key
			w.run(100 * time.Millisecond)
			a, b = secure(t, w.agreed(w.b, 0), w.agreed(w.a, 1), tt.newKey, 2)
			w.agree(w.b, b)
			w.run(50 * time.Millisecond)
			w.agree(w.a, a)
			w.run(2 * time.Second)
			for _, e := range []*end{w.a, w.b} {
				if stats := e.Stats(); stats.Lost != 0 || stats.Drops != [NumDrops]uint64{} || e.tally.Missing() != 0 || stats.Received < 190 || stats.ReceivedReports == 0 {
					t.Errorf("%s: %+v", e.name, stats)
				}
			}
		})
	}
}
