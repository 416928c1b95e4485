// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// overflow counts what the kernel has dropped in front of a socket, as a rule because its buffer was full: the
// only trace of that is a number of 32 bits, which the kernel tells when it is asked and which comes round.
type overflow struct {
	mu    sync.Mutex
	last  uint32
	total uint64
}

// dropsInMeminfo is the place of the drops in what SO_MEMINFO tells (SK_MEMINFO_DROPS of <linux/sock_diag.h>).
const dropsInMeminfo = 8

// of returns the count of a socket, which is the last one once that is closed.
func (o *overflow) of(g *guard) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !g.enter() {
		return o.total
	}
	defer g.leave()
	var info [dropsInMeminfo + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(g.fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno == 0 && uintptr(size) == unsafe.Sizeof(info) {
		o.total += uint64(info[dropsInMeminfo] - o.last)
		o.last = info[dropsInMeminfo]
	}
	return o.total
}
