// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// poller receives from a socket with the help of Go's poller, for sockets of which a process may have thousands: one
// that waits in the kernel has a thread to itself.
type poller struct {
	fd     int
	rests  bool
	conn   syscall.RawConn // of file
	try    func(fd uintptr) bool
	hdrs   []mmsghdr
	got    int
	errno  unix.Errno
	busy   bool // much has come the last time
	clock  clock
	rested bool // who reads next does not wait

	mu     sync.Mutex // holds the rest, against who closes the socket
	file   *os.File   // by which packets wake the reader; nil while it rests
	closed bool
}

// much are octets that take so long to receive or to send that the goroutine lets its processor go.
const much = 8 << 10

// newPoller makes one for the socket of a guard. If it is to rest it has a descriptor of its own for Go's poller.
func newPoller(g *guard, rests bool) (*poller, error) {
	p := &poller{fd: g.fd, rests: rests}
	p.try = p.receiveNow
	err := unix.SetNonblock(g.fd, true)
	if err == nil {
		err = p.listen()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot poll a socket: %w", err)
	}
	if g.after = p.release; !rests {
		g.file, g.after = p.file, nil
	}
	return p, nil
}

// listen has packets that come wake the reader.
func (p *poller) listen() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	fd := p.fd
	if p.rests {
		if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return err
		}
	}
	file := os.NewFile(uintptr(fd), "socket")
	if p.rests {
		if err := polled(file); err != nil {
			return err
		}
	}
	p.file = file
	p.conn, err = file.SyscallConn()
	return err
}

// polled closes a file that Go's poller has not taken, of which [os.NewFile] says nothing.
func polled(file *os.File) error {
	if err := file.SetReadDeadline(time.Time{}); err != nil {
		return errors.Join(fmt.Errorf("the kernel polls no more descriptors: raise fs.epoll.max_user_watches (%w)", err), file.Close())
	}
	return nil
}

// receive is recvmmsg, and waits for the first message unless it has rested. Once the socket is closed it returns EBADF.
func (p *poller) receive(hdrs []mmsghdr) (int, unix.Errno) {
	p.hdrs = hdrs
	if p.file == nil && !p.rested { // it has rested before
		if err := p.listen(); err == ErrClosed {
			return 0, unix.EBADF
		} else if err != nil { // no descriptor is free
			p.rest(retryListen)
		}
	}
	if p.rested {
		p.receiveNow(0)
		return p.got, p.errno
	}
	if err := p.conn.Read(p.try); err != nil {
		return 0, unix.EBADF
	}
	return p.got, p.errno
}

// hasRested reports whether the last receive came behind a rest.
func (p *poller) hasRested() bool {
	if p == nil || !p.rested {
		return false
	}
	p.rested = false
	return true
}

// receiveNow reports whether there was something.
func (p *poller) receiveNow(uintptr) bool {
	if p.busy {
		p.got, p.errno = recvmmsg(p.fd, p.hdrs, unix.MSG_DONTWAIT)
	} else {
		p.got, p.errno = recvmmsgNow(p.fd, p.hdrs)
	}
	octets := 0
	for i := range p.got {
		octets += int(p.hdrs[i].n)
	}
	p.busy = octets >= much
	return p.errno != unix.EAGAIN
}

// wake ends the waiting and the rest of the reader for good.
func (p *poller) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, file := range []*os.File{p.file, p.clock.file} {
		if file != nil {
			_ = file.SetReadDeadline(time.Unix(1, 0))
		}
	}
}

// release closes what a poller has that rests, when nobody uses it any more.
func (p *poller) release() {
	for _, file := range []*os.File{p.file, p.clock.file} {
		if file != nil {
			_ = file.Close()
		}
	}
}
