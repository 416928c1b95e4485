// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pinned

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// holdEnv names the root in which a copy of the test binary holds pins, so that a
// test sees another process do so.
const holdEnv = "ISTHMUS_TEST_HOLD_PINS"

func TestMain(m *testing.M) {
	if root := os.Getenv(holdEnv); root != "" {
		hold(root)
	}
	os.Exit(m.Run())
}

// hold opens the pins, says so, and ends without a word when told to.
func hold(root string) {
	p, err := OpenAt(root, "test")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("held")
	bufio.NewReader(os.Stdin).ReadByte()
	// No Close: the process dies with the lock in its hand.
	runtime.KeepAlive(p)
	os.Exit(0)
}

// holdElsewhere starts a process that holds the pins of the calling test's own
// namespace, until the function returned is called.
func holdElsewhere(t *testing.T, root string) (pid int, die func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"="+root)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	die = func() {
		in.Close()
		cmd.Wait()
	}
	t.Cleanup(die)
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the other process said %q", line)
	}
	return cmd.Process.Pid, die
}

func TestPinsAreHeldByOneProcess(t *testing.T) {
	root := fastpathtest.MountBPFFS(t)
	pid, die := holdElsewhere(t, root)
	_, err := OpenAt(root, "test")
	if !errors.Is(err, ErrHeld) {
		t.Fatalf("opening held pins gave %v", err)
	}
	fastpathtest.WantWords(t, err, fmt.Sprintf("process %d", pid), "stop it first")
	other, err := OpenAt(root, "other")
	if err != nil {
		t.Errorf("another instance was kept out: %v", err)
	} else {
		other.Close()
	}
	die()
	p, err := OpenAt(root, "test")
	if err != nil {
		t.Fatalf("the pins of a dead process could not be opened: %v", err)
	}
	if _, err := OpenAt(root, "test"); !errors.Is(err, ErrHeld) {
		t.Errorf("the same process opened its pins twice: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestPinsOutliveTheProcess(t *testing.T) {
	root := fastpathtest.MountBPFFS(t)
	p, err := OpenAt(root, "test")
	if err != nil {
		t.Fatal(err)
	}
	m := pinMap(t, p.Path("peers"))
	if err := m.Put(uint32(0), uint32(42)); err != nil {
		t.Fatal(err)
	}
	m.Close()
	if err := p.SetNote("layout", "1"); err != nil {
		t.Fatal(err)
	}
	if err := p.SetNote("layout", "2"); err != nil {
		t.Fatalf("replacing a note: %v", err)
	}
	p.Close()

	p, err = OpenAt(root, "test")
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Note("layout"); got != "2" {
		t.Errorf("the note says %q, want 2", got)
	}
	if got := p.Note("nothing"); got != "" {
		t.Errorf("a note that is not there says %q", got)
	}
	names, err := p.Names()
	slices.Sort(names)
	if want := []string{"layout", "peers"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("the names are %v and %v, want %v", names, err, want)
	}
	m, err = ebpf.LoadPinnedMap(p.Path("peers"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var got uint32
	if err := m.Lookup(uint32(0), &got); err != nil || got != 42 {
		t.Errorf("the map holds %d and %v, want 42", got, err)
	}
	if err := p.Clear(); err != nil {
		t.Fatal(err)
	}
	if names, err := p.Names(); err != nil || len(names) != 0 {
		t.Errorf("after Clear there are %v and %v", names, err)
	}
	if err := p.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// TestNoteIsAlwaysThere replaces a note beside one who reads it: who is killed at any moment
// leaves the one or the other. What does not change is not written.
func TestNoteIsAlwaysThere(t *testing.T) {
	p, err := OpenAt(fastpathtest.MountBPFFS(t), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.SetNote("pool6", "0"); err != nil {
		t.Fatal(err)
	}
	before, err := os.Lstat(p.Path("pool6"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SetNote("pool6", "0"); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Lstat(p.Path("pool6")); err != nil || !os.SameFile(before, after) {
		t.Errorf("an unchanged note was written again: %v", err)
	}
	done := make(chan error)
	go func() {
		for i := range 5000 {
			if err := p.SetNote("pool6", strconv.Itoa(i%2)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for running, missed := true, false; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
			if p.Note("pool6") == "" && !missed {
				t.Error("there was a moment without a note")
				missed = true
			}
		}
	}
	if names, err := p.Names(); err != nil || !slices.Equal(names, []string{"pool6"}) {
		t.Errorf("the names are %v, %v", names, err)
	}
}

func pinMap(t *testing.T, path string) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.Pin(path); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPinsOfNamespacesAreApart(t *testing.T) {
	root := fastpathtest.MountBPFFS(t)
	var dirs []string
	for range 2 {
		testutil.NewNetns(t).Do(t, func() error {
			p, err := OpenAt(root, "test")
			if err == nil {
				t.Cleanup(func() { p.Close() })
				dirs = append(dirs, p.Dir())
			}
			return err
		})
	}
	if dirs[0] == dirs[1] {
		t.Errorf("two namespaces share %s", dirs[0])
	}
	here, err := OpenAt(root, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	found, err := LeftoversAt(root)
	if err != nil || len(found) != 3 {
		t.Fatalf("found %+v and %v", found, err)
	}
	for _, l := range found {
		if l.Elsewhere() == (l.Dir == here.Dir()) {
			t.Errorf("%s is elsewhere: %t", l.Dir, l.Elsewhere())
		}
	}
}

// The last instance takes the folder of all with it, also while others come and go.
func TestPinsLeaveNoFolder(t *testing.T) {
	root := fastpathtest.MountBPFFS(t)
	base := filepath.Join(root, pinsFolder)
	first, err := OpenAt(root, "first")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	for i := range 4 {
		go func() {
			for range 50 {
				p, err := OpenAt(root, fmt.Sprint("other", i))
				if err == nil {
					err = p.Remove()
				}
				if err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	err = first.Remove()
	for range 4 {
		err = errors.Join(err, <-ended)
	}
	if err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(base); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left with %v, %v", left, err)
	}
	kept, err := OpenAt(root, "kept")
	if err != nil {
		t.Fatal(err)
	}
	other, err := OpenAt(root, "other")
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(kept.Close(), other.Remove())
	left, err2 := LeftoversAt(root)
	if err := errors.Join(err, err2); err != nil || len(left) != 1 {
		t.Fatalf("left: %v, %v", left, err)
	}
	if err := left[0].Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(base); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a cleaning leaves the folder: %v", err)
	}
}

func TestPinsRefuse(t *testing.T) {
	root := fastpathtest.MountBPFFS(t)
	for _, row := range []struct {
		name, root, instance string
		want                 string
	}{
		{"plain folder", t.TempDir(), "test", "mount -t bpf"},
		{"missing folder", "/nonexistent", "test", "not a BPF file system"},
		{"name with a dot", root, "a.b", "leave out dots"},
		{"name that climbs", root, "../x", "leave out dots"},
		{"empty name", root, "", "cannot name a folder"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := OpenAt(row.root, row.instance)
			fastpathtest.WantWords(t, err, row.want)
		})
	}
}

func TestLeftovers(t *testing.T) {
	root := fastpathtest.MountBPFFS(t)
	if found, err := LeftoversAt(root); err != nil || len(found) != 0 {
		t.Fatalf("an empty file system has %v and %v", found, err)
	}
	pid, die := holdElsewhere(t, root)
	dead, err := OpenAt(root, "dead")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	found, err := LeftoversAt(root)
	if err != nil || len(found) != 2 {
		t.Fatalf("found %+v and %v, want 2", found, err)
	}
	for _, l := range found {
		if held := l.Instance == "test"; l.Held != held || held && l.PID != pid {
			t.Errorf("%+v: want held %t, by %d", l, held, pid)
		}
		err := l.Remove()
		if l.Held != errors.Is(err, ErrHeld) {
			t.Errorf("removing %s: %v", l.Instance, err)
		}
	}
	die()
	found, err = LeftoversAt(root)
	if err != nil || len(found) != 1 || found[0].Held {
		t.Errorf("found %+v and %v, want the one of the dead process", found, err)
	}
}

// TestSweepOfDeadNamespaces shows which folders an instance removes that starts
// beside them.
func TestSweepOfDeadNamespaces(t *testing.T) {
	root := fastpathtest.MountBPFFS(t)
	base := filepath.Join(root, pinsFolder)
	old := time.Now().Add(-2 * sweepAfter)
	for _, row := range []struct {
		name string
		age  time.Time
		note string
		stay bool
	}{
		{"dead@900001", old, "", false},
		{"young@900002", time.Now(), "", true},
		{"held@900003", old, "", true},
		{"filters@900004", old, noteOf(Spot{PlaceIngress, 7}), true},
		{"plain", old, "", true},
	} {
		dir := filepath.Join(base, row.name)
		if err := os.MkdirAll(filepath.Join(dir, linksFolder), pinsMode); err != nil {
			t.Fatal(err)
		}
		if row.note != "" {
			if err := os.Symlink(foundQdisc+"test", filepath.Join(dir, row.note)); err != nil {
				t.Fatal(err)
			}
		}
		if strings.HasPrefix(row.name, "held") {
			f, err := openLocked(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
		}
		if err := os.Chtimes(dir, row.age, row.age); err != nil {
			t.Fatal(err)
		}
		sweep(base)
		_, err := os.Stat(dir)
		if stays := err == nil; stays != row.stay {
			t.Errorf("%s stays: %t, want %t", row.name, stays, row.stay)
		}
	}
}

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
