// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pion/rtp"
)

// Of keys that are pressed (RFC 4733).
const (
	keys = "0123456789*#ABCD" // by the numbers of events (section 3.2)
	// longestPress fits one segment (section 2.5.1.3).
	longestPress = 8 * time.Second
	// ends is how often the final packet is sent (section 2.5.1.4).
	ends = 3
	// rest is how many packets of sound there are between two keys.
	rest = 3
	// volume is that of a usual key: -10 dBm0.
	volume    = 10
	endBit    = 0x80
	eventLen  = 4
	maxQueued = 64
	// maxTogether is how many events of one packet are taken: those that ended within it (section 2.5.1.5).
	maxTogether = 8
)

// ErrDigit says that a key cannot be pressed.
var ErrDigit = errors.New("the key cannot be sent")

// dialer sends keys one after the other.
type dialer struct {
	queue  [maxQueued]uint8
	queued int
	press  int // packets that a key is pressed
	active bool
	digit  uint8
	stamp  uint32
	sent   int // packets of its growing duration
	ended  int // final packets
	rests  int
}

// Press sends keys, one after the other: 0 to 9, *, #, A to D.
func (s *Stream) Press(digits string) error {
	if s.format.Send.Events == None {
		return fmt.Errorf("%w: the peer takes no telephone events", ErrDigit)
	}
	d := &s.dialer
	if d.queued+len(digits) > maxQueued {
		return fmt.Errorf("%w: more than %d would wait", ErrDigit, maxQueued)
	}
	n := d.queued
	for _, key := range strings.ToUpper(digits) {
		event := strings.IndexRune(keys, key)
		if event < 0 || s.format.Digits>>event&1 == 0 {
			return fmt.Errorf("%w: %q is none that the peer takes", ErrDigit, key)
		}
		d.queue[n] = uint8(event)
		n++
	}
	d.queued = n
	d.press = int(s.set.Press / Frame)
	return nil
}

// Pressing is how many keys wait, and the one that is pressed.
func (s *Stream) Pressing() int {
	if s.dialer.active {
		return s.dialer.queued + 1
	}
	return s.dialer.queued
}

// restrict drops the keys that the peer takes no more: the one that is pressed, and those that wait (RFC 4733 section
// 2.5.1.1). None of them is sent later, when it may mean something else.
func (d *dialer) restrict(f *Format) {
	takes := func(digit uint8) bool { return f.Send.Events != None && f.Digits>>digit&1 != 0 }
	d.active = d.active && takes(d.digit)
	kept := slices.DeleteFunc(d.queue[:d.queued], func(digit uint8) bool { return !takes(digit) })
	d.queued = len(kept)
}

// next reports whether the packet of a time is of a key, and begins with the next one.
func (d *dialer) next(s *Stream, stamp uint32) bool {
	switch {
	case d.rests > 0:
		d.rests--
		return false
	case d.active:
		return true
	case d.queued == 0:
		return false
	}
	d.active, d.digit, d.stamp, d.sent, d.ended = true, d.queue[0], stamp, 0, 0
	copy(d.queue[:], d.queue[1:d.queued])
	d.queued--
	return true
}

// packet makes the next packet of the key: its duration grows, and the last one is sent three
// times.
func (d *dialer) packet(h *rtp.Header, payloadType uint8, b []byte) []byte {
	h.PayloadType, h.Timestamp, h.Marker = payloadType, d.stamp, d.sent == 0
	if d.ended == 0 {
		d.sent++
	}
	b[0], b[1] = d.digit, volume
	if d.sent == d.press {
		b[1] |= endBit
		d.ended++
	}
	binary.BigEndian.PutUint16(b[2:], uint16(d.sent*Samples))
	if d.ended == ends {
		d.active, d.rests = false, rest
	}
	return b[:eventLen]
}

// listener hears keys that the peer presses.
type listener struct {
	any    bool // one has been heard
	active bool
	path   int
	digit  uint8
	stamp  uint32 // of the event, or of its last segment
	before uint32 // what earlier segments lasted
	lasted uint16
	until  time.Time // when it ends although nobody says so; zero: none is pressed
}

// patience is how long an event goes on without another packet of it (RFC 4733 section
// 2.5.2.2): three updates of 50 ms, and some more.
const patience = 200 * time.Millisecond

// take takes a payload: one event, or several that followed each other. It reports whether that was all of it.
func (l *listener) take(path int, stamp uint32, b []byte, now time.Time, out *Output) bool {
	if len(b) < eventLen || len(b)%eventLen != 0 {
		return false
	}
	all := len(b) <= maxTogether*eventLen
	for b = b[:min(len(b), maxTogether*eventLen)]; len(b) > 0; b = b[eventLen:] {
		lasted := binary.BigEndian.Uint16(b[2:])
		l.one(path, stamp, b[0], b[1]&endBit != 0, lasted, now, out)
		stamp += uint32(lasted)
	}
	return all
}

// one takes what is said of an event.
func (l *listener) one(path int, stamp uint32, digit uint8, end bool, lasted uint16, now time.Time, out *Output) {
	const longest = 0xffff // of a segment
	switch {
	case l.active && stamp == l.stamp && digit == l.digit:
		l.lasted = max(l.lasted, lasted)
	case l.active && digit == l.digit && l.lasted == longest && stamp == l.stamp+longest:
		l.before += longest
		l.stamp, l.lasted = stamp, lasted
	case l.any && int32(stamp-l.stamp) <= 0:
		return // of an event that is over: sent again, or late
	default:
		l.end(out)
		*l = listener{any: true, active: true, path: path, digit: digit, stamp: stamp, lasted: lasted}
		out.Events = append(out.Events, Event{Kind: DigitBegan, Path: path, Digit: digit})
	}
	l.until = now.Add(patience)
	if end {
		l.end(out)
	}
}

// due ends an event whose end was lost.
func (l *listener) due(now time.Time, out *Output) {
	if l.active && !l.until.After(now) {
		l.end(out)
	}
}

// end ends the event, if there is one.
func (l *listener) end(out *Output) {
	if !l.active {
		return
	}
	l.active, l.until = false, time.Time{}
	pressed := time.Duration(l.before+uint32(l.lasted)) * time.Second / 8000
	out.Events = append(out.Events, Event{Kind: DigitEnded, Path: l.path, Digit: l.digit, Pressed: pressed})
}

// restart has the next event taken whatever its timestamp, since the peer's clock was set, or it has begun again.
func (l *listener) restart(out *Output) {
	l.end(out)
	*l = listener{}
}

// Key is the character of a digit, or ? for another event.
func Key(digit uint8) byte {
	if int(digit) < len(keys) {
		return keys[digit]
	}
	return '?'
}
