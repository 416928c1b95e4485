// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// turns of the slow program take it some 20 ms or more.
const turns = 1 << 23

// function names the function that begins with an instruction.
func function(name string, first asm.Instruction) asm.Instruction {
	proto := &btf.FuncProto{Return: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}}
	return btf.WithFuncMetadata(first.WithSymbol(name), &btf.Func{Name: name, Type: proto, Linkage: btf.StaticFunc})
}

// slowProgram sets the first word of a map to 1, takes its time, and sets it to 2.
func slowProgram(t *testing.T, m *ebpf.Map) *ebpf.Program {
	t.Helper()
	set := func(value int32) asm.Instructions {
		return asm.Instructions{
			asm.LoadMapValue(asm.R1, m.FD(), 0),
			asm.StoreImm(asm.R1, 0, int64(value), asm.Word),
		}
	}
	turn := asm.LoadImm(asm.R2, -1, asm.DWord).WithReference("turn")
	turn.Src = asm.PseudoFunc
	var code asm.Instructions
	code = append(code, set(1)...)
	code = append(code,
		asm.Mov.Imm(asm.R1, turns), turn, asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R4, 0),
		asm.FnLoop.Call())
	code = append(code, set(2)...)
	code = append(code, asm.Mov.Imm(asm.R0, 0), asm.Return(),
		function("turn", asm.Mov.Imm(asm.R0, 0)), asm.Return())
	code[0] = function("slow", code[0])
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: code})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// TestAwaitPrograms waits for a program that runs, however long it takes.
func TestAwaitPrograms(t *testing.T) {
	testutil.NeedRoot(t)
	if err := awaitGrace(); err != nil {
		t.Fatalf("the kernel cannot be asked: %v", err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b, err := unix.Mmap(m.FD(), 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	at := (*uint32)(unsafe.Pointer(&b[0]))
	p := slowProgram(t, m)
	for range 5 {
		atomic.StoreUint32(at, 0)
		ended := make(chan error)
		go func() {
			_, _, err := p.Test(make([]byte, 64))
			ended <- err
		}()
		for deadline := time.Now().Add(testutil.Patience); atomic.LoadUint32(at) == 0 && time.Now().Before(deadline); {
			runtime.Gosched()
		}
		AwaitPrograms()
		if got := atomic.LoadUint32(at); got != 2 {
			t.Errorf("the program is at %d when it was waited for, want 2", got)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}
