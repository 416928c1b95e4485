// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// endLimit bounds the end of an experiment. It should take 2 s at most; the rest is for a loaded
// machine, and far less than what these experiments have before them.
const endLimit = 30 * time.Second

// An experiment that gets a SIGTERM in the middle of what it measures ends at once, whether it
// waits, sends frames or a TCP stream then, and leaves no process and no namespace behind.
func TestSignalEndsExperiment(t *testing.T) {
	for _, c := range []struct{ name, middle string }{
		{matrixName, "clients"}, {throughputName, "rounds of"}, {clientName, "rounds of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, e := testEnv(t)
			cmd := exec.Command(e.Binary, "lab", "run", c.name)
			cmd.Env = append(os.Environ(), peers.Env+"="+e.Peers)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = cmd.Stdout
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			said := bufio.NewReader(io.TeeReader(out, t.Output()))
			for line := ""; !strings.Contains(line, c.middle); {
				if line, err = said.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			names, started := runsOf(t, cmd.Process.Pid), family(cmd.Process.Pid)[1:]
			if len(names) == 0 || len(started) < 2 {
				t.Fatalf("in the middle there are the labs %q and %d processes", names, len(started))
			}
			late := time.AfterFunc(endLimit, func() {
				t.Errorf("it has not ended %v after SIGTERM", endLimit)
				_ = cmd.Process.Kill()
			})
			begin := time.Now()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, said) // until it has ended
			_ = cmd.Wait()                   // it says that it was interrupted
			late.Stop()
			t.Logf("it ended after %v", time.Since(begin))
			mustBeGone(t, cmd.Process.Pid, names, started)
		})
	}
}

// runsOf are the names of the labs of a process.
func runsOf(t *testing.T, pid int) (names []string) {
	t.Helper()
	runs, err := lab.Running()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if r.PID == pid {
			names = append(names, r.Name)
		}
	}
	return names
}

// mustBeGone looks for what a process has left of labs of those names, and of those processes.
func mustBeGone(t *testing.T, pid int, names []string, started []int) {
	t.Helper()
	if left := runsOf(t, pid); len(left) > 0 {
		t.Errorf("the labs %q are still there", left)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.Contains(string(mounts), "/"+name+"/") {
			t.Errorf("namespaces of %s are still mounted", name)
		}
	}
	for _, one := range started {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", one))
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		// What has ended may still wait for init to take note: that is its state, behind its name.
		if at := bytes.LastIndexByte(stat, ')'); at >= 0 && !bytes.HasPrefix(stat[at:], []byte(") Z")) && !bytes.HasPrefix(stat[at:], []byte(") X")) {
			t.Errorf("a process outlives the experiment: %s", stat)
		}
	}
}
