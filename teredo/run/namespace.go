// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace, for work that has to be done in it by another
// goroutine than the one that an instance was started on.
type namespace struct{ file *os.File }

const ownNamespace = "/proc/thread-self/ns/net"

// currentNamespace is that of the calling thread.
func currentNamespace() (namespace, error) {
	f, err := os.Open(ownNamespace)
	if err != nil {
		return namespace{}, fmt.Errorf("cannot open the network namespace, is /proc mounted?: %w", err)
	}
	return namespace{f}, nil
}

// enter binds the calling goroutine to a thread in the namespace, for the rest of
// the goroutine's life. The thread ends with it, since no other may have it.
func (n namespace) enter() error {
	runtime.LockOSThread()
	var here, there unix.Stat_t
	if err := unix.Fstat(int(n.file.Fd()), &there); err != nil {
		return fmt.Errorf("cannot look at the network namespace: %w", err)
	}
	// A service has one namespace, and may lack the right to change to another.
	if unix.Stat(ownNamespace, &here) == nil && here.Ino == there.Ino && here.Dev == there.Dev {
		return nil
	}
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("cannot enter the network namespace: %w", err)
	}
	return nil
}

func (n namespace) close() { _ = n.file.Close() }
