// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxTrain is the most the kernel puts into one receive buffer when it
	// merges datagrams of one flow (UDP_GRO): one IPv4 packet.
	maxTrain = 65535
	// trainStride keeps the starts of the buffers apart by more than a power
	// of two: else the first lines of all of them, often the only ones used,
	// fall into the same few cache sets.
	trainStride = maxTrain + 1 + 33*64
	// controlLen holds the control messages of the destination and the traffic class, of either
	// family, and of UDP_GRO.
	controlLen = 96
)

// receiver is the state of a socket's one reader.
type receiver struct {
	local    netip.Addr // To of every datagram unless wildcard
	wildcard bool
	classes  bool // they are told
	n        int  // buffers
	hdrs     [MaxBatch]mmsghdr
	iovs     [MaxBatch]unix.Iovec
	names    [MaxBatch]sockaddr
	controls [MaxBatch][controlLen]byte
	bufs     [MaxBatch][]byte

	// filled counts the buffers of the last system call, next is the first
	// that is not handed out, rest its datagrams still to be handed out,
	// segment their length, and class their traffic class.
	filled, next int
	rest         []byte
	segment      int
	class        uint8
}

// init prepares the headers once; only lengths change from call to call. The n buffers
// are of size bytes and start stride bytes apart.
func (r *receiver) init(local netip.Addr, wildcard, gro bool, n, size, stride int) {
	r.local, r.wildcard, r.n = local, wildcard, n
	slab := make([]byte, n*stride)
	for i := range r.hdrs[:n] {
		r.bufs[i] = slab[i*stride:][:size:size]
		r.iovs[i].Base = &r.bufs[i][0]
		r.iovs[i].SetLen(size)
		h := &r.hdrs[i].hdr
		h.Name = (*byte)(unsafe.Pointer(&r.names[i]))
		h.Iov = &r.iovs[i]
		h.SetIovlen(1)
		if wildcard || gro || r.classes {
			h.Control = &r.controls[i][0]
		}
	}
	r.arm(n)
}

// arm resets the lengths that the kernel wrote over, in the first n headers: as
// many as the last call filled. Touching all of them would cost a single packet
// more than its own way through an engine.
func (r *receiver) arm(n int) {
	for i := range r.hdrs[:n] {
		h := &r.hdrs[i].hdr
		h.Namelen = unix.SizeofSockaddrInet6
		h.Flags = 0
		if h.Control != nil {
			h.SetControllen(controlLen)
		}
	}
}

// ReadBatch implements [UDPConn]. Only one goroutine may read.
func (u *UDP) ReadBatch(msgs []Message) (int, error) {
	if !u.guard.enter() {
		return 0, ErrClosed
	}
	defer u.guard.leave()
	for rested := false; ; rested = u.poller.hasRested() {
		if n := u.hand(msgs); n > 0 || rested {
			return n, nil
		}
		if err := u.fill(min(len(msgs), u.in.n)); err != nil {
			return 0, err
		}
	}
}

// fill waits for a datagram and takes up to n without waiting further.
func (u *UDP) fill(n int) error {
	r := &u.in
	if u.grows && (r.filled == r.n || u.readTruncated.Load() > 0) {
		u.grow()
	}
	r.arm(r.filled)
	got, errno := u.receive(r.hdrs[:n])
	if u.guard.closed() {
		return ErrClosed
	}
	r.filled, r.next, r.rest = got, 0, nil
	if u.onError != nil && isReported(errno) {
		u.onError() // about an earlier datagram, if not forged: it says nothing about the socket
		return nil
	}
	switch errno {
	case 0:
		u.readCalls.Add(1)
		return nil
	case unix.EINTR, unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM, unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH:
		// Interrupted, short of memory for a moment, or an ICMP error that
		// nobody has asked for: none says anything about the socket.
		return nil
	}
	return fmt.Errorf("cannot receive on UDP %s: %w", u.local, errno)
}

// grow has the socket read into large buffers. Nothing may be left in those that it has.
func (u *UDP) grow() {
	r := &u.in
	u.grows = false
	u.merges = unix.SetsockoptInt(u.guard.fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) == nil
	r.init(r.local, r.wildcard, u.merges, r.n, maxTrain, trainStride)
}

