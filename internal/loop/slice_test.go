// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package loop

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// slice is that of a thread, 0 where the kernel knows none.
func slice(t *testing.T, tid int) time.Duration {
	t.Helper()
	attr, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(attr.Runtime)
}

// TestHurry has every thread, and one that is made later, on short slices.
func TestHurry(t *testing.T) {
	if attr, err := unix.SchedGetAttr(0, 0); err != nil || attr.Policy != unix.SCHED_NORMAL || attr.Runtime == 0 {
		t.Skip("this kernel, or the scheduling class that the test is in, knows no slices of threads")
	}
	Hurry()
	check := func(tid int) error {
		if s := slice(t, tid); s != shortSlice {
			t.Errorf("thread %d has slices of %v", tid, s)
		}
		return nil
	}
	if err := eachThread(check); err != nil {
		t.Error(err)
	}
	checked := make(chan error)
	for range 2 * runtime.GOMAXPROCS(0) {
		go func() {
			runtime.LockOSThread() // it ends with the goroutine, so each has one of its own
			checked <- check(unix.Gettid())
		}()
	}
	for range 2 * runtime.GOMAXPROCS(0) {
		if err := <-checked; err != nil {
			t.Error(err)
		}
	}
}
