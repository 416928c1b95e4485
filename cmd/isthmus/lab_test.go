// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/lab"
)

func TestLabListPrint(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	list := labList{
		Experiments: []labEntry{{Name: "tour", Summary: "shows it"}, {Name: "speed", Summary: "measures it", NeedsRoot: true}},
		Running:     []lab.Run{{Name: "tour-2", Started: now.Add(-90 * time.Second), Nodes: []string{"client", "nat"}}, {Name: "wide", Started: now, Nodes: strings.Fields(strings.Repeat("node-of-15-chars ", 4))}},
	}
	var out strings.Builder
	if err := list.print(&out, now); err != nil {
		t.Fatal(err)
	}
	want := `EXPERIMENT  NEEDS  WHAT IT SHOWS
tour        -      shows it
speed       root   measures it

LAB UP  FOR    NODES
tour-2  1m30s  client nat
wide    0s     node-of-15-chars node-of-15-chars node-of-15-chars
               node-of-15-chars
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("list differs (-want +got):\n%s", diff)
	}
}

func TestLabCommandsNameWhatThereIs(t *testing.T) {
	for _, args := range [][]string{{"lab", "run", "nonsense"}, {"lab", "run", "teredo", "nonsense"}, {"lab", "up", "nonsense"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			var out, errs strings.Builder
			status := execute(args, streams{&out, &errs})
			if status != exitUsage || !strings.Contains(errs.String(), `"nonsense"`) || !strings.Contains(errs.String(), "nat-matrix") {
				t.Errorf("status %d, %q; want %d and a message with the names", status, errs.String(), exitUsage)
			}
		})
	}
}

// TestLabFolders looks that a wrong folder is told before anything runs.
func TestLabFolders(t *testing.T) {
	file := program.File(t, "")
	for _, args := range [][]string{
		{"lab", "run", "teredo", "--pcap", file},
		{"lab", "run", "teredo", "--out", file + "/deep"},
		{"lab", "up", "teredo", "--out", file},
	} {
		status, out, errs := call(args...)
		if status != exitUsage || out != "" || !strings.Contains(errs, "isthmus: "+args[3]+": there is a file in the way of the folder "+args[4]+": name another folder\n") {
			t.Errorf("%v: %d\n%s%s", args, status, out, errs)
		}
	}
	folder := filepath.Join(t.TempDir(), "a", "b")
	if err := labFolders(folder, ""); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		t.Errorf("the folder was not made: %v", err)
	}
}

func TestLabDownOfOneOrAll(t *testing.T) {
	if status, _, errs := call("lab", "down", "--all", "teredo"); status != exitUsage || !strings.Contains(errs, "a name or --all, not both") {
		t.Errorf("%d: %s", status, errs)
	}
}

// TestLabEndsWithItsReader starts a lab whose reader goes after the first line.
func TestLabEndsWithItsReader(t *testing.T) {
	testutil.NeedRoot(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	cmd := exec.Command(self, "lab", "run", "teredo")
	cmd.Env = append(os.Environ(), program.As("1"))
	cmd.Stdout, cmd.Stderr = write, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	_ = write.Close()
	if _, err := bufio.NewReaderSize(read, 16).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_ = read.Close()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitFailed {
		t.Errorf("it ended with %v", err)
	}
	if !strings.Contains(errs.String(), errNoReader.Error()) {
		t.Errorf("it said:\n%s", errs.String())
	}
	// Others may have labs of their own meanwhile.
	up, err := lab.Running()
	if err != nil || slices.ContainsFunc(up, func(r lab.Run) bool { return r.PID == cmd.Process.Pid }) {
		t.Errorf("labs up: %v, %v", up, err)
	}
	left, err := filepath.Glob("/run/isthmus-lab/*/state.json")
	for _, file := range left {
		if text, _ := os.ReadFile(file); strings.Contains(string(text), fmt.Sprintf(`"pid": %d,`, cmd.Process.Pid)) {
			t.Errorf("%s is left behind", file)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// TestLabOutlivesItsConnections writes to a connection whose far end has gone: the lab goes
// on, since its output has its reader.
func TestLabOutlivesItsConnections(t *testing.T) {
	ctx, gone := context.WithCancelCause(context.Background())
	defer awaitBrokenPipe(gone)()
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGPIPE)
	defer signal.Stop(told)
	for range 20 {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(ends[0])
		if _, err := unix.Write(ends[1], []byte("x")); !errors.Is(err, unix.EPIPE) {
			t.Fatal(err)
		}
		unix.Close(ends[1])
		<-told
	}
	if err := context.Cause(ctx); err != nil {
		t.Error(err)
	}
}

func TestLostReader(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	if lostReader(write) {
		t.Error("a pipe has a reader, and is said to have none")
	}
	read.Close()
	if !lostReader(write) {
		t.Error("a pipe has no reader, and is said to have one")
	}
}
