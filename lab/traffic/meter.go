// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"math"
	"net/netip"
	"time"
)

// Record is a message that has come.
type Record struct {
	Flow, Number   uint32 // numbers begin at 1
	From, To       netip.AddrPort
	Sent, Received time.Time
	Size           int
}

// Delay is the time under way.
func (r *Record) Delay() time.Duration { return r.Received.Sub(r.Sent) }

// Stats are those of the messages of a flow as D-ITG has them: jitter is the mean difference between the delays of
// messages that came one after the other, and what has not come is known by the highest number that has.
type Stats struct {
	Received, Lost, Bursts int // Bursts are gaps in the numbers
	Octets                 int64
	First, Last            time.Time // received
	Least, Most            time.Duration
	sum, square, jitters   float64 // s, s², s
	differences            int
}

// Mean is the mean delay.
func (s *Stats) Mean() time.Duration { return seconds(s.sum / float64(max(s.Received, 1))) }

// Jitter is the mean difference of delays.
func (s *Stats) Jitter() time.Duration { return seconds(s.jitters / float64(max(s.differences, 1))) }

// Deviation is the standard deviation of delays.
func (s *Stats) Deviation() time.Duration {
	n := float64(max(s.Received, 1))
	return seconds(math.Sqrt(max(s.square/n-s.sum/n*s.sum/n, 0)))
}

// Rate is the throughput in bit/s, from the first message to the last.
func (s *Stats) Rate() float64 {
	if t := s.Last.Sub(s.First).Seconds(); t > 0 {
		return float64(s.Octets) * 8 / t
	}
	return 0
}

// Loss is the share that has not come, 0 to 1.
func (s *Stats) Loss() float64 { return float64(s.Lost) / float64(max(s.Received+s.Lost, 1)) }

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// Window is what came in one piece of time.
type Window struct {
	At            time.Duration // its begin, counted from the first message
	Rate          float64       // bit/s
	Delay, Jitter time.Duration // means
	Lost          int
}

// Meter reckons the statistics of one flow while it comes, in constant memory.
type Meter struct {
	Stats
	width   time.Duration
	emit    func(Window)
	highest uint32
	last    time.Duration // delay of the last message
	window  tally
}

// tally is what has come in the window that is open.
type tally struct {
	number, received, differences int
	octets, lost                  int
	sum, jitters                  time.Duration
}

// NewMeter gives each finished window of that width to emit; 0 is without windows.
func NewMeter(width time.Duration, emit func(Window)) *Meter { return &Meter{width: width, emit: emit} }

// Add takes the next message, in the order of their coming.
func (m *Meter) Add(r *Record) {
	delay := r.Delay()
	if m.Received == 0 {
		m.First, m.Least, m.Most = r.Received, delay, delay
	}
	m.turn(r.Received.Sub(m.First))
	if m.Received > 0 {
		difference := max(delay-m.last, m.last-delay)
		m.jitters += difference.Seconds()
		m.differences++
		m.window.jitters += difference
		m.window.differences++
	}
	m.last, m.Last = delay, r.Received
	m.Received++
	m.Octets += int64(r.Size)
	m.Least, m.Most = min(m.Least, delay), max(m.Most, delay)
	m.sum += delay.Seconds()
	m.square += delay.Seconds() * delay.Seconds()
	m.window.received++
	m.window.octets += r.Size
	m.window.sum += delay
	m.number(r.Number)
}

// number looks for what is missing before a message.
func (m *Meter) number(n uint32) {
	if n > m.highest {
		if gap := int(n-m.highest) - 1; gap > 0 {
			m.Lost += gap
			m.Bursts++
			m.window.lost += gap
		}
		m.highest = n
		return
	}
	// It was taken for lost, and comes late; a copy is not told from it, which D-ITG does not either.
	m.Lost = max(m.Lost-1, 0)
}

// turn ends windows that lie before a time.
func (m *Meter) turn(at time.Duration) {
	if m.width <= 0 {
		return
	}
	// One at the very end of a window belongs to it.
	for at > time.Duration(m.window.number+1)*m.width {
		m.flush()
	}
}

func (m *Meter) flush() {
	w := &m.window
	m.emit(Window{
		At: time.Duration(w.number) * m.width, Rate: float64(w.octets) * 8 / m.width.Seconds(),
		Delay: w.sum / time.Duration(max(w.received, 1)), Jitter: w.jitters / time.Duration(max(w.differences, 1)), Lost: w.lost,
	})
	*w = tally{number: w.number + 1}
}

// End ends the flow, of which so many messages were sent; 0 is that no one knows.
func (m *Meter) End(sent uint32) {
	if sent > m.highest {
		lost := int(sent - m.highest)
		m.highest = sent
		m.Lost += lost
		m.Bursts++
		m.window.lost += lost
	}
	if m.width > 0 && m.Received > 0 {
		m.flush()
	}
}
