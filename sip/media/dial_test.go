// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pion/rtp"
)

// TestHearAfterLeap has the peer set the clock of its timestamps back, or begin again with its numbers: its keys
// are heard as before.
func TestHearAfterLeap(t *testing.T) {
	for name, change := range map[string]func(b *end){
		"a clock that was set":     func(b *end) { b.out.base -= 1 << 24 },
		"numbers that begin again": func(b *end) { b.out.base, b.out.sequence = b.out.base-100*Samples, b.out.sequence-5000 },
	} {
		w := newWorld(t, nil)
		w.connect()
		w.run(time.Second)
		for _, key := range "12" {
			if err := w.b.Press(string(key)); err != nil {
				t.Fatal(err)
			}
			w.run(time.Second)
			change(w.b)
			w.run(100 * time.Millisecond)
		}
		if heard, _ := w.a.digits(); heard != "1.2." {
			t.Errorf("%s: heard %s", name, heard)
		}
	}
}

// TestPressGolden looks at every packet of a key: the first is marked, the duration grows, the
// timestamp stays, and the final packet comes three times (RFC 4733 sections 2.5.1.2 to
// 2.5.1.4).
func TestPressGolden(t *testing.T) {
	w := newWorld(t, nil)
	w.connect()
	w.run(time.Second)
	var got []string
	var stamps []uint32
	var numbers []uint16
	w.seen = func(fromA bool, _ int, b []byte) {
		var p rtp.Packet
		if err := p.Unmarshal(b); err == nil && fromA && p.PayloadType == 101 {
			mark := " "
			if p.Marker {
				mark = "M"
			}
			got = append(got, mark+hex.EncodeToString(p.Payload))
			stamps, numbers = append(stamps, p.Timestamp), append(numbers, p.SequenceNumber)
		}
	}
	if err := w.a.Press("#"); err != nil {
		t.Fatal(err)
	}
	w.run(time.Second)
	want := "M0b0a00a0| 0b0a0140| 0b0a01e0| 0b0a0280| 0b8a0320| 0b8a0320| 0b8a0320"
	if list := strings.Join(got, "|"); list != want {
		t.Errorf("sent %s\nwant %s", list, want)
	}
	for i := range stamps {
		if stamps[i] != stamps[0] || numbers[i] != numbers[0]+uint16(i) {
			t.Errorf("packet %d has timestamp %d and number %d", i, stamps[i], numbers[i])
		}
	}
	if stats := w.b.Stats(); stats.Lost != 0 || w.b.tally.Displaced != 0 {
		t.Errorf("%+v", stats)
	}
}

// digits are the keys that an end has heard, and how long each was pressed.
func (e *end) digits() (list string, pressed []time.Duration) {
	for _, v := range e.events {
		switch v.Kind {
		case DigitBegan:
			list += string(Key(v.Digit))
		case DigitEnded:
			list += "."
			pressed = append(pressed, v.Pressed)
		}
	}
	return list, pressed
}

// TestDigits has every key heard once, in order, and as long as it was pressed, whatever
// gets lost of each.
func TestDigits(t *testing.T) {
	const all = "0123456789*#ABCD"
	heard := strings.Join(strings.Split(all, ""), ".") + "."
	event := func(p []byte) bool { return p[1]&0x7f == 101 }
	tests := []struct {
		name    string
		lose    func(w *world) func(p []byte) bool
		pressed time.Duration
	}{
		{"nothing lost", func(*world) func([]byte) bool { return func([]byte) bool { return false } }, 100 * time.Millisecond},
		{"all but the last of each", func(*world) func([]byte) bool {
			final := 0
			return func(p []byte) bool {
				if p[headerLen+1]&endBit == 0 {
					return true
				}
				final++
				return final%3 != 0
			}
		}, 100 * time.Millisecond},
		{"all ends: it ends by itself", func(*world) func([]byte) bool { return func(p []byte) bool { return p[headerLen+1]&endBit != 0 } }, 80 * time.Millisecond},
		{"a move in the middle of each", func(w *world) func([]byte) bool {
			n := 0
			return func([]byte) bool {
				if n++; n%5 == 0 {
					w.sendBy(w.a, n%2)
				}
				return false
			}
		}, 100 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			lose := tt.lose(w)
			w.lose = func(_ int, fromA, control bool, p []byte) bool { return fromA && !control && event(p) && lose(p) }
			w.connect()
			w.run(time.Second)
			if err := w.a.Press(strings.ToLower(all)); err != nil || w.a.Pressing() != 16 {
				t.Fatal(err)
			}
			w.run(10 * time.Second)
			list, pressed := w.b.digits()
			if list != heard || w.a.Pressing() != 0 {
				t.Errorf("heard %s", list)
			}
			for _, p := range pressed {
				if p != tt.pressed {
					t.Errorf("pressed for %s, want %s", p, tt.pressed)
				}
			}
		})
	}
}

