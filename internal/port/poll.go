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
	conn  syscall.RawConn
	try   func(fd uintptr) bool
	hdrs  []mmsghdr
	got   int
	errno unix.Errno
	busy  bool // much has come the last time
}

// much are octets that take so long to receive that the goroutine lets its processor go.
const much = 8 << 10

// newPoller makes one for the socket of a guard.
func newPoller(g *guard) (*poller, error) {
	err := unix.SetNonblock(g.fd, true)
	if err != nil {
		return nil, fmt.Errorf("cannot poll a socket: %w", err)
	}
	p := &poller{}
	g.file = os.NewFile(uintptr(g.fd), "socket")
	if p.conn, err = g.file.SyscallConn(); err != nil {
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

// receiveNow reports whether there was something.
func (p *poller) receiveNow(fd uintptr) bool {
	if p.busy {
		p.got, p.errno = recvmmsg(int(fd), p.hdrs, unix.MSG_DONTWAIT)
	} else {
		p.got, p.errno = recvmmsgNow(int(fd), p.hdrs)
	}
	octets := 0
	for i := range p.got {
		octets += int(p.hdrs[i].n)
	}
	p.busy = octets >= much
	return p.errno != unix.EAGAIN
}