// receive waits in the kernel, or by a poller.
func (u *UDP) receive(hdrs []mmsghdr) (int, unix.Errno) {
	if u.poller != nil {
		return u.poller.receive(hdrs)
	}
	return recvmmsg(u.guard.fd, hdrs, unix.MSG_WAITFORONE)
}

// isReported reports whether an error can be that of an ICMP message, or of an earlier packet (icmp_err_convert and
// icmpv6_err_convert of the kernel).
func isReported(errno unix.Errno) bool {
	switch errno {
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENOPROTOOPT, unix.ECONNREFUSED, unix.EMSGSIZE, unix.EOPNOTSUPP,
		unix.EHOSTDOWN, unix.ENONET, unix.EPROTO, unix.EACCES:
		return true
	}
	return false
}

// hand gives out datagrams of the filled buffers, splitting merged ones. What
// does not fit into msgs stays for the next call.
func (u *UDP) hand(msgs []Message) int {
	r := &u.in
	n, total := 0, 0
	for n < len(msgs) {
		if len(r.rest) == 0 {
			if r.next >= r.filled {
				break
			}
			u.open(r.next)
			r.next++
			continue
		}
		size := min(r.segment, len(r.rest))
		i := r.next - 1
		msgs[n] = Message{Payload: r.rest[:size:size], From: r.names[i].addrPort(), To: r.local, Class: r.class}
		if r.wildcard {
			msgs[n].To = r.destination(i)
		}
		r.rest = r.rest[size:]
		total += size
		n++
	}
	u.readPackets.Add(uint64(n))
	u.readBytes.Add(uint64(total))
	return n
}

// open makes buffer i the one that datagrams are handed out of.
func (u *UDP) open(i int) {
	r := &u.in
	size := int(r.hdrs[i].n)
	if r.hdrs[i].hdr.Flags&unix.MSG_TRUNC != 0 {
		u.readTruncated.Add(1)
		return
	}
	if size == 0 {
		u.readEmpty.Add(1)
	}
	r.rest = r.bufs[i][:size]
	r.segment = size
	if b := r.control(i, unix.IPPROTO_UDP, unix.UDP_GRO); len(b) >= 4 {
		if s := int(binary.NativeEndian.Uint32(b)); s > 0 {
			r.segment = s
		}
	}
	if r.classes {
		r.class = r.classOf(i)
	}
}

// classOf is the traffic class of buffer i: the kernel merges no datagrams of several.
func (r *receiver) classOf(i int) uint8 {
	if r.local.Is6() {
		if b := r.control(i, unix.IPPROTO_IPV6, unix.IPV6_TCLASS); len(b) >= 4 { // an int
			return uint8(binary.NativeEndian.Uint32(b))
		}
		return 0
	}
	if b := r.control(i, unix.IPPROTO_IP, unix.IP_TOS); len(b) > 0 { // an octet
		return b[0]
	}
	return 0
}

// destination is the address that buffer i was sent to.
func (r *receiver) destination(i int) netip.Addr {
	if r.local.Is6() {
		var addr [16]byte
		if b := r.control(i, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO); len(b) >= unix.SizeofInet6Pktinfo {
			copy(addr[:], b) // ipi6_addr of struct in6_pktinfo
		}
		return netip.AddrFrom16(addr)
	}
	var addr [4]byte
	if b := r.control(i, unix.IPPROTO_IP, unix.IP_PKTINFO); len(b) >= unix.SizeofInet4Pktinfo {
		copy(addr[:], b[8:12]) // ipi_addr of struct in_pktinfo
	}
	return netip.AddrFrom4(addr)
}

// control returns the data of a control message of buffer i, or nil.
func (r *receiver) control(i int, level, kind int32) []byte {
	if r.hdrs[i].hdr.Control == nil {
		return nil
	}
	b := r.controls[i][:min(int(r.hdrs[i].hdr.Controllen), controlLen)]
	for len(b) >= unix.SizeofCmsghdr {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		size := int(h.Len)
		if size < unix.SizeofCmsghdr || size > len(b) {
			return nil
		}
		if h.Level == level && h.Type == kind {
			return b[unix.SizeofCmsghdr:size]
		}
		b = b[min(unix.CmsgSpace(size-unix.SizeofCmsghdr), len(b)):]
	}
	return nil
}
