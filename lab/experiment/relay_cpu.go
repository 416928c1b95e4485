// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab/load"
)

// Who runs where in the relay tables: what sends has a CPU of its own, and what
// forwards in the kernel another.
const senderCPU = 0

// forwarderCPU is the last one, which is the sender's too if there is no other.
var forwarderCPU = runtime.NumCPU() - 1

// forwarderFact says where what forwards runs, beside a peer in user space.
func forwarderFact(peer string) string {
	at := fmt.Sprintf("on CPU %d", forwarderCPU)
	if !load.SeesKernelThreads() {
		at = "on any CPU, since kernel threads are hidden here"
	}
	return fmt.Sprintf("kernel, tc and XDP: receiving threads and the sink behind them %s; %s and user space: any CPU", at, peer)
}

// urgent is the nice value of what must not wait for programs: receiving in the
// kernel, which an interrupt would bring about, and the generator beside it.
const urgent = -20

// nice is the nice value of generator and receiving threads for that way: where a
// program forwards they must leave it its turn.
func (w way) nice() int {
	if w == wayMiredo || w == wayUser || w == wayTayga {
		return 0
	}
	return urgent
}

// generate runs f, which runs the generator for a slice, on the sender's CPU. A
// longer run must not be urgent: the kernel's own workers on that CPU would wait
// for its end, and whoever changes devices or programs for them.
func (w way) generate(f func() error) error {
	return onCPU(senderCPU, func() error {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, w.nice()); err != nil {
			return fmt.Errorf("setting the generator's nice value: %w", err)
		}
		return f()
	})
}

// onCPU runs f on a thread that stays on one CPU, so that sender and relay do not
// push each other around.
func onCPU(cpu int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its affinity
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			done <- fmt.Errorf("staying on one CPU: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}
