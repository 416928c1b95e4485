// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// poller receives from a socket with the help of Go's poller, for sockets of which a process may have thousands: one
// that waits in the kernel has a thread to itself.
type poller struct {
	fd    int
	rests *restful // nil: it never does
	conn  syscall.RawConn
	try   func(fd uintptr) bool
	hdrs  []mmsghdr
	got   int
	errno unix.Errno
	busy  bool // much has come the last time
}

// much are octets that take so long to receive that the goroutine lets its processor go.
const much = 8 << 10

// newPoller makes one for the socket of a guard, which can rest if it is to.
func newPoller(g *guard, rests bool) (*poller, error) {
	p := &poller{fd: g.fd}
	polled, err := g.fd, unix.SetNonblock(g.fd, true)
	if err == nil && rests {
		if p.rests, err = newRestful(g); err == nil {
			polled = p.rests.queue
		}
	}
	if err == nil {
		g.file = os.NewFile(uintptr(polled), "socket")
		p.conn, err = g.file.SyscallConn()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot poll a socket: %w", err)
	}
	p.try = p.receiveNow
	return p, nil
}

// receive is recvmmsg, and waits for the first message. Once the socket is closed it returns EBADF.
func (p *poller) receive(hdrs []mmsghdr) (int, unix.Errno) {
	p.hdrs = hdrs
	if err := p.conn.Read(p.try); err != nil {
		return 0, unix.EBADF
	}
	return p.got, p.errno
}

// receiveNow reports whether there was something. If not, what comes is waited for.
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
	if p.errno != unix.EAGAIN {
		return true
	}
	return p.rests != nil && p.rests.listen(true) != nil // which cannot be; then it is asked again and again
}
