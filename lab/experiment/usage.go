// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/lab/load"
)

// usage counts the CPU time of a measurement; nil counts nothing.
type usage struct{ counter *load.Usage }

// countCPU counts receiving in the kernel and processes with all that they have started.
// Where the numbers of processes are not the kernel's nothing is counted.
func countCPU(processes ...int) (*usage, error) {
	if !load.SeesKernelThreads() {
		return nil, nil
	}
	counter, err := load.NewUsage()
	if err != nil {
		return nil, err
	}
	u := &usage{counter}
	for _, process := range processes {
		for _, pid := range family(process) {
			if err := counter.Watch(pid); err != nil {
				u.close()
				return nil, err
			}
		}
	}
	return u, nil
}

// family is a process and what it has started, such as the half of Miredo that works.
func family(pid int) []int {
	pids := []int{pid}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // none: no such process
	for _, file := range files {
		text, _ := os.ReadFile(file) // it ended
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				pids = append(pids, family(child)...)
			}
		}
	}
	return pids
}

// time is what was counted until now; a count that cannot be read is none.
func (u *usage) time() time.Duration {
	if u == nil {
		return 0
	}
	used, _ := u.counter.Time()
	return used
}

func (u *usage) close() {
	if u != nil {
		_ = u.counter.Close()
	}
}
