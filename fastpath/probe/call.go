// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"math"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// tcx asks whether tc programs can be attached by links (Linux 6.6). A process that may not
// load programs does not know.
var tcx = sync.OnceValues(func() (has, known bool) {
	p, err := tiny(ebpf.SchedCLS)
	if err != nil {
		return false, false
	}
	defer p.Close()
	// No interface has this index, so an attempt attaches nothing.
	l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: math.MaxInt32, Attach: ebpf.AttachTCXIngress})
	if err == nil {
		l.Close()
		return true, true
	}
	if errors.Is(err, unix.EPERM) {
		return false, false
	}
	return !errors.Is(err, ebpf.ErrNotSupported), true
})

// LacksTCX reports whether tc programs cannot be attached by links, as far as this process
// may know.
func LacksTCX() bool {
	has, known := tcx()
	return known && !has
}

// FibSource reports whether a route look-up returns the source address (Linux 6.7).
func FibSource() bool { return tryFib(fibSource) == nil }

// DecapFlag reports whether tc can change the packet's protocol when it takes an outer
// header away (Linux 6.3).
func DecapFlag() bool { return tryDecapFlag() == nil }

// tiny loads a program that does nothing.
func tiny(kind ebpf.ProgramType) (*ebpf.Program, error) {
	return load(kind, asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()})
}

func load(kind ebpf.ProgramType, code asm.Instructions) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{Name: "isthmus_probe", Type: kind, Instructions: code, License: "Dual BSD/GPL"})
}

// Constants of the kernel's interface (uapi/linux/bpf.h), under names of our own
// as old headers lack them.
const (
	fibSkipNeighbour = 1 << 2 // BPF_FIB_LOOKUP_SKIP_NEIGH
	fibSource        = 1 << 4 // BPF_FIB_LOOKUP_SRC
	fibParams        = 64     // size of struct bpf_fib_lookup
	roomModeMAC      = 1      // BPF_ADJ_ROOM_MAC
	roomDecapIPv6    = 1 << 8 // BPF_F_ADJ_ROOM_DECAP_L3_IPV6
	roomTooMuch      = 0x1000 // more than adjust_room ever takes
)

// errUnknown reports that a helper of the kernel does not know a flag.
var errUnknown = errors.New("the kernel does not know this")

func tryXDP() error { return tryLoad(ebpf.XDP) }

func tryTC() error { return tryLoad(ebpf.SchedCLS) }

func tryLoad(kind ebpf.ProgramType) error {
	p, err := tiny(kind)
	if err != nil {
		return err
	}
	return p.Close()
}

func tryMappedArray() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "isthmus_probe", Type: ebpf.Array, KeySize: 4, ValueSize: 64, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return err
	}
	return m.Close()
}

// tryCoarseTime loads a program that calls the helper; the verifier knows whether
// there is one.
func tryCoarseTime() error {
	p, err := load(ebpf.XDP, asm.Instructions{asm.FnKtimeGetCoarseNs.Call(), asm.Mov.Imm(asm.R0, 2), asm.Return()})
	if err != nil {
		return err
	}
	return p.Close()
}

// tryFib calls the route look-up with a flag and no address family: the flags are
// checked first.
func tryFib(flag int32) error {
	code := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	for offset := int16(-fibParams); offset < 0; offset += 4 {
		code = append(code, asm.StoreImm(asm.RFP, offset, 0, asm.Word))
	}
	code = append(code,
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -fibParams),
		asm.Mov.Imm(asm.R3, fibParams),
		asm.Mov.Imm(asm.R4, flag),
		asm.FnFibLookup.Call(),
		asm.Return(),
	)
	return tryHelper(ebpf.XDP, code)
}

// tryDecapFlag asks for room that is too large: the flags are checked first.
func tryDecapFlag() error {
	return tryHelper(ebpf.SchedCLS, asm.Instructions{
		asm.Mov.Imm(asm.R2, -roomTooMuch),
		asm.Mov.Imm(asm.R3, roomModeMAC),
		asm.Mov.Imm(asm.R4, roomDecapIPv6),
		asm.FnSkbAdjustRoom.Call(),
		asm.Return(),
	})
}

// tryHelper runs a program that returns what a helper answered. A helper that
// knows its flags goes on to find another fault than EINVAL.
func tryHelper(kind ebpf.ProgramType, code asm.Instructions) error {
	p, err := load(kind, code)
	if err != nil {
		return err
	}
	defer p.Close()
	answer, _, err := p.Test(make([]byte, 64))
	if err != nil {
		return err
	}
	if -int32(answer) == int32(unix.EINVAL) {
		return errUnknown
	}
	return nil
}

// isCompiled reports whether the kernel made machine code of a program.
func isCompiled() bool {
	p, err := tiny(ebpf.SchedCLS)
	if err != nil {
		return false
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return false
	}
	size, err := info.JitedSize()
	return err == nil && size > 0
}
