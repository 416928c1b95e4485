// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"math"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// threadTime is the CPU time of the calling thread.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// burn has the calling thread use so much CPU time, and leave its CPU, so that it is
// counted.
func burn(t *testing.T, d time.Duration) {
	t.Helper()
	for begin := threadTime(t); threadTime(t)-begin < d; {
	}
	_ = unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil)
}

// count begins a count, and keeps the test on one thread.
func count(t *testing.T) *Usage {
	t.Helper()
	testutil.NeedRoot(t)
	if !SeesKernelThreads() {
		t.Skip("numbers of processes are not the kernel's here")
	}
	u, err := NewUsage()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	t.Cleanup(func() {
		runtime.UnlockOSThread()
		u.Close()
	})
	return u
}

// The time of a process counts from when it is watched.
func TestUsageCountsWatchedProcesses(t *testing.T) {
	u := count(t)
	const used = 50 * time.Millisecond
	if counted := leastCounted(t, u, used/2, func() { burn(t, used) }); counted > used/2 {
		t.Errorf("%v were counted before there was anything to count", counted)
	}
	before, err := u.Time()
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Watch(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	burn(t, used)
	after, err := u.Time()
	if err != nil {
		t.Fatal(err)
	}
	if after-before < used {
		t.Errorf("%v of %v were counted", after-before, used)
	}
}

// A thread that is a wire does not count, whoever it belongs to.
func TestUsageLeavesWiresOut(t *testing.T) {
	u := count(t)
	if err := u.Watch(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	const used = 200 * time.Millisecond
	burn(t, time.Millisecond) // what comes before the first event of a CPU is not in the count
	burn(t, used)
	before, err := u.Time()
	if err != nil || before < used {
		t.Fatalf("%v of %v were counted of another thread, %v", before, used, err)
	}
	if counted := leastCounted(t, u, used/2, func() { burnAsWire(t, used) }); counted > used/2 {
		t.Errorf("%v of a wire's %v were counted", counted, used)
	}
}

// leastCounted is the least that is counted while work is done, which is done again while it is
// more than enough: what the kernel receives for others meanwhile counts, too, and may be
// much, but not each time.
func leastCounted(t *testing.T, u *Usage, enough time.Duration, work func()) time.Duration {
	t.Helper()
	least := time.Duration(math.MaxInt64)
	for range 20 {
		before, errBefore := u.Time()
		work()
		after, errAfter := u.Time()
		if err := errors.Join(errBefore, errAfter); err != nil {
			t.Fatal(err)
		}
		if least = min(least, after-before); least <= enough {
			break
		}
	}
	return least
}

// burnAsWire uses that much of a processor in a thread by the name of a wire.
func burnAsWire(t *testing.T, used time.Duration) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and never unlocked: the name ends with the thread
		if err := os.WriteFile("/proc/thread-self/comm", []byte("wire"), 0); err != nil {
			t.Error(err)
		}
		burn(t, used)
	}()
	<-ended
}
