// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// closing marks a guard whose owner has called Close.
const closing = 1 << 62

// guard keeps a file descriptor open while system calls use it, so that a
// number which the kernel has already given to another file is never used.
type guard struct {
	fd    int
	event int          // eventfd released together with fd, or 0
	file  *os.File     // that has fd, if Go's poller waits for it
	after func()       // releases what else there is; nil: nothing
	state atomic.Int64 // users inside, plus closing
	once  sync.Once
}

// enter reports whether the descriptor may be used; leave must follow.
func (g *guard) enter() bool {
	if g.state.Add(1)&closing != 0 {
		g.leave()
		return false
	}
	return true
}

// leave ends a use; the last one after close releases the descriptor.
func (g *guard) leave() {
	if g.state.Add(-1) == closing {
		g.once.Do(g.release)
	}
}

// release closes the descriptors.
func (g *guard) release() {
	if g.file != nil {
		_ = g.file.Close()
	} else {
		unix.Close(g.fd)
	}
	if g.event != 0 {
		unix.Close(g.event)
	}
	if g.after != nil {
		g.after()
	}
}

// closed reports whether close was called.
func (g *guard) closed() bool { return g.state.Load()&closing != 0 }

// close forbids new uses, runs wake to end the waiting ones, and releases the
// descriptor when the last has left. Later calls do nothing.
func (g *guard) close(wake func()) {
	for {
		s := g.state.Load()
		if s&closing != 0 {
			return
		}
		// The closer itself counts as a user until wake is done.
		if g.state.CompareAndSwap(s, (s|closing)+1) {
			wake()
			g.leave()
			return
		}
	}
}
