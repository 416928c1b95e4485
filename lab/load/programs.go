// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Work is how often a program has run and how long that took, while someone had its
// runs timed.
type Work struct {
	Runs uint64
	Time time.Duration
}

// Since is the work behind an earlier one.
func (w Work) Since(before Work) Work { return Work{w.Runs - before.Runs, w.Time - before.Time} }

// Each is the time of one run in nanoseconds, NaN if there was none.
func (w Work) Each() float64 {
	if w.Runs == 0 {
		return math.NaN()
	}
	return float64(w.Time.Nanoseconds()) / float64(w.Runs)
}

// TimeRuns has the kernel time each run of each eBPF program (bpf_stats), until it is
// closed. It slows all of them down by two readings of the clock.
func TimeRuns() (io.Closer, error) {
	timing, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, fmt.Errorf("the runs of eBPF programs cannot be timed, which needs root and Linux 5.8: %w", err)
	}
	return timing, nil
}

// AttachedAt opens the program that takes packets at an interface of the calling thread's
// network namespace, the first one if there are several.
func AttachedAt(iface string, hook Hook) (*ebpf.Program, error) {
	device, err := netlink.LinkByName(iface)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", iface, err)
	}
	var id ebpf.ProgramID
	if hook == HookXDP {
		if xdp := device.Attrs().Xdp; xdp != nil {
			id = ebpf.ProgramID(xdp.ProgId)
		}
	} else {
		list, err := link.QueryPrograms(link.QueryOptions{Target: device.Attrs().Index, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return nil, fmt.Errorf("the programs at %s cannot be listed, which needs Linux 6.6: %w", iface, err)
		}
		if len(list.Programs) > 0 {
			id = list.Programs[0].ID
		}
	}
	if id == 0 {
		return nil, fmt.Errorf("there is no program at %s by %s", iface, hook)
	}
	return ebpf.NewProgramFromID(id)
}

// WorkOf is what a program has done.
func WorkOf(p *ebpf.Program) (Work, error) {
	stats, err := p.Stats()
	if err != nil {
		return Work{}, fmt.Errorf("the runs of %v cannot be read: %w", p, err)
	}
	return Work{stats.RunCount, stats.Runtime}, nil
}

// slots4 is how many /16s of IPv4 may have a class, an octet each.
const slots4 = 1 << 16

// Classes4 returns the class of routes that a program finds for each /16 of IPv4, 0 where it has
// none. They are the beginning of what its object has in .bss (fastpath.Object.Routes4).
func Classes4(p *ebpf.Program) ([]byte, error) {
	info, err := p.Info()
	if err != nil {
		return nil, fmt.Errorf("the tables of %v cannot be listed: %w", p, err)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		shared, err := sharedOf(id)
		if err != nil {
			return nil, fmt.Errorf("table %d of %v cannot be read: %w", id, p, err)
		}
		if len(shared) > slots4 {
			return shared[:slots4], nil
		}
	}
	return nil, fmt.Errorf("%v has no classes of routes", p)
}

// sharedOf returns what is in a table if it is a .bss.
func sharedOf(id ebpf.MapID) ([]byte, error) {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil || !strings.HasSuffix(info.Name, ".bss") {
		return nil, err
	}
	return m.LookupBytes(uint32(0))
}

// TimedNothing is what the kernel finds that a program takes which does nothing, in
// nanoseconds: the share of the timing itself in what it finds of others.
func TimedNothing() (ns float64, err error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		return 0, fmt.Errorf("a program that does nothing cannot be loaded: %w", err)
	}
	defer p.Close()
	timing, err := TimeRuns()
	if err != nil {
		return 0, err
	}
	defer timing.Close()
	_, _, err = p.Benchmark(make([]byte, 64), 1<<18, nil)
	work, failed := WorkOf(p)
	return work.Each(), errors.Join(err, failed)
}
