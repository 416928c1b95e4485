// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sameNamespace is the namespace number that a link has whose other end is in
// the namespace of whoever asks.
const sameNamespace = -1

// maxNamespaces bounds the search for the namespace of a far end.
const maxNamespaces = 4096

// findFarEnd returns what can be known of the other end of a veth, by its index
// and the number of its namespace. An end in another namespace is visible to a
// process that may enter it.
func findFarEnd(index, namespace int) *farEnd {
	f := &farEnd{elsewhere: namespace != sameNamespace}
	if index == 0 {
		return f
	}
	if !f.elsewhere {
		f.look(index)
		return f
	}
	if handle, ok := openNamespace(namespace); ok {
		defer unix.Close(handle)
		inNamespace(handle, func() { f.look(index) })
	}
	return f
}

// look fills in what the calling thread's namespace says.
func (f *farEnd) look(index int) {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return
	}
	fd, err := ethtoolSocket()
	if err != nil {
		return
	}
	defer unix.Close(fd)
	a := l.Attrs()
	gro, err := ethtool(fd, a.Name, ethtoolGRO, 0)
	if err != nil {
		return
	}
	checksum, err := ethtool(fd, a.Name, ethtoolChecksum, 0)
	if err != nil {
		return
	}
	f.name, f.mtu, f.txQueues = a.Name, a.MTU, a.NumTxQueues
	f.gro, f.checksum = gro != 0, checksum != 0
	f.xdp = a.Xdp != nil && a.Xdp.Attached
	f.known = true
}

// inNamespace runs f on a thread of its own inside a namespace, unless entering
// is forbidden. The thread ends with f, so that nothing else runs there.
func inNamespace(handle int, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Setns(handle, unix.CLONE_NEWNET) == nil {
			f()
		}
	}()
	<-done
}

// openNamespace opens the namespace that has the number here, among those that
// have a name and those of visible processes.
func openNamespace(number int) (handle int, ok bool) {
	named, _ := filepath.Glob("/run/netns/*")
	running, _ := filepath.Glob("/proc/[0-9]*") // a longer pattern would read the folder of each
	for i := range running {
		running[i] += "/ns/net"
	}
	type inode struct{ device, number uint64 }
	seen := make(map[inode]bool)
	for _, path := range append(named, running...) {
		info := unix.Stat_t{}
		if unix.Stat(path, &info) != nil || seen[inode{info.Dev, info.Ino}] {
			continue
		}
		if len(seen) == maxNamespaces {
			return 0, false
		}
		seen[inode{info.Dev, info.Ino}] = true
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if n, err := netlink.GetNetNsIdByFd(fd); err == nil && n == number {
			return fd, true
		}
		unix.Close(fd)
	}
	return 0, false
}
