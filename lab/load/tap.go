// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tapBuffer is what may wait for a tap, in bytes as the kernel counts them: half a
// second of what a busy machine lets through.
const tapBuffer = 64 << 20

// Tap stamps the test packets that arrive at one interface. It sees them before
// any filter of the receiving host does.
type Tap struct {
	fd   int
	done chan struct{}

	mu      sync.Mutex
	arrived map[uint64]time.Time
	more    chan struct{} // closed and replaced at each arrival
}

// OpenTap opens a tap on an interface of the calling thread's network namespace.
// It needs CAP_NET_RAW.
func OpenTap(iface string) (*Tap, error) {
	fd, err := openPacket(iface, unix.ETH_P_ALL)
	if err != nil {
		return nil, err
	}
	// A time-out lets the reader see that the tap was closed.
	tv := unix.NsecToTimeval(int64(50 * time.Millisecond))
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, tapBuffer),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
	)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("preparing the tap of %s: %w", iface, err)
	}
	t := &Tap{fd: fd, done: make(chan struct{}), arrived: map[uint64]time.Time{}, more: make(chan struct{})}
	go t.read()
	return t, nil
}

// Close ends the tap.
func (t *Tap) Close() error {
	close(t.done)
	return nil
}

func (t *Tap) read() {
	defer unix.Close(t.fd)
	frame, oob := make([]byte, 2048), make([]byte, 128)
	for {
		select {
		case <-t.done:
			return
		default:
		}
		n, oobn, _, _, err := unix.Recvmsg(t.fd, frame, oob, 0)
		if err != nil {
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				continue
			}
			return
		}
		seq, ok := sequence(frame[:n])
		if !ok {
			continue
		}
		if at, ok := stamp(oob[:oobn]); ok {
			t.arrive(seq, at)
		}
	}
}

func (t *Tap) arrive(seq uint64, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.arrived[seq] = at
	close(t.more)
	t.more = make(chan struct{})
}

// sequence returns the sequence number of a test packet.
func sequence(frame []byte) (uint64, bool) {
	at := bytes.Index(frame, marker[:])
	if at < 0 || len(frame) < at+len(marker)+8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(frame[at+len(marker):]), true
}

// stamp returns the kernel's time of arrival.
func stamp(oob []byte) (time.Time, bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return time.Time{}, false
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			ts := (*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
			return time.Unix(ts.Unix()), true
		}
	}
	return time.Time{}, false
}

// Take waits until the packets first to first+n-1 have arrived, at most for
// patience, and returns their times of arrival in order; the zero time stands for
// one that did not come. It forgets them.
func (t *Tap) Take(first uint64, n int, patience time.Duration) []time.Time {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		t.mu.Lock()
		got := 0
		for i := range n {
			if _, ok := t.arrived[first+uint64(i)]; ok {
				got++
			}
		}
		more := t.more
		t.mu.Unlock()
		if got == n {
			break
		}
		select {
		case <-more:
			continue
		case <-timer.C:
		}
		break
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	times := make([]time.Time, n)
	for i := range n {
		times[i] = t.arrived[first+uint64(i)]
		delete(t.arrived, first+uint64(i))
	}
	return times
}
