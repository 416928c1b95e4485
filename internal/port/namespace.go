// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace, for work that has to be done in it by another
// goroutine than the one that an instance was started on.
type Namespace struct{ file *os.File }

const ownNamespace = "/proc/thread-self/ns/net"

// CurrentNamespace is that of the calling thread. It is to be closed.
func CurrentNamespace() (Namespace, error) {
	f, err := os.Open(ownNamespace)
	if err != nil {
		return Namespace{}, fmt.Errorf("cannot open the network namespace, is /proc mounted?: %w", err)
	}
	return Namespace{f}, nil
}

// init keeps the process's first thread for main. Go ends a thread with the goroutine that is
// locked to it, but for the first one, which stays as it was left: in another namespace, or on
// one processor. What looks at /proc/PID would take that for the state of the process.
func init() { runtime.LockOSThread() }

// Enter binds the calling goroutine to a thread in the namespace, for the rest of
// the goroutine's life. The thread ends with it, since no other may have it.
func (n Namespace) Enter() error {
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

// Do runs f on a thread in the namespace. Sockets that f opens stay there.
func (n Namespace) Do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		err := n.Enter()
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// Close gives the namespace up.
func (n Namespace) Close() { _ = n.file.Close() }

// namespaceFolder is where `ip netns` keeps namespaces by their names.
const namespaceFolder = "/run/netns/"

// OpenNamespace opens the network namespace that `ip netns` has under a name, or that of a path.
// It is to be closed.
func OpenNamespace(name string) (Namespace, error) {
	path := name
	if !strings.HasPrefix(path, "/") {
		path = namespaceFolder + name
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Namespace{}, fmt.Errorf("there is no network namespace %s: make one with ip netns add, or write the path of one", name)
	}
	if err != nil {
		return Namespace{}, fmt.Errorf("cannot open the network namespace %s: %w", name, err)
	}
	return Namespace{f}, nil
}
