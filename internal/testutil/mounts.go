// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// privateEnv tells the process of the tests that its mounts are its own, and the one above it
// that it is to prepare them.
const privateEnv = "ISTHMUS_TEST_PRIVATE_MOUNTS"

// PrivateMounts runs the tests of a package, for its TestMain: as root in a process
// with mounts of its own, so that what it mounts, such as the BPF file system of a
// fast path, vanishes with it. A fast path of the tests keeps nothing on the machine. The
// process that prepares the mounts waits above it, so that they outlive a program's process
// as they do on a machine.
func PrivateMounts(m *testing.M) (code int) {
	switch {
	case os.Geteuid() != 0 || os.Getenv(SkipRootEnv) == "1":
		return m.Run()
	case os.Getenv(privateEnv) == "":
		return again("prepare", unix.CLONE_NEWNS)
	case os.Getenv(privateEnv) == "prepare":
		if err := prepareMounts(); err != nil {
			fmt.Fprintln(os.Stderr, "no mounts of the tests' own:", err)
			return 1
		}
		return again("prepared", 0)
	}
	return m.Run()
}

// again runs this program once more, as the next of its stages. It ends with the thread that
// starts it.
func again(stage string, namespaces uintptr) int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), privateEnv+"="+stage)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		return max(ended.ExitCode(), 1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "cannot start the tests:", err)
		return 1
	}
	return 0
}

// prepareMounts hides the machine's BPF file systems: nothing is pinned there, and
// nothing that is there is taken over.
func prepareMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	var at unix.Statfs_t
	for unix.Statfs("/sys/fs/bpf", &at) == nil && at.Type == unix.BPF_FS_MAGIC {
		if err := unix.Unmount("/sys/fs/bpf", unix.MNT_DETACH); err != nil {
			return err
		}
	}
	if err := os.MkdirAll("/run/isthmus", 0o755); err != nil {
		return err
	}
	return unix.Mount("tmpfs", "/run/isthmus", "tmpfs", 0, "mode=0755")
}
