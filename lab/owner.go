// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// identity names a process for good: process ids are reused, a process id
// with its start time is not.
type identity struct {
	PID int `json:"pid"`
	// Start is the start time in clock ticks after boot, field 22 of
	// /proc/PID/stat.
	Start uint64 `json:"start"`
}

// identify reads the identity of a living process.
func identify(pid int) (identity, error) {
	start, state, err := processStat(pid)
	if err != nil {
		return identity{}, err
	}
	if state == 'Z' || state == 'X' {
		return identity{}, fmt.Errorf("process %d has ended", pid)
	}
	return identity{PID: pid, Start: start}, nil
}

// alive reports whether the process still runs; a zombie does not.
func (id identity) alive() bool {
	start, state, err := processStat(id.PID)
	return err == nil && start == id.Start && state != 'Z' && state != 'X'
}

// signal sends sig if the process is still the same one.
func (id identity) signal(sig unix.Signal) error {
	if !id.alive() {
		return os.ErrProcessDone
	}
	return unix.Kill(id.PID, sig)
}

// processStat reads start time and state from /proc/PID/stat, where the
// second field is a name in parentheses that may hold anything.
func processStat(pid int) (start uint64, state byte, err error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, err
	}
	text := string(b)
	end := strings.LastIndexByte(text, ')')
	fields := strings.Fields(text[end+1:])
	if end < 0 || len(fields) < 20 {
		return 0, 0, fmt.Errorf("process %d: unexpected stat line", pid)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, fields[0][0], err
}

// commandOf is the command line of a process, "" if it has ended.
func commandOf(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Split(strings.TrimRight(string(b), "\x00"), "\x00"), " ")
}

// killGrace bounds the wait for what was killed, which ends when it next gets a
// processor.
const killGrace = 10 * time.Second

// endAll asks the processes to end, waits up to grace, then kills the rest.
func endAll(ids []identity, grace time.Duration) {
	living := ids[:0:0]
	for _, id := range ids {
		if id.signal(unix.SIGTERM) == nil {
			// A shell ignores SIGTERM and ends at SIGHUP.
			_ = id.signal(unix.SIGHUP)
			living = append(living, id)
		}
	}
	if len(living) == 0 || awaitEnd(living, grace) {
		return
	}
	for _, id := range living {
		_ = id.signal(unix.SIGKILL)
	}
	awaitEnd(living, killGrace)
}

// awaitEnd waits until all processes have ended and reports whether they did.
// They need not be children, so there is nothing to wait on but /proc.
func awaitEnd(ids []identity, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for {
		alive := false
		for _, id := range ids {
			alive = alive || id.alive()
		}
		if !alive {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(2 * time.Millisecond)
	}
}