func TestPressRefused(t *testing.T) {
	w := newWorld(t, nil)
	w.connect()
	for _, keys := range []string{"x", "1 2", strings.Repeat("1", maxQueued+1)} {
		if err := w.a.Press(keys); !errors.Is(err, ErrDigit) || w.a.Pressing() != 0 {
			t.Errorf("%q: %v", keys, err)
		}
	}
	a := w.agreed(w.b, 0)
	a.Format.Digits = 0x3ff // no star (RFC 4733 section 2.5.1.1)
	w.agree(w.a, a)
	if err := w.a.Press("*"); !errors.Is(err, ErrDigit) {
		t.Errorf("a key that the peer does not take: %v", err)
	}
	a.Format.Send.Events = None
	w.agree(w.a, a)
	if err := w.a.Press("1"); !errors.Is(err, ErrDigit) {
		t.Errorf("a peer without events: %v", err)
	}
}

// TestHoldWhileAKeyIsPressed releases it.
func TestHoldWhileAKeyIsPressed(t *testing.T) {
	w := newWorld(t, nil)
	w.connect()
	w.run(time.Second)
	if err := w.a.Press("5"); err != nil {
		t.Fatal(err)
	}
	w.run(50 * time.Millisecond)
	held := w.agreed(w.b, 0)
	held.Send = false
	w.agree(w.a, held)
	if w.a.Pressing() != 0 {
		t.Error("the key is pressed still")
	}
	w.run(time.Second)
	w.agree(w.a, w.agreed(w.b, 0))
	w.run(time.Second)
	if heard, pressed := w.b.digits(); heard != "5." || pressed[0] > 60*time.Millisecond {
		t.Errorf("heard %s, for %v", heard, pressed)
	}
}

// TestKeysNoLongerTaken has the peer take fewer keys, or none, while some are sent: what it does not take is neither sent
// to it nor kept for later.
func TestKeysNoLongerTaken(t *testing.T) {
	for _, tt := range []struct {
		name   string
		events uint8
		digits uint16
		wait   int // keys right afterwards
		heard  string
	}{
		{"no events", None, 0, 0, "5."},
		{"digits alone", 101, 0x3ff, 2, "5.6."},
		{"another of them than the one that is pressed", 101, 1 << 6, 1, "5.6."},
		{"another payload type", 96, AllDigits, 3, "5.#.6."},
	} {
		w := newWorld(t, nil)
		w.connect()
		w.run(time.Second)
		if err := w.a.Press("5#6"); err != nil {
			t.Fatal(err)
		}
		w.run(50 * time.Millisecond)
		a, b := w.agreed(w.b, 0), w.agreed(w.a, 0)
		a.Format.Send.Events, a.Format.Digits = tt.events, tt.digits
		b.Format.Receive.Events = tt.events
		w.agree(w.a, a)
		w.agree(w.b, b)
		if n := w.a.Pressing(); n != tt.wait {
			t.Errorf("%s: %d keys wait, want %d", tt.name, n, tt.wait)
		}
		w.seen = func(fromA bool, _ int, p []byte) {
			if p[1]&0x7f == None&0x7f {
				t.Errorf("%s: a packet of no payload type", tt.name)
			}
		}
		w.run(time.Second)
		w.agree(w.a, w.agreed(w.b, 0))
		w.run(time.Second)
		if heard, _ := w.b.digits(); heard != tt.heard {
			t.Errorf("%s: heard %s, want %s", tt.name, heard, tt.heard)
		}
	}
}

