// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/pion/rtp"

	"github.com/isthmus-net/isthmus/sip/media/g711"
)

// sentBy collects the headers of what A sends.
func (w *world) sentBy() *[]rtp.Header {
	list := new([]rtp.Header)
	w.seen = func(fromA bool, _ int, b []byte) {
		var h rtp.Header
		if _, err := h.Unmarshal(b); err == nil && fromA {
			*list = append(*list, h)
		}
	}
	return list
}

// TestHeaders numbers packets one by one, and times them by the clock, over a hold, too: the
// first after silence is marked (RFC 3551 section 4.1).
func TestHeaders(t *testing.T) {
	w := newWorld(t, nil)
	sent := w.sentBy()
	w.connect()
	w.run(90 * time.Millisecond)
	held := w.agreed(w.b, 0)
	held.Send = false
	w.agree(w.a, held)
	w.run(time.Second)
	w.agree(w.a, w.agreed(w.b, 0))
	w.run(60 * time.Millisecond)
	if len(*sent) != 5+3 {
		t.Fatalf("%d packets sent", len(*sent))
	}
	for i, h := range *sent {
		frames := i
		if i >= 5 {
			frames = i + 50 // the times of the hold
		}
		want := rtp.Header{Version: 2, PayloadType: 0, SSRC: w.a.out.ssrc, Marker: i == 0 || i == 5, SequenceNumber: (*sent)[0].SequenceNumber + uint16(i), Timestamp: (*sent)[0].Timestamp + uint32(frames*Samples)}
		if headerText(h) != headerText(want) {
			t.Errorf("packet %d is %+v, want %+v", i, h, want)
		}
	}
}

// headerText is what there is to compare.
func headerText(h rtp.Header) string { return rtp.Packet{Header: h}.String() }

// TestNoDrift ticks late, by up to 15 ms: the times of packets stay those of the clock.
func TestNoDrift(t *testing.T) {
	w := newWorld(t, nil)
	w.connect()
	var out Output
	now, n := start, 0
	for now.Before(start.Add(time.Minute)) {
		now = w.a.Next().Add(time.Duration(n%16) * time.Millisecond)
		n++
		w.a.Tick(now, &out)
	}
	if stats := w.a.Stats(); stats.Skipped != 0 || stats.Sent < 3000 || stats.Sent > 3001 {
		t.Errorf("%+v", stats)
	}
}

// TestLongCall has timestamps follow the clock for longer than nanoseconds times the rate fit.
func TestLongCall(t *testing.T) {
	w := newWorld(t, nil)
	const seconds = 30 * 86400
	if got := w.a.timestamp(start.Add(seconds*time.Second)) - w.a.out.base; got != seconds*8000%(1<<32) {
		t.Errorf("the timestamp is %d", got)
	}
}

// TestSourceBegins with the first packet, however long the other end has rung before that.
func TestSourceBegins(t *testing.T) {
	w := newWorld(t, nil)
	w.run(3 * time.Second)
	w.connect()
	w.run(time.Second)
	if w.b.tally.Frames == 0 || w.b.tally.first != 0 {
		t.Errorf("%d frames came, the first is number %d", w.b.tally.Frames, w.b.tally.first)
	}
}

// TestLateTick makes up for a little, and leaves out what is older.
func TestLateTick(t *testing.T) {
	for _, tt := range []struct {
		late          time.Duration
		sent, skipped uint64
	}{{0, 1, 0}, {19 * time.Millisecond, 1, 0}, {80 * time.Millisecond, 5, 0}, {100 * time.Millisecond, 5, 1}, {time.Hour, 5, 3600*50 + 1 - 5}} {
		w := newWorld(t, nil)
		sent := w.sentBy()
		w.connect()
		w.now = start.Add(tt.late)
		w.a.Tick(w.now, &w.a.batch)
		w.put(w.a)
		stats := w.a.Stats()
		if stats.Sent != tt.sent || stats.Skipped != tt.skipped {
			t.Errorf("late by %s: %d sent, %d left out", tt.late, stats.Sent, stats.Skipped)
		}
		last := (*sent)[len(*sent)-1]
		if behind := w.a.timestamp(w.now) - last.Timestamp; behind >= Samples {
			t.Errorf("late by %s: the last is %d samples old", tt.late, behind)
		}
		if next := w.a.sendAt(); !next.After(w.now) {
			t.Errorf("late by %s: the next is due at %s", tt.late, next)
		}
	}
}

