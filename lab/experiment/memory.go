// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// residentMemory is the memory of a process that is its own, in bytes.
func residentMemory(pid int) (int, error) {
	n, err := kilobytes(fmt.Sprintf("/proc/%d/status", pid), "VmRSS: %d kB")
	return n << 10, err
}

// processMemory is what a process holds for itself, and what the kernel holds for it
// in eBPF tables, in bytes. Tables that both see are counted once.
func processMemory(pid int) (int, error) {
	proc := fmt.Sprintf("/proc/%d", pid)
	anonymous, err := kilobytes(proc+"/status", "RssAnon: %d kB")
	if err != nil {
		return 0, err
	}
	files, err := filepath.Glob(proc + "/fdinfo/*")
	if err != nil {
		return 0, err
	}
	maps := map[int]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it was closed
		}
		var id, size int
		for line := range bytes.Lines(text) {
			_, _ = fmt.Sscanf(string(line), "map_id: %d", &id)
			_, _ = fmt.Sscanf(string(line), "memlock: %d", &size)
		}
		if id != 0 {
			maps[id] = size
		}
	}
	sum := anonymous << 10
	for _, size := range maps {
		sum += size
	}
	return sum, nil
}

// kilobytes reads a number from a file of lines.
func kilobytes(file, format string) (n int, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if _, err := fmt.Sscanf(string(line), format, &n); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%s does not say %q", file, format)
}

// empty is the memory of a relay that has no peers, and no room for any.
func (c *crowd) empty(ctx context.Context, memory func(pid int) (int, error)) (bytes int, err error) {
	if err := c.start(ctx, 1); err != nil {
		return 0, err
	}
	if bytes, err = memory(c.process.PID()); err != nil {
		return 0, err
	}
	return bytes, c.process.Stop()
}
