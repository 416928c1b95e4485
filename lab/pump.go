// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Choices of the pump.
const (
	ethernetHeader = 14
	maxFrame       = 1 << 16
	// frameRoom is the buffer of a frame of the usual MTU.
	frameRoom = 2048
	// pumpBatch bounds the frames taken in before departures are looked at.
	pumpBatch = 64
	// A write takes maxCost nanoseconds at most, unless others keep it waiting; what is known
	// of it is the mean of about costMemory of them.
	maxCost    = 100_000
	costMemory = 8
	// oldestArrival bounds the age of a receive time; above it the clock was
	// set, and the time says nothing.
	oldestArrival = int64(time.Second)
)

// frame is a packet under way.
type frame struct {
	bytes   []byte
	arrived int64
	leave   int64
	epoch   int
}

// pump moves the packets of one direction at the times its lane gives. It owns
// a thread: Go's own timers are too coarse.
type pump struct {
	in, out int // packet sockets
	wake    int // eventfd, ends the thread
	ended   chan error

	mu   sync.Mutex // guards lane
	lane *lane

	// Of the thread alone:
	flight []frame // in the order of departure
	spare  [][]byte
	buffer []byte
	oob    []byte
	poll   [2]unix.PollFd
	waker  waker
	spin   int64 // how long it may spin for the next departure
	cost   int64 // about what the last writes took
}

func newPump(in, out int, l *lane) (*pump, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &pump{in: in, out: out, wake: wake, lane: l, ended: make(chan error, 1),
		buffer: make([]byte, maxFrame), oob: make([]byte, 128),
		poll: [2]unix.PollFd{{Fd: int32(in), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}}, nil
}

// start runs the pump. One more processor for Go's scheduler lets the thread
// run at once when it wakes, however busy other goroutines are.
func (p *pump) start() {
	addProcessors(1)
	go func() {
		// Never unlocked: the thread has a priority that no other work should
		// inherit, and ends with the goroutine.
		runtime.LockOSThread()
		preferThread()
		p.ended <- p.run()
	}()
}

var processors sync.Mutex

func addProcessors(n int) {
	processors.Lock()
	defer processors.Unlock()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
}

// preferThread makes the thread wake on time, as far as the system allows:
// without the right to it the wire works with more variation. Its name is what a count of
// CPU time tells the medium by (load.Usage), which is no one's work.
func preferThread() {
	_ = os.WriteFile("/proc/thread-self/comm", []byte("wire"), 0)
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0)
}

// end stops the thread and waits for it.
func (p *pump) end() error {
	_, err := unix.Write(p.wake, binary.NativeEndian.AppendUint64(nil, 1))
	err = errors.Join(err, <-p.ended, unix.Close(p.wake))
	addProcessors(-1)
	return err
}

func (p *pump) setCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lane.setCut(cut)
}

// stale drops a frame that a cut has found under way: what came after the cut may leave before it
// would have.
func (p *pump) stale(f frame) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.epoch == p.lane.epoch {
		return false
	}
	p.lane.count.Cut++
	return true
}

func (p *pump) lose(n int, of Filter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lane.lose = append(p.lane.lose, losing{n, of})
}

func (p *pump) counters() LaneCounters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lane.count
}

var started = time.Now()

// monotonic is the time of the clock that is never set, in nanoseconds since the start of the
// process. It takes no system call.
func monotonic() int64 { return int64(time.Since(started)) }

func (p *pump) run() error {
	for {
		ended, err := p.wait()
		if ended || err != nil {
			return err
		}
		if err := p.takeIn(); err != nil {
			return err
		}
		p.sendDue()
	}
}

// wait sleeps until a frame arrives or the next departure is near.
func (p *pump) wait() (ended bool, err error) {
	var timeout *unix.Timespec
	var until int64
	if len(p.flight) > 0 {
		now := monotonic()
		p.spin = p.waker.early(now)
		until = max(p.flight[0].leave-p.cost-p.spin, now)
		ts := unix.NsecToTimespec(until - now)
		timeout = &ts
	}
	n, err := unix.Ppoll(p.poll[:], timeout, nil)
	switch {
	case err != nil && !errors.Is(err, unix.EINTR):
		return false, fmt.Errorf("wire: poll: %w", err)
	case err == nil && n == 0:
		p.waker.woke(monotonic() - until)
	}
	return p.poll[1].Revents != 0, nil
}

// takeIn gives waiting frames to the lane.
func (p *pump) takeIn() error {
	for range pumpBatch {
		n, oobn, _, _, err := unix.Recvmsg(p.in, p.buffer[vlanTag:], p.oob, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			return nil
		case errors.Is(err, unix.ENETDOWN):
			continue // an end was switched off; it may come back
		case err != nil:
			return fmt.Errorf("wire: receive: %w", err)
		}
		// The age first: what passes between the two makes the packet late, not early.
		age := int64(time.Since(receiveTime(p.oob[:oobn])))
		arrived := monotonic()
		if age > 0 && age < oldestArrival {
			arrived -= age
		}
		p.admit(withTag(p.buffer, n, p.oob[:oobn]), arrived)
	}
	return nil
}

func (p *pump) admit(b []byte, arrived int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	leave, ok := p.lane.admit(arrived, b)
	if !ok {
		return
	}
	if len(p.flight) == laneFrames {
		p.lane.count.TooMany++
		return
	}
	p.flight = append(p.flight, frame{append(p.room(), b...), arrived, leave, p.lane.epoch})
}

func (p *pump) room() []byte {
	if last := len(p.spare) - 1; last >= 0 {
		b := p.spare[last]
		p.spare = p.spare[:last]
		return b[:0]
	}
	return make([]byte, 0, frameRoom)
}

// sendDue sends every frame whose time has come, spinning for one that is
// nearly due.
func (p *pump) sendDue() {
	sent := 0
	for sent < len(p.flight) {
		f := p.flight[sent]
		if p.stale(f) {
			p.spare = append(p.spare, f.bytes)
			sent++
			continue
		}
		now := monotonic()
		begin := f.leave - p.cost
		if begin-now > p.spin {
			break
		}
		p.spin = wakeEarly // what comes behind it may be slept for
		began := now
		for now < begin {
			now = monotonic()
		}
		p.waker.spun(now - began)
		p.send(f, now)
		p.spare = append(p.spare, f.bytes)
		sent++
	}
	p.flight = p.flight[:copy(p.flight, p.flight[sent:])]
}

// send writes a frame. When that returns the far end has taken it, so it begins earlier by
// what it takes, some hundredths of a millisecond where the processor was asleep.
func (p *pump) send(f frame, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &p.lane.count
	if p.lane.cut || f.epoch != p.lane.epoch {
		c.Cut++
		return
	}
	if _, err := unix.Write(p.out, f.bytes); err != nil {
		c.Refused++
		return
	}
	done := monotonic()
	p.cost += (min(done-now, maxCost) - p.cost) / costMemory
	late := max(time.Duration(done-f.leave), 0)
	c.Sent++
	c.Latency += time.Duration(f.leave - f.arrived)
	c.Late += late
	c.WorstLate = max(c.WorstLate, late)
}
