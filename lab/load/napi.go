// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of the generic netlink family netdev (linux/netdev.h).
const (
	netdevFamily  = "netdev"
	netdevNAPIGet = 11
	napiIfindex   = 1
	napiThread    = 4
)

// OwnNAPI gives what an interface of the calling thread's network namespace
// receives to kernel threads of its own, and binds them to one CPU. Without it
// receiving happens where the sender runs. The interface must have NAPI: by an
// XDP program, or by GRO on a veth. It needs Linux 6.7.
func OwnNAPI(iface string, cpu int) error {
	link, err := net.InterfaceByName(iface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", iface, err)
	}
	if err := thread(iface); err != nil {
		return fmt.Errorf("interface %s cannot have receiving threads: %w", iface, err)
	}
	ids, err := napiThreads(link.Index)
	if err != nil {
		return fmt.Errorf("the receiving threads of %s cannot be found, which needs Linux 6.7: %w", iface, err)
	}
	if len(ids) == 0 {
		return fmt.Errorf("interface %s has no receiving threads; it has neither GRO nor an XDP program", iface)
	}
	var set unix.CPUSet
	set.Set(cpu)
	for _, id := range ids {
		if err := unix.SchedSetaffinity(id, &set); err != nil {
			return fmt.Errorf("binding the receiving thread of %s: %w", iface, err)
		}
	}
	return nil
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

// napiThreads are the process ids of an interface's receiving threads.
func napiThreads(ifindex int) (ids []int, err error) {
	family, err := netlink.GenlFamilyGet(netdevFamily)
	if err != nil {
		return nil, err
	}
	request := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_DUMP)
	request.AddData(&nl.Genlmsg{Command: netdevNAPIGet, Version: 1})
	answers, err := request.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		attrs, err := nl.ParseRouteAttr(a[nl.SizeofGenlmsg:])
		if err != nil {
			return nil, err
		}
		values := map[uint16]int{}
		for _, attr := range attrs {
			if len(attr.Value) == 4 {
				values[attr.Attr.Type] = int(binary.NativeEndian.Uint32(attr.Value))
			}
		}
		if id, ok := values[napiThread]; ok && values[napiIfindex] == ifindex {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
