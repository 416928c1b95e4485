// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pairControlLen is CMSG_SPACE of the source address, of either family, and that of the segment size.
const pairControlLen = 40 + segmentControlLen

// pairSender is one writer's scratch space.
type pairSender struct {
	hdrs     [MaxBatch]mmsghdr
	v6       bool // the socket's family
	names    [MaxBatch]sockaddr
	controls [MaxBatch][pairControlLen]byte
	iovs     [MaxBatch]unix.Iovec // shared by the headers in order
	count    [MaxBatch]int        // packets of each header
}

// infoSpace is how many bytes of the control messages say the source.
func (s *pairSender) infoSpace() int {
	if s.v6 {
		return unix.CmsgSpace(unix.SizeofInet6Pktinfo)
	}
	return unix.CmsgSpace(unix.SizeofInet4Pktinfo)
}

// newPairSender prepares what does not change from call to call.
func newPairSender(v6 bool) *pairSender {
	s := &pairSender{v6: v6}
	for i := range s.hdrs {
		s.hdrs[i].hdr.Name = (*byte)(unsafe.Pointer(&s.names[i]))
		s.hdrs[i].hdr.Control = &s.controls[i][0]
		info := (*unix.Cmsghdr)(unsafe.Pointer(&s.controls[i][0]))
		if v6 {
			info.Level, info.Type = unix.IPPROTO_IPV6, unix.IPV6_PKTINFO
			info.SetLen(unix.CmsgLen(unix.SizeofInet6Pktinfo))
		} else {
			info.Level, info.Type = unix.IPPROTO_IP, unix.IP_PKTINFO
			info.SetLen(unix.CmsgLen(unix.SizeofInet4Pktinfo))
		}
		segment := (*unix.Cmsghdr)(unsafe.Pointer(&s.controls[i][s.infoSpace()]))
		segment.Level, segment.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
		segment.SetLen(unix.CmsgLen(2))
	}
	return s
}

// putSource writes the source of header i.
func (s *pairSender) putSource(i int, from netip.Addr) {
	data := s.controls[i][unix.SizeofCmsghdr:]
	if s.v6 {
		addr := from.As16()
		copy(data, addr[:]) // ipi6_addr of struct in6_pktinfo
		return
	}
	addr := from.As4()
	copy(data[4:], addr[:]) // ipi_spec_dst of struct in_pktinfo
}

// WriteBatch sends packets in order. Neighbours of equal length and the same addresses leave as one
// train, of which the last may be shorter. A packet that the kernel refuses is counted, not reported.
func (p *Pairs) WriteBatch(pkts []Paired) error {
	if !p.udp.guard.enter() {
		return ErrClosed
	}
	defer p.udp.guard.leave()
	s := p.out.get()
	defer p.out.put(s)
	for len(pkts) > 0 {
		if pkts[0].Fragment {
			p.sendFragmented(s, pkts[:1])
			pkts = pkts[1:]
			continue
		}
		taken := pkts[:whole(pkts)]
		pkts = pkts[len(taken):]
		p.send(s, taken, !p.udp.noSegments.Load())
	}
	return nil
}

// whole is how many packets from the start are not to be fragmented, up to MaxBatch.
func whole(pkts []Paired) (n int) {
	for n < min(len(pkts), MaxBatch) && !pkts[n].Fragment {
		n++
	}
	return n
}

// sendFragmented sends a packet that IP may fragment. What another writer sends in this moment may be, too.
func (p *Pairs) sendFragmented(s *pairSender, pkts []Paired) {
	_ = setFragment(p.udp.guard.fd, p.v6, true) // else it is sent whole
	p.send(s, pkts, false)
	_ = setFragment(p.udp.guard.fd, p.v6, false)
}

// send sends up to MaxBatch packets.
func (p *Pairs) send(s *pairSender, pkts []Paired, trains bool) {
	hdrs := s.hdrs[:s.load(pkts, trains)]
	sendmmsg := sendmmsg
	octets := 0
	for i := range pkts {
		octets += len(pkts[i].Payload)
	}
	if octets < much {
		sendmmsg = sendmmsgFew
	}
	again := -1 // the header that is tried once more
	for first := 0; first < len(hdrs); {
		n, errno := sendmmsg(p.udp.guard.fd, hdrs[first:])
		p.udp.writeCalls.Add(1)
		for range n {
			p.udp.sent(s.count[first], int(hdrs[first].n))
			pkts = pkts[s.count[first]:]
			first++
		}
		if errno == 0 || errno == unix.EINTR {
			continue
		}
		if again != first && p.mayRetry(errno) {
			again = first
			continue
		}
		count := s.count[first]
		if count > 1 && refusesTrains(errno) {
			p.udp.segmentFallbacks.Add(1)
			if errno == unix.EIO || errno == unix.EOPNOTSUPP {
				p.udp.noSegments.Store(true)
			}
			// This uses the scratch space up, so what follows is loaded again.
			p.send(s, pkts[:count], false)
			p.send(s, pkts[count:], !p.udp.noSegments.Load())
			return
		}
		p.udp.refused(count, errno)
		pkts = pkts[count:]
		first++
	}
}

// roomWait is how long a packet may wait for room in the socket's buffer: what the device sends meanwhile is more than
// a path loses by waiting.
const roomWait = 20 // milliseconds

// mayRetry reports whether a packet that the kernel has refused is to be tried once more: the error may be that of an
// earlier packet, and what a queue has no room for may find some. Where all senders of a device wait, none loses what
// the network would have carried.
func (p *Pairs) mayRetry(errno unix.Errno) bool {
	switch {
	case errno == unix.EAGAIN:
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.udp.guard.fd), Events: unix.POLLOUT}}, roomWait)
		return err == nil && n > 0
	case p.onError != nil && isReported(errno):
		p.readErrors()
		return true
	}
	return false
}

// load fills the headers and returns how many.
func (s *pairSender) load(pkts []Paired, trains bool) int {
	n, iov := 0, 0
	for len(pkts) > 0 {
		count := 1
		if trains {
			count = pairTrain(pkts)
		}
		h := &s.hdrs[n].hdr
		h.Namelen = s.names[n].put(pkts[0].Remote, s.v6)
		s.putSource(n, pkts[0].Local)
		h.Iov = &s.iovs[iov]
		h.SetIovlen(count)
		space := s.infoSpace()
		if count > 1 {
			binary.NativeEndian.PutUint16(s.controls[n][space+unix.SizeofCmsghdr:], uint16(len(pkts[0].Payload)))
			space += segmentControlLen
		}
		h.SetControllen(space)
		for _, d := range pkts[:count] {
			s.iovs[iov].Base = unsafe.SliceData(d.Payload)
			s.iovs[iov].SetLen(len(d.Payload))
			iov++
		}
		s.count[n] = count
		pkts = pkts[count:]
		n++
	}
	return n
}

// pairTrain is how many packets from the start can leave as one train.
func pairTrain(pkts []Paired) int {
	first := &pkts[0]
	size, total, n := len(first.Payload), len(first.Payload), 1
	for n < min(len(pkts), maxSegments) {
		d := &pkts[n]
		total += len(d.Payload)
		if len(d.Payload) > size || len(d.Payload) == 0 || total > maxSegmented || d.Remote != first.Remote || d.Local != first.Local {
			break
		}
		n++
		if len(d.Payload) < size {
			break // only the last may be shorter
		}
	}
	return n
}
