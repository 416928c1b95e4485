// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"errors"
	"math"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// haveTCX asks whether tc programs can be attached by links (Linux 6.6). The
// answer is unknown to a process that may not load programs.
var haveTCX = sync.OnceValue(func() answer {
	p, err := tiny(ebpf.SchedCLS)
	if err != nil {
		return unknown
	}
	defer p.Close()
	// No interface has this index, so an attempt attaches nothing.
	l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: math.MaxInt32, Attach: ebpf.AttachTCXIngress})
	if err == nil {
		l.Close()
		return yes
	}
	switch {
	case errors.Is(err, ebpf.ErrNotSupported):
		return no
	case errors.Is(err, unix.EPERM):
		return unknown
	default:
		return yes
	}
})

// tiny loads a program that does nothing.
func tiny(kind ebpf.ProgramType) (*ebpf.Program, error) {
	return load(kind, asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()})
}

func load(kind ebpf.ProgramType, code asm.Instructions) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{Name: "isthmus_probe", Type: kind, Instructions: code, License: "Dual BSD/GPL"})
}
