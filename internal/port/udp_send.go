// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
)

const (
	// maxSegments is UDP_MAX_SEGMENTS of kernels before 6.9.
	maxSegments = 64
	// maxSegmented bounds the payload of a train: an IPv4 packet less headers
	// with all options.
	maxSegmented = 65535 - 60 - 8
	// segmentControlLen is CMSG_SPACE of what one control message has: the 16-bit segment size, or the
	// time to live or traffic class, an int.
	segmentControlLen = 24
	// maxControls is how many messages a datagram has: a train has no time to live of its own.
	maxControls = 2
)

// sender is one writer's scratch space.
type sender struct {
	hdrs     [MaxBatch]mmsghdr
	v6       bool // the socket's family
	names    [MaxBatch]sockaddr
	controls [MaxBatch][maxControls * segmentControlLen]byte
	iovs     [MaxBatch]unix.Iovec // shared by the headers in order
	count    [MaxBatch]int        // datagrams of each header
}

// newSender prepares what does not change from call to call.
func newSender(v6 bool) *sender {
	s := &sender{v6: v6}
	for i := range s.hdrs {
		s.hdrs[i].hdr.Name = (*byte)(unsafe.Pointer(&s.names[i]))
		s.hdrs[i].hdr.Control = &s.controls[i][0]
	}
	return s
}

// control appends a control message of the IP header to those of a header.
func (s *sender) control(n int, four, six int32, value uint8) {
	level, kind := int32(unix.IPPROTO_IP), four
	if s.v6 {
		level, kind = unix.IPPROTO_IPV6, six
	}
	binary.NativeEndian.PutUint32(s.message(n, level, kind, 4), uint32(value))
}

// message appends a control message to those of a header, and returns its value.
func (s *sender) message(n int, level, kind int32, size int) []byte {
	h := &s.hdrs[n].hdr
	at := s.controls[n][h.Controllen:]
	m := (*unix.Cmsghdr)(unsafe.Pointer(&at[0]))
	m.Level, m.Type = level, kind
	m.SetLen(unix.CmsgLen(size))
	h.SetControllen(int(h.Controllen) + segmentControlLen)
	return at[unix.SizeofCmsghdr:]
}

// WriteBatch implements [UDPConn]. Neighbouring datagrams of equal length to
// one destination leave as one train, which the kernel or the device cuts
// (UDP_SEGMENT); the last of a train may be shorter.
func (u *UDP) WriteBatch(dgrams []packet.Datagram) error {
	if !u.guard.enter() {
		return ErrClosed
	}
	defer u.guard.leave()
	s := u.out.get()
	defer u.out.put(s)
	for len(dgrams) > 0 {
		taken := dgrams[:min(len(dgrams), MaxBatch)]
		dgrams = dgrams[len(taken):]
		u.send(s, taken, !u.noSegments.Load())
	}
	return nil
}

// send sends up to MaxBatch datagrams.
func (u *UDP) send(s *sender, dgrams []packet.Datagram, trains bool) {
	hdrs := s.hdrs[:s.load(dgrams, trains)]
	first := 0 // header in work
	for first < len(hdrs) {
		n, errno := sendmmsg(u.guard.fd, hdrs[first:])
		u.writeCalls.Add(1)
		for range n {
			u.sent(s.count[first], int(hdrs[first].n))
			dgrams = dgrams[s.count[first]:]
			first++
		}
		if errno == 0 || errno == unix.EINTR {
			continue
		}
		count := s.count[first]
		if count > 1 && refusesTrains(errno) {
			u.segmentFallbacks.Add(1)
			if errno == unix.EIO || errno == unix.EOPNOTSUPP {
				u.noSegments.Store(true)
			}
			// One by one, the kernel may cut them into fragments. This uses the
			// scratch space up, so what follows is loaded again.
			u.send(s, dgrams[:count], false)
			u.send(s, dgrams[count:], !u.noSegments.Load())
			return
		}
		u.refused(count, errno)
		dgrams = dgrams[count:]
		first++
	}
}

// refusesTrains reports whether an error can concern the train and not its
// datagrams: segments longer than the path's MTU (EMSGSIZE, on older
// kernels EINVAL), or a route or device that cannot segment (EIO, EOPNOTSUPP).
func refusesTrains(errno unix.Errno) bool {
	return errno == unix.EMSGSIZE || errno == unix.EINVAL || errno == unix.EIO || errno == unix.EOPNOTSUPP
}

// load fills the headers and returns how many.
func (s *sender) load(dgrams []packet.Datagram, trains bool) int {
	n, iov := 0, 0
	for len(dgrams) > 0 {
		count := 1
		if trains {
			count = trainLen(dgrams)
		}
		h := &s.hdrs[n].hdr
		h.Namelen = s.names[n].put(dgrams[0].To, s.v6)
		h.Iov = &s.iovs[iov]
		h.SetIovlen(count)
		h.SetControllen(0)
		if count > 1 {
			binary.NativeEndian.PutUint16(s.message(n, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2), uint16(len(dgrams[0].Payload)))
		} else if ttl := dgrams[0].TTL; ttl != 0 {
			s.control(n, unix.IP_TTL, unix.IPV6_HOPLIMIT, ttl)
		}
		if class := dgrams[0].Class; class != 0 {
			s.control(n, unix.IP_TOS, unix.IPV6_TCLASS, class)
		}
		for _, d := range dgrams[:count] {
			s.iovs[iov].Base = unsafe.SliceData(d.Payload)
			s.iovs[iov].SetLen(len(d.Payload))
			iov++
		}
		s.count[n] = count
		dgrams = dgrams[count:]
		n++
	}
	return n
}

// trainLen is how many datagrams from the start can leave as one train.
func trainLen(dgrams []packet.Datagram) int {
	size, total := len(dgrams[0].Payload), len(dgrams[0].Payload)
	if size == 0 || dgrams[0].TTL != 0 {
		return 1
	}
	n := 1
	for n < min(len(dgrams), maxSegments) {
		d := &dgrams[n]
		total += len(d.Payload)
		if d.To != dgrams[0].To || d.TTL != 0 || d.Class != dgrams[0].Class || len(d.Payload) > size || len(d.Payload) == 0 || total > maxSegmented {
			break
		}
		n++
		if len(d.Payload) < size {
			break // only the last may be shorter
		}
	}
	return n
}
