// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Others is the load of programs that are no part of a run, over its time.
type Others struct {
	// CPUs that they had, on the average, and that a hypervisor kept for itself.
	CPUs, Stolen float64
}

// Others reports what else the machine did since the experiment began; ok is false if
// that cannot be determined.
func (e *Env) Others() (o Others, ok bool) {
	now, err := readOtherTime("/proc", os.Getpid())
	took := time.Since(e.began)
	if err != nil || e.began.IsZero() {
		return o, false
	}
	cpus := func(before, after time.Duration) float64 { return max((after-before).Seconds()/took.Seconds(), 0) }
	return Others{cpus(e.others.processes, now.processes), cpus(e.others.stolen, now.stolen)}, true
}

// begin notes what the machine has done until now.
func (e *Env) begin() {
	var err error
	if e.others, err = readOtherTime("/proc", os.Getpid()); err == nil {
		e.began = time.Now()
	}
}

// otherTime is CPU time since the machine has started.
type otherTime struct{ processes, stolen time.Duration }

// Fields of proc(5), counted from behind the name in parentheses for a process.
const (
	tick         = time.Second / 100 // USER_HZ, the same everywhere
	statParent   = 1
	statTimes    = 11 // utime, stime, cutime and cstime
	statTimesEnd = 15
	statSteal    = 8 // of the line cpu
	kernelThread = 2 // kthreadd, the parent of them all
)

// readOtherTime adds up the times of all processes that are neither self, nor come from
// it, nor are threads of the kernel, which work for the run. What has ended is in the
// time of who waited for it.
func readOtherTime(proc string, self int) (t otherTime, err error) {
	parents, times := map[int]int{}, map[int]time.Duration{}
	files, err := filepath.Glob(proc + "/[0-9]*/stat")
	if err != nil {
		return t, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < statTimesEnd {
			return t, fmt.Errorf("%s has %d fields", file, len(fields))
		}
		parents[pid], _ = strconv.Atoi(fields[statParent])
		times[pid] = ticks(fields[statTimes:statTimesEnd]...)
	}
	for pid, time := range times {
		if !comesFrom(parents, pid, self) && !comesFrom(parents, pid, kernelThread) {
			t.processes += time
		}
	}
	text, err := os.ReadFile(proc + "/stat")
	if err != nil {
		return t, err
	}
	if all := strings.Fields(string(text)); len(all) > statSteal {
		t.stolen = ticks(all[statSteal])
	}
	return t, nil
}

// comesFrom reports whether a process is another one or descends from it.
func comesFrom(parents map[int]int, pid, ancestor int) bool {
	for range len(parents) { // a number that was given again could make a circle
		if pid == ancestor {
			return true
		}
		pid = parents[pid]
	}
	return false
}

func ticks(fields ...string) (sum time.Duration) {
	for _, f := range fields {
		n, _ := strconv.ParseInt(f, 10, 64)
		sum += time.Duration(n) * tick
	}
	return sum
}
