// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
)

// Features is what kernel and process offer the fast path, found out by trying,
// not by the kernel's version. What could not be tried for want of privileges is
// not there, and Missing says so.
type Features struct {
	Kernel string // release, as uname says

	// Programs reports that programs and maps can be loaded; without it nothing
	// below could be tried.
	Programs bool
	// XDP and TC report whether the kernel knows programs of that kind.
	XDP, TC bool
	// TCX reports that tc programs can be attached by links, which end with the
	// process or are pinned (Linux 6.6); without it filters are used.
	TCX bool
	// MappedArrays reports that arrays can be mapped into memory (Linux 5.5); peers
	// live in one.
	MappedArrays bool
	// FibSource reports that a route look-up returns the source address too (Linux
	// 6.7).
	FibSource bool
	// FibNeighbour reports that a route look-up need not find the neighbour (Linux
	// 6.3).
	FibNeighbour bool
	// DecapFlag reports that tc can change the packet's protocol when it takes an
	// outer header away (Linux 6.3); without it tc leaves packets to the engine
	// that segmentation offload has left whole, as they come from veth.
	DecapFlag bool
	// CoarseTime reports that programs read a clock that costs little (Linux 5.11).
	CoarseTime bool
	// JIT reports that programs run as machine code.
	JIT bool
	// BPFFS is a BPF file system that is mounted and may be written, empty if
	// there is none.
	BPFFS string
	// Capabilities are those of the process that matter here.
	Capabilities []string
	// Missing has one sentence for each thing that is missing, with what to do.
	Missing []string

	locked error // why the process may not lock more memory, where the kernel keeps maps in it
}

// Try finds out what kernel and process offer. It attaches and mounts nothing. On
// kernels before 5.11 it raises the process's limit of locked memory.
func Try() Features {
	f := Features{Kernel: release(), BPFFS: pinned.Mounted()}
	caps := effective()
	f.Capabilities = caps.names()
	f.try()
	if !f.CoarseTime { // as before Linux 5.11, which keeps maps in locked memory
		f.locked = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	}
	f.JIT = f.lookAtJIT()
	f.Missing = f.words(caps)
	return f
}

// try loads small programs, each of which shows one feature.
func (f *Features) try() {
	for _, t := range []struct {
		has *bool
		try func() error
	}{
		{&f.MappedArrays, tryMappedArray},
		{&f.XDP, tryXDP},
		{&f.TC, tryTC},
		{&f.FibSource, func() error { return tryFib(fibSource) }},
		{&f.FibNeighbour, func() error { return tryFib(fibSkipNeighbour) }},
		{&f.DecapFlag, tryDecapFlag},
		{&f.CoarseTime, tryCoarseTime},
	} {
		*t.has = t.try() == nil
	}
	f.Programs = f.XDP || f.TC
	has, _ := tcx()
	f.TCX = has
}

// words says what is missing and what to do about it.
func (f *Features) words(caps capabilities) []string {
	var words []string
	say := func(missing bool, format string, args ...any) {
		if missing {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	if !f.Programs {
		return append(words, whyNoPrograms(caps, tryTC()))
	}
	lacks := caps.missing(capNetAdmin)
	say(lacks != "", "The process has no %s, so it can attach nothing: give it that capability.", lacks)
	say(!f.XDP, "The kernel %s has no XDP: tc is used; for XDP take a kernel with CONFIG_BPF_SYSCALL and CONFIG_NET.", f.Kernel)
	say(!f.TC, "The kernel %s has no tc programs: take a kernel with CONFIG_NET_CLS_ACT.", f.Kernel)
	say(!f.MappedArrays, "The kernel %s cannot map arrays into memory, so there is no fast path: take Linux 5.5 or later.", f.Kernel)
	say(f.TC && !f.TCX, "The kernel %s attaches tc programs by clsact filters, which stay when the process dies: take Linux 6.6 or later for links.", f.Kernel)
	say(!f.FibSource, "The kernel %s names no source address in route look-ups: bind the instance to an address if the host has several, or take Linux 6.7 or later.", f.Kernel)
	say(!f.DecapFlag, "The kernel %s cannot take a tunnel off packets in tc that segmentation offload has left whole, as they come from veth; those take the engine, which is slow: switch tso off at their sender, use XDP, or take Linux 6.3 or later.", f.Kernel)
	say(!f.CoarseTime, "The kernel %s has no coarse clock for programs: take Linux 5.11 or later.", f.Kernel)
	say(f.locked != nil, "The process may lock little memory, in which kernels before 5.11 keep maps (%v): raise the limit with LimitMEMLOCK=infinity.", f.locked)
	say(!f.JIT, "Programs are interpreted, which is several times slower: switch the compiler on with: sysctl -w net.core.bpf_jit_enable=1.")
	say(f.BPFFS == "", "%s", pinned.WhyNone())
	return words
}

func release() string {
	u := unix.Utsname{}
	if unix.Uname(&u) != nil {
		return "of unknown release"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// jitSwitch is readable to root only; who may not read it learns from a loaded
// program whether it was compiled.
const jitSwitch = "/proc/sys/net/core/bpf_jit_enable"

func (f *Features) lookAtJIT() bool {
	text, err := os.ReadFile(jitSwitch)
	if err != nil {
		return isCompiled()
	}
	return strings.TrimSpace(string(text)) != "0"
}
