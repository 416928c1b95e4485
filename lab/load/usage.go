// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Usage adds up CPU time: of receiving in the kernel, on whatever CPU and for
// whomever, and of chosen processes, but for threads by the name of wire, which are a medium.
// What has not left its CPU yet is not in it.
type Usage struct {
	objects usageObjects
	links   []link.Link
}

// NewUsage begins to count. It needs root.
func NewUsage() (*Usage, error) {
	u := &Usage{}
	if err := loadUsageObjects(&u.objects, nil); err != nil {
		return nil, fmt.Errorf("the count of CPU time cannot be loaded, which needs root: %w", err)
	}
	for name, program := range map[string]*ebpf.Program{
		"sched_switch": u.objects.UsageSwitched, "softirq_entry": u.objects.UsageSoftirqBegins, "softirq_exit": u.objects.UsageSoftirqEnds,
	} {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: program})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("CPU time cannot be counted at %s: %w", name, err), u.Close())
		}
		u.links = append(u.links, l)
	}
	return u, nil
}

// Close ends the count.
func (u *Usage) Close() error {
	var errs []error
	for _, l := range u.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, u.objects.Close())...)
}

// Watch counts a process, with all its threads. Where kernel threads are hidden numbers
// of processes are others than the kernel's: see [SeesKernelThreads].
func (u *Usage) Watch(pid int) error {
	if err := u.objects.Watched.Put(uint32(pid), uint32(1)); err != nil {
		return fmt.Errorf("the CPU time of process %d cannot be counted: %w", pid, err)
	}
	return nil
}

// Time is what was counted until now.
func (u *Usage) Time() (sum time.Duration, err error) {
	var each []usageCpu
	if err := u.objects.Cpus.Lookup(uint32(0), &each); err != nil {
		return 0, fmt.Errorf("the count of CPU time cannot be read: %w", err)
	}
	for _, c := range each {
		sum += time.Duration(c.Used)
	}
	return sum, nil
}
