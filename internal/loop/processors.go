// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package loop

import (
	"runtime"
	"sync"
	"time"
)

// Choices for small machines.
const (
	// spareProcessors are for what is not one of the loops: goroutines that run, and a
	// long system call, such as one that loads a program.
	spareProcessors = 2
	// mostProcessors bounds what loops take, since a client may have many sockets.
	mostProcessors = 8
	// longestTurn is half of what Go's scheduler allows a goroutine.
	longestTurn = 5 * time.Millisecond
)

// processors guards the number of Go's processors, of which there is one for the whole
// process.
var processors struct {
	sync.Mutex
	own   int // without any loop
	loops int
}

// AddProcessor gives Go a processor for a loop that reads, until remove is called; a
// machine with many has enough of them. A goroutine that blocks in a system call keeps
// its processor until the scheduler takes it back, up to 10 ms later. Where all are kept
// so nothing else runs meanwhile: a packet that has come waits.
func AddProcessor() (remove func()) {
	changeProcessors(1)
	return func() { changeProcessors(-1) }
}

func changeProcessors(n int) {
	p := &processors
	p.Lock()
	defer p.Unlock()
	if p.loops == 0 {
		p.own = runtime.GOMAXPROCS(0)
	}
	p.loops += n
	want := p.own
	if p.loops > 0 {
		// By twos, since each change stops the world, and most instances have two.
		want = max(p.own, min(p.loops+p.loops%2+spareProcessors, mostProcessors))
	}
	runtime.GOMAXPROCS(want)
}

// turn is since when a loop has had a processor without a pause.
type turn struct{ began time.Time }

// next begins another turn where this one gets long. A goroutine that only goes from one
// system call to the next never passes through the scheduler by itself: after 10 ms it
// counts as one that does not yield, and each of its packets then costs a signal, and the
// waking of two threads that take its processor and give it back.
func (t *turn) next() {
	if time.Since(t.began) < longestTurn {
		return
	}
	runtime.Gosched()
	t.began = time.Now()
}
