// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
)

const (
	ethernetLen = 14
	// packetBuffer is the largest packet that the kernel hands over in one piece.
	packetBuffer = vnetHdrLen + ethernetLen + packet.IPv6HeaderLen + 65535
)

// packetSocket reads what comes by a link. What the sender's stack has left to a device, to
// segment a packet or to fill its checksum, is done.
type packetSocket struct {
	counters
	overflow overflow
	guard    guard
	front    int  // length of the link-layer header
	keep     bool // it is handed on
	bufs     [MaxBatch][]byte
	raw      []byte
	super    superpacket
	poll     [2]unix.PollFd
}

// open makes the socket, which receives nothing before bind, for packets of the size of an MTU.
func (g *packetSocket) open(mtu int) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("no permission to open a packet socket: run as root or with CAP_NET_RAW: %w", err)
	}
	if err != nil {
		return fmt.Errorf("cannot open a packet socket: %w", err)
	}
	g.guard.fd = fd
	g.raw = make([]byte, packetBuffer)
	size := mtu + 1
	if g.keep {
		size += g.front
	}
	for i := range g.bufs {
		g.bufs[i] = make([]byte, size)
	}
	return nil
}

// bind has the socket receive what comes by a link, of one protocol or of all.
func (g *packetSocket) bind(link int, protocol uint16) (err error) {
	if err := unix.SetsockoptInt(g.guard.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return err
	}
	setBuffer(g.guard.fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, defaultBuffer)
	if err := unix.Bind(g.guard.fd, &unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8, Ifindex: link}); err != nil {
		return err
	}
	if g.guard.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	g.poll = [2]unix.PollFd{{Fd: int32(g.guard.fd), Events: unix.POLLIN}, {Fd: int32(g.guard.event), Events: unix.POLLIN}}
	return nil
}

// Stats returns the counters.
func (g *packetSocket) Stats() Stats {
	s := g.counters.Stats()
	s.ReadFull = g.overflow.of(&g.guard)
	return s
}

// wake has who waits in ReadBatch look again.
func (g *packetSocket) wake() { unix.Write(g.guard.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// ReadBatch waits for a packet, then takes what is there without waiting, as that of [Tun]
// does.
func (g *packetSocket) ReadBatch(pkts [][]byte) (int, error) {
	if !g.guard.enter() {
		return 0, ErrClosed
	}
	defer g.guard.leave()
	for {
		n, err := g.drain(pkts[:min(len(pkts), MaxBatch)])
		if n > 0 || err != nil {
			return n, err
		}
		if err := g.wait(); err != nil {
			return 0, err
		}
	}
}

// drain reads what is there without waiting.
func (g *packetSocket) drain(pkts [][]byte) (n int, err error) {
	for n < len(pkts) {
		size, errno := g.readOne(g.bufs[n])
		switch errno {
		case 0:
		case unix.EAGAIN:
			return n, nil
		case unix.EINTR, unix.EINVAL, unix.ENETDOWN:
			continue // a packet that cannot be described, a link that went down: the next may be good
		default:
			if n > 0 {
				return n, nil // the next call meets the same error
			}
			return 0, fmt.Errorf("cannot read from the packet socket: %w", errno)
		}
		if size == 0 {
			continue // dropped and counted
		}
		pkts[n] = g.bufs[n][:size:size]
		g.readPackets.Add(1)
		g.readBytes.Add(uint64(size))
		n++
	}
	return n, nil
}

// readOne takes the next packet of the superpacket in work, or reads.
func (g *packetSocket) readOne(buf []byte) (size int, errno unix.Errno) {
	kept := 0
	if g.keep {
		kept = g.front
	}
	if size, errno = g.readBehind(buf[kept:]); size > 0 {
		copy(buf[:kept], g.raw[vnetHdrLen:])
		size += kept
	}
	return size, errno
}

// readBehind reads what stands behind the link-layer header.
func (g *packetSocket) readBehind(buf []byte) (size int, errno unix.Errno) {
	if g.super.data == nil {
		n, errno := readNow(g.guard.fd, g.raw)
		if errno != 0 {
			return 0, errno
		}
		g.readCalls.Add(1)
		if n < vnetHdrLen+g.front {
			g.readMalformed.Add(1)
			return 0, 0
		}
		header := g.raw[:vnetHdrLen]
		if header[0]&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM != 0 {
			// The transport's place is told from the link-layer header on.
			start := binary.NativeEndian.Uint16(header[6:])
			binary.NativeEndian.PutUint16(header[6:], max(start, uint16(g.front))-uint16(g.front))
		}
		single, ok := g.super.parse(header, g.raw[vnetHdrLen+g.front:n])
		switch {
		case !ok:
			g.readMalformed.Add(1)
			return 0, 0
		case single != nil && len(single) >= len(buf):
			g.readTruncated.Add(1)
			return 0, 0
		case single != nil:
			return copy(buf, single), 0
		}
	}
	if size = g.super.hand(buf[:len(buf)-1]); size == 0 {
		g.readTruncated.Add(1)
	}
	return size, 0
}

// wait blocks until the socket is readable or closed.
func (g *packetSocket) wait() error {
	for {
		_, _, errno := unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&g.poll[0])), uintptr(len(g.poll)), 0, 0, 0, 0)
		switch {
		case g.guard.closed():
			return ErrClosed
		case errno == 0:
			return nil
		case errno != unix.EINTR:
			return fmt.Errorf("cannot wait for packets: %w", errno)
		}
	}
}
