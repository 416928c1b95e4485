// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// forwarder is what forwards on a way.
type forwarder int

// The forwarders.
const (
	byCable  forwarder = iota // nothing is between the hosts
	byKernel                  // plain forwarding
	byPeer                    // a program to compare with
	byIsthmus
)

// way is one of several ways between two hosts: what it is called and by whom it
// leads. A rig builds it.
type way struct {
	name  string      // of its node, its interfaces and in samples
	title string      // in tables
	role  report.Role // its colour
	by    forwarder
	fast  string // setting that makes Isthmus go that way
}

// The ways.
var (
	wayBare    = way{name: "bare", title: "bare hop", role: report.Reference}
	wayDirect4 = way{name: "direct4", title: "v4-v4", role: report.Reference}
	wayDirect6 = way{name: "direct6", title: "v6-v6", role: report.Reference}
	wayPlain   = way{name: "plain", title: "plain IPv6", role: report.Reference}
	wayKernel  = way{name: "kernel", title: "kernel forwarding", role: report.Reference, by: byKernel}
	wayMiredo  = way{name: "miredo", title: "Miredo", role: report.Peer, by: byPeer}
	wayTayga   = way{name: "tayga", title: "tayga", role: report.Peer, by: byPeer}
	wayOsmo    = way{name: "osmo", title: "osmo-ggsn", role: report.Peer, by: byPeer}
	wayUser    = way{name: "user", title: "Isthmus user space", role: report.Ours, by: byIsthmus, fast: "off"}
	wayTC      = way{name: "tc", title: "Isthmus tc", role: report.OursTC, by: byIsthmus, fast: "tc"}
	wayXDP     = way{name: "xdp", title: "Isthmus XDP", role: report.OursXDP, by: byIsthmus, fast: "xdp"}
)

// isthmusWays are those of Isthmus.
var isthmusWays = []way{wayUser, wayTC, wayXDP}

// ours reports that Isthmus forwards.
func (w way) ours() bool { return w.by == byIsthmus }

// runs reports that a program has to run for the way.
func (w way) runs() bool { return w.by == byPeer || w.by == byIsthmus }

// userSpace reports that packets pass through a program in user space.
func (w way) userSpace() bool { return w.by == byPeer || w == wayUser }

// hook is where packets of the way can be counted without a detour.
func (w way) hook() load.Hook {
	if w == wayXDP {
		return load.HookXDP
	}
	return load.HookTC
}

// sink is what ends every way of a comparison: XDP drops what it counts before a packet
// of the host's has been made of it, so that hardly any of the sink is in the figures.
const sink = load.HookXDP

// Who runs where: what sends has a CPU of its own, and what
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
	if w.userSpace() {
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
