// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// cpuFolder is where the kernel tells of the first processor.
const cpuFolder = "/sys/devices/system/cpu/cpu0"

// facts are what a reader must know of program and machine to judge figures.
func facts(e *lab.Env) []report.Fact {
	list := versionFacts(e)
	add := func(name, value string) {
		list = append(list, report.Fact{Name: name, Value: value})
	}
	add("kernel", "Linux "+kernelRelease())
	add("CPU", cpuModel())
	add("cores", fmt.Sprint(runtime.NumCPU()))
	add("clock governor", firstWord(filepath.Join(cpuFolder, "cpufreq/scaling_governor"), "none to be seen, as in most virtual machines"))
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		if averages := strings.Fields(string(load)); len(averages) > 2 {
			add("load at the end", fmt.Sprintf("%s over 1 minute, %s over 5, %s over 15", averages[0], averages[1], averages[2]))
		}
	}
	return list
}

// versionFacts asks the program that was measured for its version and commit.
func versionFacts(e *lab.Env) []report.Fact {
	text, err := exec.Command(e.Binary, "version").Output()
	if err != nil {
		return []report.Fact{{Name: "isthmus", Value: "an unknown version"}}
	}
	var list []report.Fact
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "kernel" {
			list = append(list, report.Fact{Name: name, Value: strings.TrimSpace(value)})
		}
	}
	return list
}

// machine says in one line what the figures were measured on.
func machine() string {
	return fmt.Sprintf("Linux %s, %d x %s.", kernelRelease(), runtime.NumCPU(), cpuModel())
}

func kernelRelease() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return unix.ByteSliceToString(u.Release[:])
}

func cpuModel() string {
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return "unknown CPU"
}

// firstWord is what a file of the kernel holds, or the other text without it.
func firstWord(path, without string) string {
	text, err := os.ReadFile(path)
	if err != nil || len(strings.Fields(string(text))) == 0 {
		return without
	}
	return strings.Fields(string(text))[0]
}

// commandLine is what was typed, as a shell would take it again.
func commandLine(args []string) string {
	words := []string{filepath.Base(args[0])}
	for _, word := range args[1:] {
		if word == "" || strings.ContainsAny(word, " \t\n'\"\\$`*?[](){}<>|&;#~!") {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}
