// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"runtime"
	"sync"
	"testing"
)

func TestProcessorsAreGivenBack(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			remove := addProcessors(2)
			if got := runtime.GOMAXPROCS(0); got < before+2 {
				t.Errorf("%d processors, want at least %d", got, before+2)
			}
			remove()
		})
	}
	wait.Wait()
	if after := runtime.GOMAXPROCS(0); after != before {
		t.Errorf("%d processors are left, want %d", after, before)
	}
}
