// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package loop

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// shortSlice is the shortest slice of a thread that the kernel grants.
const shortSlice = 100 * time.Microsecond

// Hurry asks for short slices for all threads of the process and those that they will make. Of the
// threads that may run, Linux chooses the one whose slice ends first, and lets one that wakes with
// a shorter slice go before the one that runs (EEVDF). So a packet does not wait for a program
// that computes; what a thread gets in all stays the same. Without it single packets of programs
// in user space waited in part for the thread by which Go's runtime watches its scheduler: it
// wakes each 20 µs for a while after a pause, and on a busy processor waits for its turn, which it
// was given when a packet had come.
//
// It is best effort: kernels before 6.12 know no slices of threads.
func Hurry() {
	_ = eachThread(func(tid int) error {
		attr, err := unix.SchedGetAttr(tid, 0)
		if err != nil || attr.Policy != unix.SCHED_NORMAL || attr.Runtime == 0 {
			return err
		}
		attr.Runtime = uint64(shortSlice)
		return unix.SchedSetAttr(tid, attr, 0)
	})
}

// eachThread calls f for each thread of the process.
func eachThread(f func(tid int) error) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return err
		}
		if err := f(tid); err != nil {
			return err
		}
	}
	return nil
}
