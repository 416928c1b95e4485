// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What descends from the run, and what the kernel does for it, is not other load.
func TestReadOtherTime(t *testing.T) {
	proc := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		file := filepath.Join(proc, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	process := func(pid, parent int, name string, user, system, childUser, childSystem int) {
		t.Helper()
		write(fmt.Sprintf("%d/stat", pid), fmt.Sprintf("%d (%s) S %d 1 1 0 -1 4194560 1 1 1 1 %d %d %d %d 20 0 1 0 1 1 1\n",
			pid, name, parent, user, system, childUser, childSystem))
	}
	write("stat", "cpu  1000 20 300 4000 5 0 60 700 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
	process(1, 0, "init", 1, 0, 100, 0)
	process(2, 0, "kthreadd", 0, 1000, 0, 0)
	process(30, 2, "napi/in6-1", 0, 1000, 0, 0)
	process(40, 1, "shell", 2, 3, 0, 0)
	process(50, 40, "isthmus", 1000, 1000, 1000, 1000) // the run itself
	process(51, 50, "miredo", 1000, 1000, 0, 0)
	process(52, 51, "of (miredo)", 1000, 1000, 0, 0)
	process(60, 40, "go build) R 50 (", 10, 20, 30, 40)

	got, err := readOtherTime(proc, 50)
	want := otherTime{processes: (101 + 5 + 100) * 10 * time.Millisecond, stolen: 7 * time.Second}
	if err != nil || got != want {
		t.Errorf("other time is %+v, %v; want %+v", got, err, want)
	}
	write("70/stat", "70 (cut) S 1 2 3\n")
	if _, err := readOtherTime(proc, 50); err == nil {
		t.Error("a line that is cut off is read")
	}
}

// Without a beginning there is nothing to tell.
func TestOthersOfAnExperiment(t *testing.T) {
	e := &Env{}
	if _, ok := e.Others(); ok {
		t.Error("an experiment that has not begun knows of others")
	}
	e.begin()
	if o, ok := e.Others(); !ok || o.CPUs < 0 || o.Stolen < 0 {
		t.Errorf("others are %+v, %v", o, ok)
	}
}
