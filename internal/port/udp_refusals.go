// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// OnRefusal has f told, of a socket over IPv4 and by the goroutine that reads, of each destination whose host says by
// ICMP that no program has the port (RFC 1122 section 4.1.3.3), while [UDP.Refusals] is on.
// It is called before the socket is read.
func (u *UDP) OnRefusal(f func(to netip.AddrPort)) { u.onRefusal, u.onError = f, u.readRefusals }

// Refusals switches that on or off, behind an OnRefusal. While it is on, news of one destination may
// have the kernel refuse a datagram to another.
func (u *UDP) Refusals(on bool) error {
	if !u.guard.enter() {
		return ErrClosed
	}
	defer u.guard.leave()
	value := 0
	if on {
		value = 1
	}
	if err := unix.SetsockoptInt(u.guard.fd, unix.IPPROTO_IP, unix.IP_RECVERR, value); err != nil {
		return fmt.Errorf("cannot ask for ICMP errors: %w", err)
	}
	return nil
}

// Of <linux/errqueue.h> and <linux/icmp.h>.
const (
	originICMP          = 2
	icmpUnreachable     = 3
	icmpPortUnreachable = 3
	extendedErrLen      = 16
)

// readRefusals takes the errors that are queued, up to a batch. The kernel queues all that ICMP reports, in the
// room of what is received: those that are no refusals go, too.
func (u *UDP) readRefusals() {
	control := make([]byte, 256)
	for range MaxBatch {
		_, n, _, to, err := unix.Recvmsg(u.guard.fd, nil, control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			return
		}
		if at, ok := to.(*unix.SockaddrInet4); ok && isRefusal(control[:n]) {
			u.onRefusal(netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)))
		}
	}
}

// isRefusal reports whether control messages of the error queue say that a port is unreachable.
func isRefusal(control []byte) bool {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return false
	}
	for _, m := range messages {
		if m.Header.Level != unix.IPPROTO_IP || m.Header.Type != unix.IP_RECVERR || len(m.Data) < extendedErrLen {
			continue
		}
		// struct sock_extended_err: errno, origin, type, code
		if unix.Errno(binary.NativeEndian.Uint32(m.Data)) == unix.ECONNREFUSED && m.Data[4] == originICMP && m.Data[5] == icmpUnreachable && m.Data[6] == icmpPortUnreachable {
			return true
		}
	}
	return false
}
