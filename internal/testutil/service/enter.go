// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Enter makes this process the service, for which Machine.Start has started it, and
// does not return then. TestMain calls it before all else.
func Enter() {
	path := os.Getenv(enterEnv)
	if path == "" {
		return
	}
	runtime.LockOSThread() // rights are a thread's until it runs the program
	fmt.Fprintln(os.Stderr, "cannot become the service:", enter(path))
	os.Exit(1)
}

func enter(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var j job
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	filters, err := j.Sandbox.filters()
	if err != nil {
		return err
	}
	if err := j.show(); err != nil {
		return err
	}
	if err := j.Sandbox.restrict(); err != nil {
		return err
	}
	for _, f := range filters {
		if err := load(f); err != nil {
			return fmt.Errorf("a filter of system calls: %w", err)
		}
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, enterEnv+"=") })
	return unix.Exec(j.Sandbox.Exec[0], os.Args, env)
}

// restrict takes all rights but those that the unit leaves, in the calling thread.
func (s *Sandbox) restrict() error {
	unix.Umask(s.Umask)
	if s.MemoryLock != 0 {
		limit := unix.Rlimit{Cur: s.MemoryLock, Max: s.MemoryLock}
		// Who may not raise the limit tries the service with less than it will have.
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil && !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	for c := uintptr(0); ; c++ {
		if slices.Contains(s.Bounding, c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); errors.Is(err, unix.EINVAL) {
			break // the last one there is
		} else if err != nil {
			return fmt.Errorf("the bounding set: %w", err)
		}
	}
	groups, err := s.groups()
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return err
	}
	// These calls are the kernel's own: those of the library change every thread.
	for _, call := range [][4]uintptr{
		{unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups)))},
		{unix.SYS_SETRESGID, id, id, id},
		{unix.SYS_SETRESUID, id, id, id},
	} {
		if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
			return fmt.Errorf("user and groups: %w", errno)
		}
	}
	runtime.KeepAlive(groups)
	var data [2]unix.CapUserData
	for _, c := range s.Ambient {
		bit := uint32(1) << (c % 32)
		data[c/32].Permitted |= bit
		data[c/32].Effective |= bit
		data[c/32].Inheritable |= bit
	}
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	for _, c := range s.Ambient {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0); err != nil {
			return fmt.Errorf("ambient capability %d: %w", c, err)
		}
	}
	if s.NoNewPrivileges {
		return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	return nil
}

// groups are the numbers of all groups.
func (s *Sandbox) groups() ([]uint32, error) {
	numbers := []uint32{id}
	for _, name := range s.Groups {
		if name != "root" {
			return nil, fmt.Errorf("unknown group %s", name)
		}
		numbers = append(numbers, 0)
	}
	return numbers, nil
}

// load has the calling thread filtered.
func load(program []bpf.RawInstruction) error {
	filter := make([]unix.SockFilter, len(program))
	for i, f := range program {
		filter[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return errno
	}
	return nil
}

// at joins places.
func at(elements ...string) string { return filepath.Join(elements...) }
