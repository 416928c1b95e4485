// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// sleepCheck is how often the clocks are compared although nothing happened:
	// that finds out when the process was stopped.
	sleepCheck = 10 * time.Second
	// leastSleep is the shortest sleep that is told; leastStop is the shortest
	// time that the process was stopped, beyond what a loaded machine does.
	leastSleep, leastStop = time.Second, 5 * time.Second
)

// Sleep reports that the host or the process did not run for a while.
type Sleep struct {
	// Slept is how long the steady clock, by which Go measures time, stood still
	// while the host slept; 0 if only the process was stopped.
	Slept time.Duration
}

// WatchSleep reports sleeps until ctx ends; then the channel is closed. The
// kernel cancels a timer when the host wakes, so that this is known at once. A
// reader that is too slow gets the sum.
func WatchSleep(ctx context.Context) (<-chan Sleep, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("cannot watch for sleeps of the host: %w", err)
	}
	f := os.NewFile(uintptr(fd), "timerfd")
	alarm := func() error { return awaitAlarm(f, fd) }
	sleeps := make(chan Sleep, 1)
	stop := context.AfterFunc(ctx, func() { f.Close() })
	go func() {
		defer close(sleeps)
		defer f.Close()
		defer stop()
		reportSleeps(alarm, readClocks, sleeps)
	}()
	return sleeps, nil
}

// awaitAlarm waits for the next comparison: for sleepCheck, or until the real
// time jumps, as it does when the host wakes.
func awaitAlarm(f *os.File, fd int) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		return err
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(now.Nano() + int64(sleepCheck))}
	// TFD_TIMER_CANCEL_ON_SET, which is 1 << 1, makes the read fail then.
	const cancelOnSet = 1 << 1
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|cancelOnSet, &at, nil); err != nil && !errors.Is(err, unix.ECANCELED) {
		return err
	}
	var count [8]byte
	if _, err := f.Read(count[:]); err != nil && !errors.Is(err, unix.ECANCELED) {
		return err
	}
	return nil
}

// clocks are the time since boot with and without sleeps.
type clocks struct{ boot, steady time.Duration }

func readClocks() (c clocks, err error) {
	var boot, steady unix.Timespec
	err = errors.Join(unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot), unix.ClockGettime(unix.CLOCK_MONOTONIC, &steady))
	return clocks{time.Duration(boot.Nano()), time.Duration(steady.Nano())}, err
}

// since compares with an earlier reading.
func (c clocks) since(before clocks) (s Sleep, told bool) {
	s.Slept = (c.boot - c.steady) - (before.boot - before.steady)
	if s.Slept >= leastSleep {
		return s, true
	}
	return Sleep{}, c.steady-before.steady >= sleepCheck+leastStop
}

// reportSleeps compares the clocks after each alarm, until that fails.
func reportSleeps(alarm func() error, read func() (clocks, error), sleeps chan Sleep) {
	before, err := read()
	for err == nil {
		if alarm() != nil {
			return
		}
		var now clocks
		if now, err = read(); err != nil {
			return
		}
		if s, told := now.since(before); told {
			select {
			case earlier := <-sleeps:
				s.Slept += earlier.Slept
			default:
			}
			sleeps <- s
		}
		before = now
	}
}
