// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TUN is a queue of a TUN device, which goes, with its addresses and routes, when
// the last queue is closed or the process ends, but for what [TUNConfig].Persistent
// says.
type TUN struct {
	counters
	guard      guard
	name       string
	index      int
	mtu        int
	forwarding bool
	offload    bool
	persistent bool        // it is ours and outlives the process
	lasting    bool        // its end is waited out, see [TUNConfig].Lasting
	queues     bool        // it is one of several queues
	noUDP      atomic.Bool // the kernel does not segment UDP
	bufs       [MaxBatch][]byte
	raw        []byte      // with offload: what one system call reads
	super      superpacket // with offload: what of it is left
	out        pool[tunWriter]
	poll       [2]unix.PollFd // the reader's; here so that it is not allocated
}

// Name is the device's name, as the kernel chose it.
func (t *TUN) Name() string { return t.name }

// Index is the device's interface index.
func (t *TUN) Index() int { return t.index }

// MTU is the device's MTU as set at opening, in bytes.
func (t *TUN) MTU() int { return t.mtu }

// ReadBatch implements [Tun]. Only one goroutine may read.
func (t *TUN) ReadBatch(pkts [][]byte) (int, error) {
	if !t.guard.enter() {
		return 0, ErrClosed
	}
	defer t.guard.leave()
	for pkts = pkts[:min(len(pkts), MaxBatch)]; ; pkts = pkts[:min(len(pkts), 1)] {
		n, err := t.drain(pkts)
		if t.lasting && errors.Is(err, unix.EBADFD) {
			if err := t.await(t.poll[1:]); err != nil {
				return 0, err
			}
			continue
		}
		if n > 0 || err != nil {
			return n, err
		}
		// The packet that ends a pause is handed over at once. Asking whether
		// another follows costs it a system call; if one does, the next call
		// takes all there are.
		if err := t.await(t.poll[:]); err != nil {
			return 0, err
		}
	}
}

// drain reads what is there without waiting.
func (t *TUN) drain(pkts [][]byte) (int, error) {
	n, total := 0, 0
	for n < len(pkts) {
		size, errno := t.readOne(t.bufs[n])
		if errno == unix.EINTR {
			continue
		}
		if errno == unix.EAGAIN {
			break
		}
		if errno != 0 {
			if n > 0 {
				break // the next call meets the same error
			}
			return 0, fmt.Errorf("cannot read from TUN device %s, was it removed?: %w", t.name, errno)
		}
		if size == 0 {
			continue // dropped and counted
		}
		pkts[n] = t.bufs[n][:size:size]
		if t.forwarding {
			addHop(pkts[n])
		}
		total += size
		n++
	}
	if n > 0 {
		t.readPackets.Add(uint64(n))
		t.readBytes.Add(uint64(total))
	}
	return n, nil
}

// readOne reads one packet into buf, which is a byte longer than the MTU. Size 0
// is a packet that was dropped.
func (t *TUN) readOne(buf []byte) (size int, errno unix.Errno) {
	if t.offload {
		return t.readOffload(buf)
	}
	size, errno = readNow(t.guard.fd, buf)
	if errno != 0 {
		return 0, errno
	}
	t.readCalls.Add(1)
	if size == len(buf) {
		t.readTruncated.Add(1)
		return 0, 0
	}
	return size, 0
}

// readOffload takes the next packet of the superpacket in work, or reads.
func (t *TUN) readOffload(buf []byte) (size int, errno unix.Errno) {
	if t.super.data == nil {
		n, errno := readNow(t.guard.fd, t.raw)
		if errno != 0 {
			return 0, errno
		}
		t.readCalls.Add(1)
		if n < vnetHdrLen {
			t.readMalformed.Add(1)
			return 0, 0
		}
		single, ok := t.super.parse(t.raw[:vnetHdrLen], t.raw[vnetHdrLen:n])
		if !ok {
			t.readMalformed.Add(1)
			return 0, 0
		}
		if single != nil {
			if len(single) >= len(buf) {
				t.readTruncated.Add(1)
				return 0, 0
			}
			return copy(buf, single), 0
		}
	}
	if size = t.super.hand(buf[:len(buf)-1]); size == 0 {
		t.readTruncated.Add(1)
	}
	return size, 0
}

// await blocks until one of the descriptors is readable or the device is closed. The last
// one is for events: that the device is closed, or is there again.
func (t *TUN) await(on []unix.PollFd) error {
	for {
		_, _, errno := unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&on[0])), uintptr(len(on)), 0, 0, 0, 0)
		if t.guard.closed() {
			return ErrClosed
		}
		if event := &on[len(on)-1]; event.Revents != 0 {
			event.Revents = 0
			_, _ = unix.Read(t.guard.event, make([]byte, 8))
		}
		if errno == 0 {
			return nil
		}
		if errno != unix.EINTR {
			return fmt.Errorf("cannot wait for TUN device %s: %w", t.name, errno)
		}
	}
}

// WriteBatch implements [Tun].
func (t *TUN) WriteBatch(pkts [][]byte) error {
	if !t.guard.enter() {
		return ErrClosed
	}
	defer t.guard.leave()
	if t.forwarding {
		for _, p := range pkts {
			addHop(p)
		}
	}
	if t.offload {
		t.writeOffload(pkts)
		return nil
	}
	for _, p := range pkts {
		if len(p) > 0 {
			t.wrote(1, len(p), writeNow(t.guard.fd, p))
		}
	}
	return nil
}

// wrote counts a write of packets.
func (t *TUN) wrote(packets, bytes int, errno unix.Errno) {
	t.writeCalls.Add(1)
	if errno != 0 {
		t.refused(packets, errno)
		return
	}
	t.sent(packets, bytes)
}

// writeOffload writes packets, neighbours of one flow together.
func (t *TUN) writeOffload(pkts [][]byte) {
	w := t.out.get()
	defer t.out.put(w)
	for len(pkts) > 0 {
		if len(pkts[0]) == 0 {
			pkts = pkts[1:]
			continue
		}
		n, f := run(pkts, !t.noUDP.Load())
		iovs, total := w.load(pkts[:n], f)
		errno := writevNow(t.guard.fd, iovs)
		if n > 1 && errno == unix.EINVAL {
			t.segmentFallbacks.Add(1)
			w.restore(pkts[0], f)
			for i := range n {
				iovs, size := w.load(pkts[i:i+1], f)
				t.wrote(1, size, writevNow(t.guard.fd, iovs))
			}
		} else {
			t.wrote(n, total+(n-1)*f.headers, errno)
		}
		pkts = pkts[n:]
	}
}

// Close implements [Tun] and, with the last queue, removes the device.
func (t *TUN) Close() error {
	t.guard.close(t.wake)
	return nil
}

// wake makes a waiting reader look again.
func (t *TUN) wake() { _, _ = unix.Write(t.guard.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// readNow reads one packet from a non-blocking descriptor. RawSyscall spares
// the scheduler's bookkeeping, which is for calls that may block.
func readNow(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return int(n), errno
}

// writeNow writes one packet to a non-blocking descriptor.
func writeNow(fd int, b []byte) unix.Errno {
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		if errno != unix.EINTR {
			return errno
		}
	}
}

// writevNow writes one packet in pieces to a non-blocking descriptor. It may be
// many packets' work for the kernel, so the scheduler is told.
func writevNow(fd int, iovs []unix.Iovec) unix.Errno {
	for {
		_, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&iovs[0])), uintptr(len(iovs)))
		if errno != unix.EINTR {
			return errno
		}
	}
}
