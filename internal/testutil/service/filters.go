// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// rule refuses a system call for the value of an argument.
type rule struct {
	Call  string
	Arg   int
	Mask  uint32 // bits that are looked at
	Is    bpf.JumpTest
	Value uint32
	Error int
}

// always refuses a call with any arguments.
func always(call string, err int) rule {
	return rule{Call: call, Is: bpf.JumpGreaterOrEqual, Error: err}
}

const (
	executable = unix.PROT_EXEC
	both       = unix.PROT_EXEC | unix.PROT_WRITE
	shared     = 0o100000 // SHM_EXEC
	anySpace   = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	anyID      = unix.S_ISUID | unix.S_ISGID
	// A process may ask for its personality by this value.
	asks = math.MaxUint32
)

// What directives refuse beside whole system calls.
var (
	writeExecute = []rule{
		{"mmap", 2, both, bpf.JumpEqual, both, int(unix.EPERM)},
		{"mprotect", 2, executable, bpf.JumpEqual, executable, int(unix.EPERM)},
		{"pkey_mprotect", 2, executable, bpf.JumpEqual, executable, int(unix.EPERM)},
		{"shmat", 2, shared, bpf.JumpEqual, shared, int(unix.EPERM)},
	}
	namespaces = []rule{
		{"unshare", 0, anySpace, bpf.JumpNotEqual, 0, int(unix.EPERM)},
		{"clone", 0, anySpace, bpf.JumpNotEqual, 0, int(unix.EPERM)},
		always("clone3", int(unix.ENOSYS)), // no filter sees its arguments
		always("setns", int(unix.EPERM)),
	}
	realtime = []rule{
		{"sched_setscheduler", 1, math.MaxUint32, bpf.JumpEqual, 1, int(unix.EPERM)}, // SCHED_FIFO
		{"sched_setscheduler", 1, math.MaxUint32, bpf.JumpEqual, 2, int(unix.EPERM)}, // SCHED_RR
		{"sched_setscheduler", 1, math.MaxUint32, bpf.JumpGreaterThan, 5, int(unix.EPERM)},
	}
	personality = []rule{{"personality", 0, math.MaxUint32, bpf.JumpNotEqual, asks, int(unix.EPERM)}}
	setID       = []rule{
		{"chmod", 1, anyID, bpf.JumpNotEqual, 0, int(unix.EPERM)},
		{"fchmod", 1, anyID, bpf.JumpNotEqual, 0, int(unix.EPERM)},
		{"fchmodat", 2, anyID, bpf.JumpNotEqual, 0, int(unix.EPERM)},
		{"mkdir", 1, anyID, bpf.JumpNotEqual, 0, int(unix.EPERM)},
		{"mkdirat", 2, anyID, bpf.JumpNotEqual, 0, int(unix.EPERM)},
		{"mknod", 1, anyID, bpf.JumpNotEqual, 0, int(unix.EPERM)},
		{"mknodat", 2, anyID, bpf.JumpNotEqual, 0, int(unix.EPERM)},
		{"open", 2, anyID, bpf.JumpNotEqual, 0, int(unix.EPERM)},
		{"openat", 3, anyID, bpf.JumpNotEqual, 0, int(unix.EPERM)},
		{"creat", 1, anyID, bpf.JumpNotEqual, 0, int(unix.EPERM)},
		always("openat2", int(unix.ENOSYS)), // no filter sees its arguments
	}
)

// refuse refuses sets of system calls, whatever is allowed otherwise.
func (s *Sandbox) refuse(names ...string) {
	for _, name := range names {
		calls, err := members(name)
		if err != nil {
			panic(err) // a name of this package
		}
		for _, call := range calls {
			s.Refused = append(s.Refused, always(call, int(unix.EPERM)))
		}
	}
}

var families = map[string]uint32{
	"AF_INET": unix.AF_INET, "AF_INET6": unix.AF_INET6, "AF_NETLINK": unix.AF_NETLINK, "AF_PACKET": unix.AF_PACKET, "AF_UNIX": unix.AF_UNIX,
}

// Places in what a filter sees of a call, struct seccomp_data.
const (
	seenCall = 0
	seenArch = 4
	seenArgs = 16
)

// filters are the programs for a process, the last of which allows the least.
func (s *Sandbox) filters() (list [][]bpf.RawInstruction, err error) {
	refused, err := s.refusals()
	if err != nil {
		return nil, err
	}
	for _, program := range [][]bpf.Instruction{refused, s.allowed()} {
		raw, err := bpf.Assemble(append(native(), program...))
		if err != nil {
			return nil, err
		}
		list = append(list, raw)
	}
	return list, nil
}

// native ends a process that calls as another architecture would.
func native() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: seenArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: architecture, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
	}
}

func (s *Sandbox) refusals() ([]bpf.Instruction, error) {
	rules := slices.Clone(s.Refused)
	if s.Families != nil {
		for family := range uint32(unix.AF_MAX) {
			if !slices.ContainsFunc(s.Families, func(name string) bool { return families[name] == family }) {
				rules = append(rules, rule{"socket", 0, math.MaxUint32, bpf.JumpEqual, family, int(unix.EAFNOSUPPORT)})
			}
		}
		for _, name := range s.Families {
			if families[name] == 0 {
				return nil, fmt.Errorf("unknown address family %s", name)
			}
		}
		rules = append(rules, rule{"socket", 0, math.MaxUint32, bpf.JumpGreaterOrEqual, unix.AF_MAX, int(unix.EAFNOSUPPORT)})
	}
	var program []bpf.Instruction
	for _, r := range rules {
		n, ok := number(r.Call)
		if !ok {
			continue // not on this architecture
		}
		program = append(program,
			bpf.LoadAbsolute{Off: seenCall, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(n), SkipTrue: 4},
			bpf.LoadAbsolute{Off: uint32(seenArgs + 8*r.Arg), Size: 4}, // the lower half: both architectures are little-endian
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: r.Mask},
			bpf.JumpIf{Cond: r.Is, Val: r.Value, SkipFalse: 1},
			bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(r.Error)},
		)
	}
	return append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}), nil
}

func (s *Sandbox) allowed() []bpf.Instruction {
	if s.Calls == nil {
		return []bpf.Instruction{bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}}
	}
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: seenCall, Size: 4}}
	for _, call := range s.Calls {
		if n, ok := number(call); ok {
			program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(n), SkipFalse: 1}, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
		}
	}
	return append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(s.Refusal)})
}
