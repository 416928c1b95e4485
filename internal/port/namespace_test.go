// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Goroutines that never let their threads go, as those that enter a namespace, do not get the
// process's first one.
func TestFirstThreadIsMains(t *testing.T) {
	const many = 100
	var locked, done sync.WaitGroup
	release := make(chan struct{})
	locked.Add(many)
	for range many {
		done.Go(func() {
			runtime.LockOSThread()
			if unix.Gettid() == os.Getpid() {
				t.Error("it has the first thread")
			}
			locked.Done()
			<-release
		})
	}
	locked.Wait()
	close(release)
	done.Wait()
}
