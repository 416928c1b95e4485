// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/echo"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// asForeground makes the test binary a program that runs the toy without a configuration file.
const asForeground = "foreground"

func inForeground() {
	roles = append(roles, echo.Role)
	err := foreground("[[echo]]\nlisten = \"127.0.0.1:0\"\n[control]\nsocket = \"\"\n", streams{out: os.Stdout, err: os.Stderr})
	if err != nil {
		panic(err)
	}
	os.Exit(0)
}

// TestForegroundEndsWithItsTerminal: a program that has nothing to read again stops in good order
// when its terminal closes, of which kernel and shell tell it, each by a SIGHUP; not under nohup.
func TestForegroundEndsWithItsTerminal(t *testing.T) {
	for _, one := range []struct {
		name, as, args, started, ended string
	}{
		{"a role", asForeground, "", "all instances are running", "stopping"},
		{"a command", "1", "lab traffic receive --listen 127.0.0.1:0", "listening at", ""},
	} {
		for name, run := range map[string]string{"terminal": `exec "$0" `, "nohup": `trap "" HUP; exec "$0" `} {
			t.Run(one.name+", "+name, func(t *testing.T) {
				signals := []syscall.Signal{syscall.SIGHUP, syscall.SIGHUP}
				if name == "nohup" {
					signals = append(signals, syscall.SIGTERM)
				}
				rest, err := endBy(t, run+one.args, one.as, one.started, signals)
				if err != nil || !bytes.Contains(rest, []byte(one.ended)) {
					t.Errorf("ended with %v, and said\n%s", err, rest)
				}
			})
		}
	}
}

// endBy runs a script, sends signals when what it runs has started, and returns what that says
// until its end.
func endBy(t *testing.T, script, as, started string, signals []syscall.Signal) (rest []byte, err error) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, os.Args[0])
	cmd.Env = append(os.Environ(), program.As(as))
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(testutil.Patience, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	log := bufio.NewReader(errs)
	for line := ""; !strings.Contains(line, started); {
		if line, err = log.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range signals {
		if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
	rest, _ = io.ReadAll(log)
	return rest, cmd.Wait()
}

// TestForegroundFaults: what a role's flags make of a configuration is checked as a file
// is, and reported as of the command line.
func TestForegroundFaults(t *testing.T) {
	withToy(t)
	for name, text := range map[string]string{
		"a value":   "[[echo]]\nlisten = \"here\"",
		"a key":     "[[echo]]\nhear = \"here\"",
		"a section": "[[ekho]]",
	} {
		if _, err := parseFlags(text); !errors.As(err, new(role.UsageError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if settings, err := parseFlags("[[echo]]"); err != nil || settings.Count() != 1 {
		t.Errorf("%v", err)
	}
}
