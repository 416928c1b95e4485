// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"io"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// longestSleep bounds the time in which a sender does not look at its context.
const longestSleep = 100 * time.Millisecond

// Sent is what a flow has sent, and how well it kept its schedule.
type Sent struct {
	Messages, Unsent int // Unsent were due before the end, but the writer was not ready
	Octets           int64
	Began, Ended     time.Time
	Late, WorstLate  time.Duration // behind the schedule: the mean, and the most
}

// Send sends the flow by w, one Write for each message, and tells the receiver of its end. A writer that blocks makes
// the flow late: what is due by then follows at once, until its duration is over.
func (f *Flow) Send(ctx context.Context, w io.Writer) (s Sent, err error) {
	if err := f.Check(); err != nil {
		return s, err
	}
	// A goroutine that sleeps wakes to the millisecond, a thread to some tens of microseconds.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := make([]byte, MaxSize)
	s.Began = time.Now()
	begin, late := monotonic(), time.Duration(0)
	schedule := f.Schedule()
	for d, ok := schedule.Next(); ok; d, ok = schedule.Next() {
		if err := sleepUntil(ctx, begin+d.At); err != nil {
			return s, err
		}
		behind := monotonic() - begin - d.At
		if f.Duration > 0 && d.At+behind >= f.Duration+longestSleep {
			s.Unsent++
			continue
		}
		late += behind
		s.WorstLate = max(s.WorstLate, behind)
		s.Messages++
		header{kindData, f.ID, uint32(s.Messages), uint32(d.Size), time.Now().UnixNano()}.put(b)
		if _, err := w.Write(b[:d.Size]); err != nil {
			return s, err
		}
		s.Octets += int64(d.Size)
	}
	s.Ended = time.Now()
	s.Late = late / time.Duration(max(s.Messages, 1))
	return s, f.end(ctx, w, s.Messages)
}

// end says how many there were; by datagrams, which may be lost, several times. A receiver that got the first may have
// gone when the others come.
func (f *Flow) end(ctx context.Context, w io.Writer, messages int) error {
	const times = 3
	b := make([]byte, HeaderSize)
	header{kindEnd, f.ID, uint32(messages), HeaderSize, time.Now().UnixNano()}.put(b)
	if _, err := w.Write(b); err != nil {
		return err
	}
	if _, datagrams := w.(*net.UDPConn); !datagrams {
		return nil
	}
	for range times - 1 {
		if err := sleepUntil(ctx, monotonic()+longestSleep); err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return nil
		}
	}
	return nil
}

// monotonic is the time of a clock that nobody sets.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // it is always there
	return time.Duration(t.Nano())
}

// sleepUntil sleeps until that time of monotonic.
func sleepUntil(ctx context.Context, until time.Duration) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		now := monotonic()
		if now >= until {
			return nil
		}
		t := unix.NsecToTimespec(int64(min(until, now+longestSleep)))
		if err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &t, nil); err != nil && err != unix.EINTR {
			return err
		}
	}
}
