// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Stats is a snapshot of a port's counters since it was opened. Packets are IP
// packets or UDP datagrams, after splitting and before coalescing.
type Stats struct {
	ReadPackets, ReadBytes uint64
	// ReadCalls counts system calls that returned packets. A call may return
	// a superpacket or a train that is handed out as many packets.
	ReadCalls uint64
	// ReadTruncated counts packets dropped because they exceed the buffer.
	ReadTruncated uint64
	// ReadMalformed counts packets dropped because the kernel's description of
	// them makes no sense.
	ReadMalformed uint64
	// ReadEmpty counts datagrams without payload, which are nothing to any role.
	ReadEmpty uint64
	// ReadFull counts packets that the kernel has dropped in front of a socket, because
	// nobody had read those before them.
	ReadFull uint64

	WritePackets, WriteBytes uint64
	// WriteCalls counts system calls for sending.
	WriteCalls uint64
	// WriteFull counts packets dropped because a queue or buffer was full.
	WriteFull uint64
	// WriteDenied counts packets dropped by a local firewall or policy.
	WriteDenied uint64
	// WriteTooBig counts packets dropped because they exceed the link's MTU.
	WriteTooBig uint64
	// WriteUnreachable counts packets dropped for want of a route, a source
	// address or a link that is up.
	WriteUnreachable uint64
	// WriteFailed counts packets dropped for any other reason.
	WriteFailed uint64
	// SegmentFallbacks counts trains of packets that the kernel would not
	// segment, and that were written one by one.
	SegmentFallbacks uint64
}

// Plus returns the sum of two ports that serve one purpose.
func (s Stats) Plus(t Stats) Stats {
	s.ReadPackets += t.ReadPackets
	s.ReadBytes += t.ReadBytes
	s.ReadCalls += t.ReadCalls
	s.ReadTruncated += t.ReadTruncated
	s.ReadMalformed += t.ReadMalformed
	s.ReadEmpty += t.ReadEmpty
	s.ReadFull += t.ReadFull
	s.WritePackets += t.WritePackets
	s.WriteBytes += t.WriteBytes
	s.WriteCalls += t.WriteCalls
	s.WriteFull += t.WriteFull
	s.WriteDenied += t.WriteDenied
	s.WriteTooBig += t.WriteTooBig
	s.WriteUnreachable += t.WriteUnreachable
	s.WriteFailed += t.WriteFailed
	s.SegmentFallbacks += t.SegmentFallbacks
	return s
}

// counters are the live values behind Stats.
type counters struct {
	readPackets, readBytes, readCalls, readTruncated, readMalformed, readEmpty atomic.Uint64

	writePackets, writeBytes, writeCalls                               atomic.Uint64
	writeFull, writeDenied, writeTooBig, writeUnreachable, writeFailed atomic.Uint64
	segmentFallbacks                                                   atomic.Uint64
}

// Stats returns the counters.
func (c *counters) Stats() Stats {
	return Stats{
		ReadPackets:      c.readPackets.Load(),
		ReadBytes:        c.readBytes.Load(),
		ReadCalls:        c.readCalls.Load(),
		ReadTruncated:    c.readTruncated.Load(),
		ReadMalformed:    c.readMalformed.Load(),
		ReadEmpty:        c.readEmpty.Load(),
		WritePackets:     c.writePackets.Load(),
		WriteBytes:       c.writeBytes.Load(),
		WriteCalls:       c.writeCalls.Load(),
		WriteFull:        c.writeFull.Load(),
		WriteDenied:      c.writeDenied.Load(),
		WriteTooBig:      c.writeTooBig.Load(),
		WriteUnreachable: c.writeUnreachable.Load(),
		WriteFailed:      c.writeFailed.Load(),
		SegmentFallbacks: c.segmentFallbacks.Load(),
	}
}

// sent counts packets that the kernel took.
func (c *counters) sent(packets, bytes int) {
	c.writePackets.Add(uint64(packets))
	c.writeBytes.Add(uint64(bytes))
}

// refused counts packets that the kernel would not take, by its error.
func (c *counters) refused(packets int, errno unix.Errno) {
	n := &c.writeFailed
	switch errno {
	case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
		n = &c.writeFull
	case unix.EPERM, unix.EACCES:
		n = &c.writeDenied
	case unix.EMSGSIZE:
		n = &c.writeTooBig
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EADDRNOTAVAIL, unix.EIO, unix.ENODEV:
		n = &c.writeUnreachable
	}
	n.Add(uint64(packets))
}
