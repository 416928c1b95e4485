// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pinned

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Places of BPF file systems: the one that the system mounts, and our own.
const (
	systemRoot = "/sys/fs/bpf"
	ownRoot    = "/run/isthmus/bpf"
)

// FindRoot returns a BPF file system that this process may write: the system's,
// or our own, which it mounts if it may. The error says what to do.
func FindRoot() (string, error) {
	why := ""
	for _, root := range []string{systemRoot, ownRoot} {
		if !isBPFFS(root) {
			continue
		}
		err := writable(root)
		if err == nil {
			return root, nil
		}
		why = fmt.Sprintf("this process may not write %s (%v)", root, err)
	}
	if why == "" {
		why = "no BPF file system is mounted at " + systemRoot
	}
	if err := mountOwnRoot(); err != nil {
		return "", fmt.Errorf("%s, nor may it mount its own (%w), so nothing survives a restart of the process: "+
			"mount one as root with: mount -t bpf bpf %s", why, err, systemRoot)
	}
	return ownRoot, nil
}

// Mounted returns the BPF file system that is mounted and may be written, empty if
// there is none.
func Mounted() string {
	for _, root := range []string{systemRoot, ownRoot} {
		if isBPFFS(root) && writable(root) == nil {
			return root
		}
	}
	return ""
}

// WhyNone returns why there is no BPF file system to keep things in.
func WhyNone() string {
	if isBPFFS(systemRoot) {
		return fmt.Sprintf("The process may not write the BPF file system at %s, so nothing survives its restart unless it can mount one at %s: let it write there.", systemRoot, ownRoot)
	}
	return fmt.Sprintf("No BPF file system is mounted, so nothing survives a restart of the process unless it can mount one at %s: mount one with: mount -t bpf bpf %s.", ownRoot, systemRoot)
}

func mountOwnRoot() error {
	if endsWithUs() {
		return errors.New("what it mounts ends with it, since no one else is in its mount namespace, as with ip netns exec")
	}
	return alone(mountOnce)
}

// mountOnce mounts our own, unless somebody has since we looked: a second one would hide what is kept in the
// first, and end it with the next restart.
func mountOnce() error {
	if isBPFFS(ownRoot) {
		return writable(ownRoot)
	}
	if err := os.MkdirAll(ownRoot, pinsMode); err != nil {
		return err
	}
	if err := unix.Mount("bpf", ownRoot, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return &os.PathError{Op: "mount", Path: ownRoot, Err: err}
	}
	return nil
}

// alone does something while no other process mounts or unmounts our own file system.
func alone(f func() error) error {
	above := filepath.Dir(ownRoot)
	if err := os.MkdirAll(above, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(above)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return &os.PathError{Op: "lock", Path: above, Err: err}
	}
	return f()
}

// endsWithUs reports whether mounts of the calling thread end with this process: neither the
// first process nor the one that has started this one sees them. Where both may not be asked
// it is taken not to be so.
func endsWithUs() bool {
	mine, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		return false
	}
	alone := os.Getpid() == 1
	for _, pid := range []int{os.Getppid(), 1} {
		other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		switch {
		case err != nil || pid == os.Getpid():
		case other == mine:
			return false
		default:
			alone = true
		}
	}
	return alone
}

// removeUnused removes the folder of all instances when the one that has just been
// removed was the last in it, and unmounts our own file system: what we make and mount
// goes with its last user.
func removeUnused(dir string) {
	base := filepath.Dir(dir)
	if filepath.Dir(base) != ownRoot {
		_ = os.Remove(base)
		return
	}
	_ = alone(func() error {
		if err := os.Remove(base); err != nil {
			return err
		}
		// Whoever is about to use it keeps it busy, or mounts it again.
		if err := unix.Unmount(ownRoot, 0); err != nil {
			return err
		}
		return os.Remove(ownRoot)
	})
}

func isBPFFS(path string) bool {
	fs := unix.Statfs_t{}
	return unix.Statfs(path, &fs) == nil && uint32(fs.Type) == unix.BPF_FS_MAGIC
}

// onBPFFS is isBPFFS of an open file, whatever its name leads to by now.
func onBPFFS(f *os.File) bool {
	fs := unix.Statfs_t{}
	return unix.Fstatfs(int(f.Fd()), &fs) == nil && uint32(fs.Type) == unix.BPF_FS_MAGIC
}

// writable asks with the capabilities that are in force, which access(2) leaves
// out for users other than root.
func writable(dir string) error {
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}
