// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batch is how many frames one system call sends.
const batch = 64

// Sender sends raw Ethernet frames by one interface. It is not safe for
// concurrent use.
type Sender struct {
	fd   int
	msgs [batch]mmsghdr
	iov  [batch]unix.Iovec
}

// mmsghdr is struct mmsghdr of sendmmsg(2), whose count of sent bytes is not
// needed.
type mmsghdr struct {
	hdr unix.Msghdr
	_   [8]byte
}

// OpenQueuedSender opens a sender on an interface of the calling thread's network
// namespace, whose frames take the way of all others, past programs at the
// interface. It needs CAP_NET_RAW.
func OpenQueuedSender(iface string) (*Sender, error) {
	fd, err := openPacket(iface, 0)
	if err != nil {
		return nil, err
	}
	return &Sender{fd: fd}, nil
}

// OpenSender opens a sender on an interface of the calling thread's network
// namespace, which goes past the queueing discipline and is faster by that. It
// needs CAP_NET_RAW.
func OpenSender(iface string) (*Sender, error) {
	fd, err := openPacket(iface, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bypassing the queueing discipline of %s: %w", iface, err)
	}
	return &Sender{fd: fd}, nil
}

// openPacket opens a packet socket bound to an interface; protocol 0 receives
// nothing.
func openPacket(iface string, protocol uint16) (int, error) {
	link, err := net.InterfaceByName(iface)
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", iface, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("opening a packet socket: %w", err)
	}
	network := protocol<<8 | protocol>>8
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: network, Ifindex: link.Index}); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("binding to interface %s: %w", iface, err)
	}
	return fd, nil
}

// Close closes the socket.
func (s *Sender) Close() error { return unix.Close(s.fd) }

// Blast sends one frame again and again, as fast as the kernel takes it, for a
// time. It returns how many were taken and how long that took.
func (s *Sender) Blast(frame []byte, d time.Duration) (sent int, took time.Duration, err error) {
	for i := range s.msgs {
		s.iov[i] = unix.Iovec{Base: &frame[0], Len: uint64(len(frame))}
		s.msgs[i].hdr = unix.Msghdr{Iov: &s.iov[i], Iovlen: 1}
	}
	start := time.Now()
	for took < d {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.msgs)), batch, 0, 0, 0)
		switch errno {
		case 0:
			sent += int(n)
		case unix.EINTR, unix.ENOBUFS, unix.EAGAIN:
		default:
			return sent, took, fmt.Errorf("sending frames: %w", errno)
		}
		took = time.Since(start)
	}
	runtime.KeepAlive(frame)
	return sent, took, nil
}

// Send sends one frame.
func (s *Sender) Send(frame []byte) error {
	for {
		_, err := unix.Write(s.fd, frame)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Stream sends n copies of a frame, each with a sequence number of its own that
// counts from first, one every gap. The times in the result are those just
// before each system call, as the kernel's real-time clock tells them.
//
// Call it from a goroutine that is locked to its thread: it waits in the kernel.
func (s *Sender) Stream(frame []byte, first uint64, n int, gap time.Duration) ([]time.Time, error) {
	times := make([]time.Time, n)
	next := time.Now()
	for i := range n {
		if err := Number(frame, first+uint64(i)); err != nil {
			return nil, err
		}
		if wait := time.Until(next); wait > 0 {
			ts := unix.NsecToTimespec(int64(wait))
			_ = unix.Nanosleep(&ts, nil)
		}
		next = next.Add(gap)
		times[i] = time.Now()
		if err := s.Send(frame); err != nil {
			return nil, fmt.Errorf("sending packet %d: %w", i, err)
		}
	}
	return times, nil
}

// SendAll sends frames in their order. Those that the kernel has no room for are
// not sent again; it returns how many were taken.
func (s *Sender) SendAll(frames [][]byte) (sent int, err error) {
	for len(frames) > 0 {
		part := frames[:min(len(frames), batch)]
		frames = frames[len(part):]
		for i, f := range part {
			s.iov[i] = unix.Iovec{Base: &f[0], Len: uint64(len(f))}
			s.msgs[i].hdr = unix.Msghdr{Iov: &s.iov[i], Iovlen: 1}
		}
		for first := 0; first < len(part); {
			n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.msgs[first])), uintptr(len(part)-first), 0, 0, 0)
			switch errno {
			case 0:
				sent += int(n)
				first += int(n)
			case unix.EINTR:
			case unix.ENOBUFS, unix.EAGAIN:
				first++
			default:
				return sent, fmt.Errorf("sending frames: %w", errno)
			}
		}
		runtime.KeepAlive(part)
	}
	return sent, nil
}

// Number puts a sequence number into a frame that holds a test packet with room
// for one, so that a [Tap] tells it from others.
func Number(frame []byte, seq uint64) error {
	end := tagEnd(frame)
	if end == 0 {
		return errors.New("the frame has no room for a sequence number")
	}
	binary.BigEndian.PutUint64(frame[end-8:], seq)
	return nil
}

// tagEnd is where the sequence number of a frame ends, 0 if it has no room for one.
func tagEnd(frame []byte) int {
	at := bytes.Index(frame, marker[:])
	if at < 0 {
		return 0
	}
	return at + len(marker) + 8
}
