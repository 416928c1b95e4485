// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
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
	burn(t, used)
	unwatched, err := u.Time()
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Watch(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	burn(t, used)
	watched, err := u.Time()
	if err != nil {
		t.Fatal(err)
	}
	if watched-unwatched < used {
		t.Errorf("%v of %v were counted", watched-unwatched, used)
	}
	// What others receive meanwhile counts, too, but is little.
	if unwatched > used {
		t.Errorf("%v were counted before there was anything to count", unwatched)
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
	// What the kernel receives for others meanwhile counts, too, and may be much: not each time.
	var counted time.Duration
	for range 20 {
		burnAsWire(t, used)
		after, err := u.Time()
		if err != nil {
			t.Fatal(err)
		}
		if counted = after - before; counted <= used/2 {
			return
		}
		before = after
	}
	t.Errorf("%v of a wire's %v were counted", counted, used)
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
