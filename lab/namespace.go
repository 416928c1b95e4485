// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// threadNamespace names the network namespace of the calling thread.
const threadNamespace = "/proc/thread-self/ns/net"

// createNamespace makes a network namespace, holds it by a bind mount on
// path, and returns an open descriptor of it.
func createNamespace(path string) (*os.File, error) {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return nil, err
	}
	var ns *os.File
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("cannot create a network namespace: %w; run as root or with sudo", err)
		}
		if err := unix.Mount(threadNamespace, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cannot mount a network namespace on %s: %w", path, err)
		}
		f, err := os.Open(path)
		ns = f
		return err
	})
	return ns, err
}

// removeNamespace undoes createNamespace. The namespace itself lives on while
// something else holds it.
func removeNamespace(path string) error {
	if mountedNamespace(path) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// mountedNamespace tells a mounted namespace from the plain file below, which
// is all there is when its mount was private to a dead lab.
func mountedNamespace(path string) bool {
	var f unix.Statfs_t
	return unix.Statfs(path, &f) == nil && f.Type == unix.NSFS_MAGIC
}

// inNamespace runs f on a thread that is inside the namespace ns.
func inNamespace(ns *os.File, f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("cannot enter the namespace %s: %w", ns.Name(), err)
		}
		return f()
	})
}

// onThread runs f on a locked thread, whose network namespace f may change.
// The thread returns to where it was; if it cannot, it is never used again.
// A panic of f is raised again in the caller, so that the caller's deferred
// clean-up runs.
func onThread(f func() error) error {
	var (
		err       error
		recovered any
		done      = make(chan struct{})
	)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		home, homeErr := os.Open(threadNamespace)
		if homeErr != nil {
			err = homeErr
			runtime.UnlockOSThread()
			return
		}
		defer func() {
			if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
			home.Close()
		}()
		defer func() { recovered = recover() }()
		err = errors.New("the function ended its goroutine")
		err = f()
	}()
	<-done
	if recovered != nil {
		panic(recovered)
	}
	return err
}
