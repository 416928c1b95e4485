// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"net/netip"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of <sys/socket.h>, which x/sys does not export.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32 // bytes received or sent
	_   [4]byte
}

// recvmmsg receives up to len(hdrs) messages in one system call.
func recvmmsg(fd int, hdrs []mmsghdr, flags int) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&hdrs[0])), uintptr(len(hdrs)), uintptr(flags), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// sendmmsg sends up to len(hdrs) messages in one system call. The kernel
// reports the error of a message only when that message is the first.
func sendmmsg(fd int, hdrs []mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&hdrs[0])), uintptr(len(hdrs)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// putSockaddr4 writes an IPv4 socket address.
func putSockaddr4(sa *unix.RawSockaddrInet4, to netip.AddrPort) {
	sa.Family = unix.AF_INET
	port := to.Port()
	p := (*[2]byte)(unsafe.Pointer(&sa.Port))
	p[0], p[1] = byte(port>>8), byte(port)
	sa.Addr = to.Addr().Unmap().As4()
}

// sockaddr4 reads an IPv4 socket address.
func sockaddr4(sa *unix.RawSockaddrInet4) netip.AddrPort {
	p := (*[2]byte)(unsafe.Pointer(&sa.Port))
	return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(p[0])<<8|uint16(p[1]))
}

// pool lends scratch space to concurrent writers. Unlike sync.Pool it never
// gives its entries to the garbage collector, so that a steady load allocates
// nothing; it grows to the number of writers that were inside at once.
type pool[T any] struct {
	mu   sync.Mutex
	free []*T
	make func() *T
}

// get borrows an entry.
func (p *pool[T]) get() *T {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		t := p.free[n-1]
		p.free = p.free[:n-1]
		return t
	}
	return p.make()
}

// put gives an entry back.
func (p *pool[T]) put(t *T) {
	p.mu.Lock()
	p.free = append(p.free, t)
	p.mu.Unlock()
}
