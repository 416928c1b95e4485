// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"time"

	"golang.org/x/sys/unix"
)

// restful is what lets the reader of a socket sleep while packets come. Go's poller does not wait for the socket, by which
// each packet would wake it, but for a queue of events (epoll) that has those of the socket or those of a clock. Timers of
// Go's own wake a thread when they are set, and another when they are due.
type restful struct {
	fd, queue, clock int
	deaf             bool // the socket has no events
	armed            bool
	wait             unix.ItimerSpec
	wake             func(fd uintptr) bool
}

// newRestful makes one for the socket of a guard, which closes what it has.
func newRestful(g *guard) (*restful, error) {
	queue, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	clock, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		unix.Close(queue)
		return nil, err
	}
	g.behind = []int{g.fd, clock}
	r := &restful{fd: g.fd, queue: queue, clock: clock}
	err = unix.SetNonblock(queue, true)
	for _, fd := range g.behind {
		if err == nil {
			err = unix.EpollCtl(queue, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN})
		}
	}
	if err != nil {
		unix.Close(queue)
		return nil, err
	}
	r.wake = r.due
	return r, nil
}

// listen has packets that come be events, or not.
func (r *restful) listen(on bool) error {
	if r.deaf == !on {
		return nil
	}
	var event unix.EpollEvent // errors are always among them
	if on {
		event.Events = unix.EPOLLIN
	}
	err := unix.EpollCtl(r.queue, unix.EPOLL_CTL_MOD, r.fd, &event)
	if err == nil {
		r.deaf = !on
	}
	return err
}

// rest sleeps until its time is over, or the socket is closed.
func (p *poller) rest(d time.Duration) {
	r := p.rests
	if r == nil || r.listen(false) != nil {
		return
	}
	r.wait.Value, r.armed = unix.NsecToTimespec(int64(d)), false
	_ = p.conn.Read(r.wake)
}

// due sets the clock when it is called first, and says when it is called again that it has gone off.
func (r *restful) due(uintptr) bool {
	if r.armed {
		return true
	}
	r.armed = true
	return unix.TimerfdSettime(r.clock, 0, &r.wait, nil) != nil
}
