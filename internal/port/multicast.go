// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// JoinMulticast makes a socket that is bound to a multicast address receive what
// is sent to that address on a link. The socket hears no other link.
func (u *UDP) JoinMulticast(link int) error {
	return u.membership(link, unix.IP_ADD_MEMBERSHIP, "join")
}

// LeaveMulticast undoes [UDP.JoinMulticast].
func (u *UDP) LeaveMulticast(link int) error {
	return u.membership(link, unix.IP_DROP_MEMBERSHIP, "leave")
}

func (u *UDP) membership(link, option int, what string) error {
	if !u.guard.enter() {
		return ErrClosed
	}
	defer u.guard.leave()
	// Else a group that any program has joined is heard on any link.
	err := unix.SetsockoptInt(u.guard.fd, unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0)
	if err == nil {
		mreq := &unix.IPMreqn{Multiaddr: u.local.Addr().As4(), Ifindex: int32(link)}
		err = unix.SetsockoptIPMreqn(u.guard.fd, unix.IPPROTO_IP, option, mreq)
	}
	if err != nil {
		return fmt.Errorf("cannot %s %s on interface %d: %w", what, u.local.Addr(), link, err)
	}
	return nil
}

// SendMulticastBy chooses the link by which multicast datagrams leave. They cross
// no router: their time to live is 1.
func (u *UDP) SendMulticastBy(link int) error {
	if !u.guard.enter() {
		return ErrClosed
	}
	defer u.guard.leave()
	mreq := &unix.IPMreqn{Ifindex: int32(link)}
	err := unix.SetsockoptIPMreqn(u.guard.fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, mreq)
	if err == nil {
		err = unix.SetsockoptInt(u.guard.fd, unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, 1)
	}
	if err != nil {
		return fmt.Errorf("cannot send multicast by interface %d: %w", link, err)
	}
	return nil
}
