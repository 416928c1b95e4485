// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"runtime"
	"sync"
)

// processors guards the number of Go's processors, of which there is one for
// the whole process.
var processors sync.Mutex

// addProcessors gives Go n more processors until remove is called. A goroutine
// that blocks in a system call keeps its processor until the scheduler takes it
// back, up to 10 ms later. Where all are kept so, nothing else runs meanwhile.
func addProcessors(n int) (remove func()) {
	change := func(n int) {
		processors.Lock()
		defer processors.Unlock()
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
	}
	change(n)
	return func() { change(-n) }
}
