// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// finish shows a report, writes its files if they are wanted, and gives the
// verdict.
func finish(e *lab.Env, r *report.Report) error {
	r.Machine = version(e) + " on " + machine()
	write := r.WriteText
	if e.JSON {
		write = r.WriteJSON
	}
	if err := write(e.Out); err != nil {
		return fmt.Errorf("the report cannot be shown: %w", err)
	}
	if e.Dir != "" {
		if err := r.WriteFiles(e.Dir); err != nil {
			return err
		}
	}
	return r.Verdict(e.Strict)
}

// version asks the program that was measured for its name and version.
func version(e *lab.Env) string {
	text, err := exec.Command(e.Binary, "version").Output()
	line, _, _ := strings.Cut(string(text), "\n")
	if err != nil || line == "" {
		return "an unknown version"
	}
	return line
}

// machine says what the figures were measured on.
func machine() string {
	model := "unknown CPU"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	var u unix.Utsname
	_ = unix.Uname(&u)
	return fmt.Sprintf("Linux %s, %d x %s.", unix.ByteSliceToString(u.Release[:]), runtime.NumCPU(), model)
}
