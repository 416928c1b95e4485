// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// victimVariable makes the test binary a lab that waits to be killed.
const victimVariable = "ISTHMUS_LAB_TEST_VICTIM"

func TestMain(m *testing.M) {
	var err error
	switch part := os.Getenv(rootlessVariable); {
	case os.Getenv(victimVariable) != "":
		err = beVictim()
	case part != "":
		err = beRootless(part)
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// beVictim brings a lab up with a process in it, says where, and waits.
func beVictim() error {
	ctx := context.Background()
	l, err := New(ctx, Options{Name: "victim", Program: "/bin/echo"})
	if err != nil {
		return err
	}
	n := l.Node("a")
	if err := n.SetControl("/run/of/a.sock"); err != nil {
		return err
	}
	if _, err := n.Start(ctx, Process{Path: "sh", Args: []string{"-c", "setsid sleep 1000 & wait"}}); err != nil {
		return err
	}
	for _, perm := range []os.FileMode{0o700, 0o755} {
		if _, err := l.TempDir(perm); err != nil {
			return err
		}
	}
	for len(membersOf(l.dir)) < 2 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("up", l.dir)
	select {}
}

// startVictim gives the process, the directory of its run and its members.
func startVictim(t *testing.T) (*exec.Cmd, string, []identity) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dir, ok := strings.CutPrefix(strings.TrimSpace(line), "up ")
	if !ok {
		t.Fatalf("the victim says %q", line)
	}
	return cmd, dir, membersOf(dir)
}

func TestKilledLabIsSweptByNext(t *testing.T) {
	testutil.NeedRoot(t)
	cmd, dir, members := startVictim(t)
	runs, err := Running()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, r := range runs {
		found = found || r.Name == filepath.Base(dir) && r.PID == cmd.Process.Pid && len(r.Nodes) == 1 && len(r.Processes) == 1
	}
	if !found {
		t.Errorf("the running victim is not listed as it is: %+v", runs)
	}
	var state runState
	if b, err := os.ReadFile(filepath.Join(dir, stateFile)); err != nil || json.Unmarshal(b, &state) != nil || len(state.Outside) != 2 {
		t.Fatalf("the victim's state is %+v, %v; want two folders outside", state, err)
	}
	for _, outside := range state.Outside {
		if err := os.WriteFile(filepath.Join(outside, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if len(members) < 2 {
		t.Fatalf("the victim had %d processes, want a shell and its child", len(members))
	}
	newLab(t)
	if !awaitEnd(members, 0) {
		t.Error("processes of the killed lab are alive after the next start")
	}
	for _, folder := range append(state.Outside, dir) {
		if _, err := os.Stat(folder); !os.IsNotExist(err) {
			t.Errorf("%s is still there after the next start: %v", folder, err)
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), dir+"/") {
		t.Errorf("namespaces of the killed lab are still mounted (%v)", err)
	}
}

func TestKernelKillsChildrenOfKilledLab(t *testing.T) {
	testutil.NeedRoot(t)
	cmd, dir, _ := startVictim(t)
	runs, err := readRuns(filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	var children []identity
	for _, s := range runs {
		if s.Name == filepath.Base(dir) {
			for _, c := range s.Children {
				children = append(children, c.identity)
			}
		}
	}
	if len(children) != 1 || !children[0].alive() {
		t.Fatalf("the state file names %v, want one living child", children)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if !awaitEnd(children, mustArrive) {
		t.Error("the child outlives its lab")
	}
	newLab(t)
}

func TestDownEndsLab(t *testing.T) {
	testutil.NeedRoot(t)
	_, dir, members := startVictim(t)
	var announced []string
	ended, err := Down(filepath.Base(dir), false, func(r Run) { announced = append(announced, r.Name+" "+r.Command) })
	if err != nil || len(ended) != 1 {
		t.Fatalf("ended %v, %v", ended, err)
	}
	if want := []string{filepath.Base(dir) + " " + os.Args[0]}; !slices.Equal(announced, want) {
		t.Errorf("announced %q, want %q", announced, want)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) || !awaitEnd(members, 0) {
		t.Errorf("the lab is not gone: %v", err)
	}
	if _, err := Down(filepath.Base(dir), false, nil); err == nil {
		t.Error("ending it twice gives no error")
	}
}

func TestShellEntersNode(t *testing.T) {
	testutil.NeedRoot(t)
	_, dir, _ := startVictim(t)
	s := runState{Name: filepath.Base(dir)}
	want, ok := spaceOf(filepath.Join(dir, namespaceDir, "a"))
	if !ok {
		t.Fatal("the node is not mounted")
	}
	args := append(enterArguments(filepath.Dir(dir), s, "a"), "stat", "-L", "-c", "%i", "/proc/self/ns/net")
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != fmt.Sprint(want.ino) {
		t.Errorf("inside it is namespace %q, want %d: %v", out, want.ino, err)
	}
}

// The program is in the PATH of a shell, and knows whom to ask.
func TestShellFindsProgram(t *testing.T) {
	testutil.NeedRoot(t)
	_, dir, _ := startVictim(t)
	t.Setenv("ISTHMUS_CONTROL", "/run/of/another.sock")
	runs, err := readRuns(filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	run, err := choose(runs, filepath.Base(dir))
	if err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]string{"a": "/run/of/a.sock\n", "another": "\n"} {
		cmd := exec.Command("/bin/sh", "-c", `isthmus "$ISTHMUS_CONTROL"`)
		cmd.Env = run.environment(dir, node)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("in node %s: %q, %v; want %q", node, out, err, want)
		}
		seen := map[string]bool{}
		for _, v := range cmd.Env {
			name, _, _ := strings.Cut(v, "=")
			if seen[name] {
				t.Errorf("%s is set twice", name)
			}
			seen[name] = true
		}
	}
}

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{"/usr/bin/isthmus": "/usr/bin/isthmus", "/a b/c": "'/a b/c'", "it's": `'it'\''s'`, "": "''"} {
		if got := quote(word); got != want {
			t.Errorf("%q is quoted as %s, want %s", word, got, want)
		}
	}
}