// TestKeepAlive sends a packet without payload every 15 s while the call is on hold, of a type
// that is none, and at once when the path changes: so the peer latches although nobody talks
// (RFC 6263 sections 4.6 and 7).
func TestKeepAlive(t *testing.T) {
	w := newWorld(t, nil)
	w.connect()
	w.run(time.Second)
	held := w.agreed(w.b, 0)
	held.Send, held.Receive = false, false
	w.agree(w.a, held)
	held = w.agreed(w.a, 0)
	held.Send, held.Receive = false, false
	w.agree(w.b, held)
	w.run(time.Second)
	sent := w.sentBy()
	began := w.now
	var times []time.Duration
	seen := w.seen
	w.seen = func(fromA bool, path int, b []byte) {
		if fromA {
			times = append(times, w.now.Sub(began))
			if len(b) != headerLen {
				t.Errorf("%x", b)
			}
		}
		seen(fromA, path, b)
	}
	w.run(time.Minute)
	if len(times) != 4 {
		t.Errorf("sent after %v", times)
	}
	for i, h := range *sent {
		if h.PayloadType < 96 || w.b.kinds[h.PayloadType] != kindUnknown || h.Timestamp != w.a.timestamp(began.Add(times[i])) {
			t.Errorf("%+v", h)
		}
	}
	w.sendBy(w.a, 1)
	w.run(time.Second)
	// The one that was under way when B held the call is dropped, and nothing else.
	if len(times) != 5 || w.b.Stats().Lost != 0 || w.b.Stats().Drops != [NumDrops]uint64{DropHeld: 1} {
		t.Errorf("%d sent, %+v", len(times), w.b.Stats())
	}
	// One packet proves nothing; with the next the peer has latched.
	w.run(15 * time.Second)
	if w.b.Remote() != w.a.address[1] {
		t.Errorf("media would go to %s", w.b.Remote())
	}
}

func TestMediaLost(t *testing.T) {
	w := newWorld(t, nil)
	w.connect()
	w.run(time.Second)
	w.lose = func(int, bool, bool, []byte) bool { return true }
	w.run(6 * time.Second)
	w.lose = func(int, bool, bool, []byte) bool { return false }
	w.run(time.Second)
	got := w.a.happened()
	want := []EventKind{MediaBegan, PathHeard, MediaLost, MediaBack}
	if len(got) != len(want) {
		t.Fatalf("events %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("events %v, want %v", got, want)
		}
	}
	// On hold nothing is missed.
	held := w.agreed(w.b, 0)
	held.Receive = false
	w.agree(w.a, held)
	held = w.agreed(w.a, 0)
	held.Send = false
	w.agree(w.b, held)
	w.run(time.Minute)
	if len(w.a.happened()) != len(want) {
		t.Errorf("events %v", w.a.happened())
	}
}

// TestMediaNeverBegins has nothing come from the first packet on, as behind a NAT that lets none through: that is told
// once, from when media was agreed on, and what comes in the end is a beginning.
func TestMediaNeverBegins(t *testing.T) {
	w := newWorld(t, nil)
	w.run(time.Minute) // it rings
	if got := w.a.happened(); len(got) != 0 {
		t.Errorf("events %v before the answer", got)
	}
	w.lose = func(int, bool, bool, []byte) bool { return true }
	w.connect()
	w.run(4 * time.Second)
	if got := w.a.happened(); len(got) != 0 {
		t.Errorf("events %v at once", got)
	}
	w.run(time.Minute)
	w.lose = func(int, bool, bool, []byte) bool { return false }
	w.run(time.Second)
	if got := w.a.happened(); !slices.Equal(got, []EventKind{MediaLost, MediaBegan, PathHeard}) {
		t.Errorf("events %v", got)
	}
	held := w.agreed(w.b, 0)
	held.Receive = false
	w = newWorld(t, nil)
	w.agree(w.a, held)
	w.run(time.Minute)
	if got := w.a.happened(); len(got) != 0 {
		t.Errorf("events %v of a call that is to hear nothing", got)
	}
}