// TestHear takes what other senders do.
func TestHear(t *testing.T) {
	type packet struct {
		stamp uint32
		event string // octets
		ms    int
	}
	tests := []struct {
		name    string
		packets []packet
		heard   string
		pressed []time.Duration
	}{
		{"updates of 50 ms", []packet{{0, "050a0190", 0}, {0, "050a0320", 50}, {0, "058a04b0", 100}}, "5.", []time.Duration{150 * time.Millisecond}},
		{"in another order", []packet{{0, "050a0320", 0}, {0, "050a0190", 1}, {0, "058a04b0", 2}, {0, "050a0190", 3}}, "5.", []time.Duration{150 * time.Millisecond}},
		{"the same key twice", []packet{{0, "058a0320", 0}, {1600, "058a0320", 200}}, "5.5.", []time.Duration{100 * time.Millisecond, 100 * time.Millisecond}},
		{"the next one begins before the last has ended", []packet{{0, "050a0190", 0}, {1600, "060a00a0", 100}, {1600, "068a0140", 120}}, "5.6.", []time.Duration{50 * time.Millisecond, 40 * time.Millisecond}},
		{"a late one of an event that is over", []packet{{0, "058a0320", 0}, {1600, "068a0320", 100}, {0, "058a0320", 120}}, "5.6.", []time.Duration{100 * time.Millisecond, 100 * time.Millisecond}},
		{"longer than a segment", []packet{{0, "050affff", 0}, {0xffff, "050a0190", 50}, {0xffff, "058a0320", 100}}, "5.", []time.Duration{(0xffff + 0x320) * time.Second / 8000}},
		{"two in one packet", []packet{{0, "058a0320068a0190", 0}}, "5.6.", []time.Duration{100 * time.Millisecond, 50 * time.Millisecond}},
		{"an event that is no key", []packet{{0, "428a0320", 0}}, "?.", []time.Duration{100 * time.Millisecond}},
		{"never ended", []packet{{0, "050a0190", 0}, {0, "050a0320", 50}}, "5.", []time.Duration{100 * time.Millisecond}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var l listener
			e := end{}
			for _, p := range tt.packets {
				b, _ := hex.DecodeString(p.event)
				if !l.take(0, p.stamp, b, start.Add(time.Duration(p.ms)*time.Millisecond), &e.batch) {
					t.Errorf("%s is not taken", p.event)
				}
			}
			l.due(start.Add(time.Minute), &e.batch)
			e.events = e.batch.Events
			heard, pressed := e.digits()
			if heard != tt.heard || len(pressed) != len(tt.pressed) {
				t.Fatalf("heard %s, pressed %v", heard, pressed)
			}
			for i := range pressed {
				if pressed[i] != tt.pressed[i] {
					t.Errorf("pressed %v, want %v", pressed, tt.pressed)
				}
			}
		})
	}
	// No more than a few events of one packet are taken.
	w := newWorld(t, nil)
	w.connect()
	w.run(time.Second)
	p := rtp.Packet{Header: rtp.Header{Version: 2, PayloadType: 101, SSRC: w.b.out.ssrc, SequenceNumber: w.b.out.sequence}}
	for i := range 500 {
		p.Payload = append(p.Payload, byte(i%2), volume, 0, 1)
	}
	b, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	before := len(w.a.events)
	w.inject(w.a, w.b.address[0].String(), b)
	if n := len(w.a.events) - before; n < maxTogether || n > 2*maxTogether || w.a.Stats().Drops[DropEvent] != 1 {
		t.Errorf("%d events of one packet, %+v", n, w.a.Stats())
	}
	var l listener
	var out Output
	for _, b := range []string{"", "050a", "050a019005"} {
		if octets, _ := hex.DecodeString(b); l.take(0, 0, octets, start, &out) || len(out.Events) != 0 {
			t.Errorf("%q is taken", b)
		}
	}
}
