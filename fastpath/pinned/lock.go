// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pinned

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld reports that another live process runs the same instance.
var ErrHeld = errors.New("another process runs this instance")

// How often and how long apart a held lock is tried again: who lists leftovers may get no
// time while it has it.
const (
	lockAttempts = 200
	lockPause    = 10 * time.Millisecond
)

// openLocked makes and opens a folder and takes its lock, which ends with the
// process whatever becomes of it.
func openLocked(dir string) (*os.File, error) {
	for tries := 0; ; tries++ {
		err := os.MkdirAll(dir, pinsMode)
		if tries < lockAttempts && (errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrExist)) {
			continue // its last user has just removed the folder of all, before or behind what is made of it
		}
		if err != nil {
			return nil, fmt.Errorf("cannot make a folder for what is kept across a restart: %w", err)
		}
		f, err := os.Open(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue // its holder has just removed it
		}
		if err != nil {
			return nil, fmt.Errorf("cannot open the folder of what is kept across a restart: %w", err)
		}
		if err := lockPatiently(f); err != nil {
			f.Close()
			return nil, err
		}
		if stillThere(f) {
			return f, nil
		}
		f.Close()
	}
}

// lockPatiently is lock for who wants to keep it: a listing of leftovers holds
// each lock for a moment.
func lockPatiently(f *os.File) error {
	err := lock(f)
	for range lockAttempts {
		if !errors.Is(err, ErrHeld) {
			break
		}
		time.Sleep(lockPause)
		err = lock(f)
	}
	return err
}

func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		who := ""
		if pid := holder(f); pid != 0 {
			who = fmt.Sprintf(", process %d", pid)
		}
		return fmt.Errorf("%w%s: stop it first, or give this instance another name", ErrHeld, who)
	}
	if err != nil {
		return fmt.Errorf("cannot lock %s: %w", f.Name(), err)
	}
	return nil
}

// stillThere reports whether the open folder is the one of its name, and not one
// that its holder removed before we got the lock.
func stillThere(f *os.File) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(f.Name())
	return err == nil && os.SameFile(opened, named)
}

// holder returns the number of the process that holds the lock on a folder, 0 if
// it cannot be seen.
func holder(f *os.File) int {
	info := unix.Stat_t{}
	if unix.Fstat(int(f.Fd()), &info) != nil {
		return 0
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer locks.Close()
	// 1: FLOCK  ADVISORY  WRITE 30012 00:27:1 0 EOF
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(info.Dev), unix.Minor(info.Dev), info.Ino)
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[5] != want {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

// Leftover is the folder of an instance in a BPF file system.
type Leftover struct {
	Instance  string // its name
	Namespace uint64 // cookie of its network namespace, 0 if the kernel has none
	Dir       string
	Held      bool // by a live process
	PID       int  // of the holder, 0 if it cannot be seen
}

// Leftovers lists the folders of all instances, of live processes and of such as
// ended without cleaning up, in the system's and in our own BPF file system.
func Leftovers() ([]Leftover, error) { return leftovers(nil) }

// LeftoversOf is Leftovers of the network namespaces with these cookies. Of others not even a lock
// is touched.
func LeftoversOf(cookies map[uint64]bool) ([]Leftover, error) {
	return leftovers(func(cookie uint64) bool { return cookies[cookie] })
}

func leftovers(wanted func(cookie uint64) bool) ([]Leftover, error) {
	var found []Leftover
	for _, root := range []string{systemRoot, ownRoot} {
		if !isBPFFS(root) {
			continue
		}
		in, err := leftoversAt(root, wanted)
		if err != nil {
			return nil, err
		}
		found = append(found, in...)
	}
	return found, nil
}

// LeftoversAt is Leftovers of one BPF file system.
func LeftoversAt(root string) ([]Leftover, error) { return leftoversAt(root, nil) }

// leftoversAt lists those of wanted namespaces, of all if wanted is nil.
func leftoversAt(root string, wanted func(cookie uint64) bool) ([]Leftover, error) {
	base := filepath.Join(root, pinsFolder)
	entries, err := os.ReadDir(base)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list what is pinned: %w", err)
	}
	var found []Leftover
	for _, e := range entries {
		name, cookie, _ := strings.Cut(e.Name(), "@")
		l := Leftover{Instance: name, Dir: filepath.Join(base, e.Name())}
		l.Namespace, _ = strconv.ParseUint(cookie, 10, 64)
		if wanted != nil && !wanted(l.Namespace) {
			continue
		}
		f, err := os.Open(l.Dir)
		if err != nil {
			continue // removed meanwhile
		}
		if errors.Is(lock(f), ErrHeld) {
			l.Held, l.PID = true, holder(f)
		}
		f.Close()
		found = append(found, l)
	}
	return found, nil
}

// Remove unpins what a dead process left. Its links are detached with that, and
// its filters, if the calling thread is in their namespace. It fails with
// [ErrHeld] if someone holds the folder.
func (l Leftover) Remove() error {
	for {
		f, err := os.Open(l.Dir)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot open what is pinned: %w", err)
		}
		if err := lock(f); err != nil {
			f.Close()
			return err
		}
		if stillThere(f) {
			return (&Folder{dir: l.Dir, lock: f}).Remove()
		}
		f.Close() // who held it has removed it, and the folder of that name, if there is one, is a successor's
	}
}
