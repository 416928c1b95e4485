// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// clock is one of the kernel's (timerfd), for which Go's poller waits as for a socket. Timers of Go's own wake a thread when
// they are set, and another when they are due.
type clock struct {
	file *os.File // nil before the first rest
	conn syscall.RawConn
	wait unix.ItimerSpec
	set  bool
	due  func(fd uintptr) bool
}

func (c *clock) open() error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("cannot have a clock: %w", err)
	}
	file := os.NewFile(uintptr(fd), "clock")
	if err := polled(file); err != nil {
		return err
	}
	c.file, c.due = file, c.isDue
	c.conn, err = file.SyscallConn()
	return err
}

// isDue sets the clock when it is called first, and says when it is called again that it has gone off.
func (c *clock) isDue(fd uintptr) bool {
	if c.set {
		return true
	}
	c.set = true
	return unix.TimerfdSettime(int(fd), 0, &c.wait, nil) != nil
}

// retryListen is when it is looked again whether a descriptor is free.
const retryListen = 100 * time.Millisecond

// rest sleeps until its time is over, or the socket is closed. No packet wakes the reader, nor the process, until it waits for
// one again. Where there is no descriptor for that, packets wake the process, and closing the socket does not.
func (p *poller) rest(d time.Duration) {
	p.rested = true
	if d <= 0 {
		return
	}
	switch p.quieten() {
	case nil:
		p.clock.wait.Value, p.clock.set = unix.NsecToTimespec(int64(d)), false
		_ = p.clock.conn.Read(p.clock.due)
	case ErrClosed:
	default:
		time.Sleep(d)
	}
}

// errAwake says that a socket is not made for rests.
var errAwake = errors.New("it has no descriptor of its own for the poller")

// quieten has no packets wake the reader, and sees to it that there is a clock to do so.
func (p *poller) quieten() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case !p.rests:
		return errAwake
	}
	if p.clock.file == nil {
		if err := p.clock.open(); err != nil {
			return err
		}
	}
	if p.file != nil {
		_ = p.file.Close() // the socket has another descriptor
		p.file = nil
	}
	return nil
}
