// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// OwnNAPI gives what an interface of the calling thread's network namespace
// receives to kernel threads of its own, and binds them to one CPU. Without it
// receiving happens where the sender runs. The interface must have NAPI: by an
// XDP program, or by GRO on a veth. The threads get that nice value: with -20 they
// go before programs, as interrupts do. Where this process does not see threads of the
// kernel they stay as they are, on any CPU.
func OwnNAPI(iface string, cpu, nice int) error {
	before, err := napiThreads(iface)
	if err != nil {
		return err
	}
	if err := thread(iface); err != nil {
		return fmt.Errorf("interface %s cannot have receiving threads: %w", iface, err)
	}
	if !SeesKernelThreads() {
		return nil
	}
	after, err := napiThreads(iface)
	if err != nil {
		return err
	}
	var set unix.CPUSet
	set.Set(cpu)
	found := false
	for id := range after {
		if before[id] {
			continue // of an interface of that name elsewhere
		}
		found = true
		if err := errors.Join(unix.SchedSetaffinity(id, &set), unix.Setpriority(unix.PRIO_PROCESS, id, nice)); err != nil {
			return fmt.Errorf("binding the receiving thread of %s: %w", iface, err)
		}
	}
	if !found {
		return fmt.Errorf("interface %s has no receiving threads; it has neither GRO nor an XDP program", iface)
	}
	return nil
}

// SeesKernelThreads reports whether this process sees the threads of the kernel. In a PID
// namespace, such as a container's, it does not.
func SeesKernelThreads() bool {
	name, err := os.ReadFile("/proc/2/comm")
	return err == nil && string(name) == "kthreadd\n"
}

// thread switches threads on. The kernel offers that in sysfs, of which each
// network namespace sees its own when it mounts it: so a thread does that in a
// mount namespace that ends with it.
func thread(iface string) error {
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer ns.Close()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespaces
		done <- func() error {
			dir, err := os.MkdirTemp("", "isthmus-sys-")
			if err != nil {
				return err
			}
			defer os.Remove(dir)
			if err := errors.Join(unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET), unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS)); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Mount("sysfs", dir, "sysfs", 0, ""); err != nil {
				return err
			}
			defer unix.Unmount(dir, unix.MNT_DETACH)
			return os.WriteFile(filepath.Join(dir, "class/net", iface, "threaded"), []byte("1"), 0)
		}()
	}()
	return <-done
}

// napiThreads are the process ids of the receiving threads of all interfaces of
// that name, in any network namespace.
func napiThreads(iface string) (map[int]bool, error) {
	all, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, err
	}
	ids := map[int]bool{}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended
		}
		if strings.HasPrefix(string(text), "napi/"+iface+"-") {
			id, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				return nil, err
			}
			ids[id] = true
		}
	}
	return ids, nil
}