// TestReceiving takes and refuses what a peer may send.
func TestReceiving(t *testing.T) {
	packet := func(change func(p *rtp.Packet)) func(b *end) []byte {
		return func(b *end) []byte {
			p := rtp.Packet{Header: rtp.Header{Version: 2, SSRC: b.out.ssrc, SequenceNumber: b.out.sequence, Timestamp: b.out.base + uint32(b.out.frame)*Samples}, Payload: make([]byte, Samples)}
			Numbered{}.Frame(p.Payload, g711.PCMU, b.out.frame*Samples)
			change(&p)
			text, err := p.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
	}
	raw := func(b ...byte) func(*end) []byte { return func(*end) []byte { return b } }
	tests := []struct {
		name   string
		packet func(b *end) []byte
		drop   Drop // dropNone: it is played
	}{
		{"sound", packet(func(*rtp.Packet) {}), dropNone},
		{"A-law", packet(func(p *rtp.Packet) { p.PayloadType = 8 }), dropNone},
		{"padded", packet(func(p *rtp.Packet) { p.Padding, p.Header.PaddingSize = true, 4 }), dropNone},
		{"with contributors", packet(func(p *rtp.Packet) { p.CSRC = []uint32{1, 2, 3} }), dropNone},
		{"with an extension", packet(func(p *rtp.Packet) { _ = p.SetExtension(1, []byte{1, 2}) }), dropNone},
		{"of a type that nobody knows", packet(func(p *rtp.Packet) { p.PayloadType = 18 }), DropPayloadType},
		{"an event too short", packet(func(p *rtp.Packet) { p.PayloadType, p.Payload = 101, []byte{1, 2} }), DropEvent},
		{"padding longer than the packet", func(b *end) []byte {
			p := packet(func(*rtp.Packet) {})(b)
			p[0] |= 0x20
			p[len(p)-1] = 255
			return p
		}, DropNotRTP},
		{"padding of nothing", func(b *end) []byte {
			p := packet(func(*rtp.Packet) {})(b)
			p[0] |= 0x20
			p[len(p)-1] = 0
			return p
		}, DropNotRTP},
		{"empty", raw(), DropNotRTP},
		{"of version 0", raw(make([]byte, 172)...), DropNotRTP},
		{"STUN", raw(append([]byte{0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42}, make([]byte, 12)...)...), DropNotRTP},
		{"a report where media is", raw(append([]byte{0x80, 201, 0, 1}, make([]byte, 12)...)...), DropNotRTP},
		{"contributors that are not there", raw(append([]byte{0x8f, 0}, make([]byte, 20)...)...), DropNotRTP},
		{"an extension that is not there", raw(append([]byte{0x90, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0xbe, 0xde, 0xff, 0xff)...), DropNotRTP},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.connect()
			w.run(time.Second)
			w.lose = func(_ int, fromA, _ bool, _ []byte) bool { return !fromA }
			w.run(30 * time.Millisecond) // what is under way
			before := w.a.tally.Frames
			w.inject(w.a, w.b.address[0].String(), tt.packet(w.b))
			stats := w.a.Stats()
			played := w.a.tally.Frames - before
			if tt.drop != dropNone && (stats.Drops[tt.drop] != 1 || played != 0) || tt.drop == dropNone && (played != 1 || stats.Drops != [NumDrops]uint64{}) {
				t.Errorf("played %d, %+v", played, stats)
			}
		})
	}
}

func TestSettingsRefused(t *testing.T) {
	for name, s := range map[string]Settings{
		"no name":           {},
		"a name too long":   {Name: string(make([]byte, 256))},
		"pressed too long":  {Name: "a", Press: time.Minute},
		"pressed too short": {Name: "a", Press: time.Millisecond},
	} {
		if _, err := New(s, seed(1), start); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := New(Settings{Name: "a"}, bytes.NewReader(nil), start); err == nil {
		t.Error("taken without randomness")
	}
}

// TestTone hears its frequency and its level in what it sends.
func TestTone(t *testing.T) {
	for _, law := range []g711.Law{g711.PCMU, g711.PCMA} {
		var b [g711.Rate]byte
		for at := 0; at < len(b); at += Samples {
			Tone(400).Frame(b[at:at+Samples], law, int64(at))
		}
		crossings, highest := 0, int16(0)
		for i := 1; i < len(b); i++ {
			if law.Decode(b[i-1]) < 0 && law.Decode(b[i]) >= 0 {
				crossings++
			}
			highest = max(highest, law.Decode(b[i]))
		}
		if crossings < 399 || crossings > 400 || highest < 7000 || highest > 7400 {
			t.Errorf("%s: %d Hz, up to %d", law, crossings, highest)
		}
	}
}

func TestTally(t *testing.T) {
	var y Tally
	frame := func(n int64) []byte {
		b := make([]byte, Samples)
		Numbered{}.Frame(b, g711.PCMU, n*Samples)
		return b
	}
	for _, n := range []int64{10, 11, 14, 12, 14, 20} {
		y.Write((n-10)*Samples, g711.PCMU, frame(n))
	}
	y.Write(5, g711.PCMU, frame(15))
	broken := frame(16)
	broken[100]++
	y.Write(0, g711.PCMU, broken)
	y.Write(0, g711.PCMU, broken[:20])
	if y.Frames != 6 || y.Missing() != 5 || y.Repeated != 1 || y.OutOfOrder() != 2 || y.Displaced != 1 || y.Damaged != 2 || y.LongestAbsence() != 5 {
		t.Errorf("%+v, %d missing, %d out of order, %d in a row", y, y.Missing(), y.OutOfOrder(), y.LongestAbsence())
	}
}
