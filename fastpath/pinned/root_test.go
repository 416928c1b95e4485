// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pinned

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// inMounts runs f where mounts are private and /run is empty.
func inMounts(t *testing.T, f func() error) {
	t.Helper()
	testutil.NeedRoot(t)
	done := make(chan error)
	go func() {
		// The thread and its mounts end with the goroutine.
		runtime.LockOSThread()
		done <- errors.Join(
			unix.Unshare(unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("run", "/run", "tmpfs", 0, ""),
			f(),
		)
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestFindRoot(t *testing.T) {
	inMounts(t, func() error {
		unix.Unmount(systemRoot, unix.MNT_DETACH) // on most systems there is one
		// Whatever were mounted here would end with this process.
		_, err := FindRoot()
		fastpathtest.WantWords(t, err, "ends with it", "nothing survives a restart")
		if isBPFFS(ownRoot) {
			t.Error("our own was mounted all the same")
		}
		err = errors.Join(os.MkdirAll(ownRoot, pinsMode), unix.Mount("bpf", ownRoot, "bpf", 0, "mode=0700"))
		if err != nil {
			return err
		}
		if root, err := FindRoot(); err != nil || root != ownRoot {
			t.Errorf("the root is %q and %v, want our own", root, err)
		}
		if err := unix.Unmount(ownRoot, 0); err != nil {
			return err
		}
		if err := unix.Mount("bpf", systemRoot, "bpf", 0, "mode=0700"); err != nil {
			return err
		}
		root, err := FindRoot()
		if err != nil || root != systemRoot {
			t.Errorf("with the system's mounted the root is %q and %v", root, err)
		}
		p, err := Open("test")
		if err != nil {
			return err
		}
		found, err := Leftovers()
		if err != nil || len(found) != 1 || found[0].Dir != p.Dir() || !found[0].Held {
			t.Errorf("leftovers are %+v and %v, want the one that is open", found, err)
		}
		return p.Remove()
	})
}

// TestOpenWhereLeft has a process leave its folder in our own file system, before the system's is mounted.
func TestOpenWhereLeft(t *testing.T) {
	inMounts(t, func() error {
		unix.Unmount(systemRoot, unix.MNT_DETACH)
		if err := mountOnce(); err != nil {
			return err
		}
		before, err := Open("test")
		if err != nil {
			return err
		}
		if err := errors.Join(before.Close(), unix.Mount("bpf", systemRoot, "bpf", 0, "mode=0700")); err != nil {
			return err
		}
		after, err := Open("test")
		if err != nil {
			return err
		}
		if after.Dir() != before.Dir() {
			t.Errorf("the folder is %s, and was left in %s", after.Dir(), before.Dir())
		}
		return after.Remove()
	})
}

// TestMountedOnce has several processes that start together find that there is no BPF file system, and mount
// one: were there two, what is kept in the lower one would be lost.
func TestMountedOnce(t *testing.T) {
	const processes = 16
	inMounts(t, func() error {
		mounts, err := os.Open("/proc/thread-self/ns/mnt")
		if err != nil {
			return err
		}
		defer mounts.Close()
		hidden, err := timesMounted() // below the empty /run: the machine's
		if err != nil {
			return err
		}
		done := make(chan error, processes)
		begin := make(chan struct{})
		for range processes {
			go func() {
				runtime.LockOSThread()
				err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(int(mounts.Fd()), unix.CLONE_NEWNS))
				<-begin
				done <- errors.Join(err, alone(mountOnce))
			}()
		}
		close(begin)
		for range processes {
			err = errors.Join(err, <-done)
		}
		n, readErr := timesMounted()
		if n -= hidden; n != 1 {
			t.Errorf("it is mounted %d times", n)
		}
		return errors.Join(err, readErr)
	})
}

// timesMounted is how many file systems are mounted where our own is, for the calling thread.
func timesMounted() (int, error) {
	table, err := os.ReadFile("/proc/thread-self/mountinfo")
	return strings.Count(string(table), " "+ownRoot+" "), err
}

// TestOpenBesideTheLast has instances come and go, so that one begins while the last of the others unmounts
// the file system: each has its folder.
func TestOpenBesideTheLast(t *testing.T) {
	const instances, times = 4, 500
	testutil.NeedRoot(t)
	done := make(chan error, instances)
	for i := range instances {
		go func() {
			var err error
			for n := 0; n < times && err == nil; n++ {
				var p *Folder
				if p, err = Open(fmt.Sprintf("test%d", i)); err == nil {
					err = p.Remove()
				}
			}
			done <- err
		}()
	}
	for range instances {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if isBPFFS(ownRoot) {
		t.Error("the file system is still mounted")
	}
}

func TestFindRootSaysWhatToDo(t *testing.T) {
	inMounts(t, func() error {
		unix.Unmount(systemRoot, unix.MNT_DETACH)
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			return err
		}
		_, err := FindRoot()
		fastpathtest.WantWords(t, err, "no BPF file system is mounted at /sys/fs/bpf", "nothing survives a restart", "mount -t bpf bpf /sys/fs/bpf")
		return nil
	})
}
