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
	"testing"

	"github.com/cilium/ebpf"

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
	os.Exit(testutil.PrivateMounts(m))
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

// TestCleanBesideStarts removes leftovers of an instance while it is started again and again: what is held is never removed.
func TestCleanBesideStarts(t *testing.T) {
	left := Leftover{Dir: filepath.Join(t.TempDir(), "test")}
	testutil.Beside(t, func() {
		if err := left.Remove(); err != nil && !errors.Is(err, ErrHeld) {
			t.Error(err)
		}
	})
	for range 2000 {
		lock, err := openLocked(left.Dir)
		if err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
		if !stillThere(lock) {
			t.Error("a folder is removed while it is held")
		}
		if err := errors.Join(os.RemoveAll(left.Dir), lock.Close()); err != nil {
			t.Fatal(err)
		}
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
