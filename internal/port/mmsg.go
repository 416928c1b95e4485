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

// Calls of recvmmsg and sendmmsg that do not wait, and are soon done, are not announced to Go's scheduler. It would wake
// its monitor to watch them, which takes more of the processor than they do where a program wakes up for each packet.

// recvmmsgNow takes what has come already.
func recvmmsgNow(fd int, hdrs []mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&hdrs[0])), uintptr(len(hdrs)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// sendmmsgFew is sendmmsg of a few octets.
func sendmmsgFew(fd int, hdrs []mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&hdrs[0])), uintptr(len(hdrs)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// sockaddr has room for a socket address of either family, which both begin with family
// and port.
type sockaddr unix.RawSockaddrInet6

// put writes a socket address of the family of its socket, and returns its length. One of IPv6
// for a socket of IPv4 is written as it is, which the kernel refuses.
func (sa *sockaddr) put(to netip.AddrPort, v6 bool) uint32 {
	port := to.Port()
	p := (*[2]byte)(unsafe.Pointer(&sa.Port))
	p[0], p[1] = byte(port>>8), byte(port)
	to4 := to.Addr().Unmap()
	if v6 || !to4.Is4() {
		sa.Family, sa.Addr = unix.AF_INET6, to.Addr().As16()
		return unix.SizeofSockaddrInet6
	}
	four := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
	four.Family, four.Addr = unix.AF_INET, to4.As4()
	return unix.SizeofSockaddrInet4
}

// addrPort reads a socket address that the kernel has written.
func (sa *sockaddr) addrPort() netip.AddrPort {
	p := (*[2]byte)(unsafe.Pointer(&sa.Port))
	port := uint16(p[0])<<8 | uint16(p[1])
	if sa.Family == unix.AF_INET6 {
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(sa)).Addr), port)
}

// sockaddrOf is an address as package unix takes it.
func sockaddrOf(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

// addrPortOf is an address that package unix has given.
func addrPortOf(sa unix.Sockaddr) (netip.AddrPort, bool) {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), true
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)), true
	}
	return netip.AddrPort{}, false
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
