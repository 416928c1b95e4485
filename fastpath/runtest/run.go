// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package runtest has the kernel run programs of a fast path on single frames, for tests, and
// reads what they have counted.
package runtest

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/fastpath"
)

// Hook is a place where programs run.
type Hook string

const (
	InXDP Hook = "xdp"
	InTC  Hook = "tc"
)

var Hooks = []Hook{InXDP, InTC}

// verdicts are what the return codes of programs mean.
var verdicts = map[Hook]map[uint32]fastpath.Verdict{
	InXDP: {4: fastpath.Forward, 2: fastpath.Punt, 1: fastpath.Drop},
	InTC:  {7: fastpath.Forward, 0xffffffff: fastpath.Punt, 2: fastpath.Drop},
}

// skb is the part of struct __sk_buff that a test run takes.
type skb struct {
	Len, PktType, Mark, QueueMapping, Protocol uint32
	VlanPresent, VlanTci, VlanProto, Priority  uint32
	IngressIfindex, Ifindex, TcIndex           uint32
	Cb                                         [5]uint32
	Hash, TcClassid, Data, DataEnd, NapiID     uint32
	Family, RemoteIP4, LocalIP4                uint32
	RemoteIP6, LocalIP6                        [4]uint32
	RemotePort, LocalPort, DataMeta            uint32
	_                                          uint32
	FlowKeys, Tstamp                           uint64
	WireLen, GsoSegs                           uint32
	Sk                                         uint64
	GsoSize, TstampType                        uint32
	Hwtstamp                                   uint64
}

// Runner runs one program again and again. It must be used in a thread of the namespace.
type Runner struct {
	Hook Hook

	program *ebpf.Program
	context any // of tc
	out     []byte
}

// NewRunner returns a runner of the program for a hook. With tc frames come in by the device
// of that index, with XDP by the loopback device. Results have room bytes at most.
func NewRunner(at Hook, of fastpath.Programs, device, room int) *Runner {
	r := &Runner{Hook: at, program: of.XDP, out: make([]byte, room)}
	if at == InTC {
		r.program, r.context = of.Ingress, skb{Ifindex: uint32(device)}
	}
	return r
}

// Result is what a program made of a frame.
type Result struct {
	Verdict fastpath.Verdict
	Out     []byte
	Code    uint32
}

// String returns the result for people.
func (r Result) String() string {
	return fmt.Sprintf("%s (code %d) %x", r.Verdict, int32(r.Code), r.Out)
}

// Run gives a frame to the program. The result's bytes are good until the next.
func (r *Runner) Run(frame []byte) (Result, error) {
	o := ebpf.RunOptions{Data: frame, DataOut: r.out, Context: r.context}
	code, err := r.program.Run(&o)
	if err != nil {
		return Result{}, fmt.Errorf("test run at %s of %x: %w", r.Hook, frame, err)
	}
	verdict, known := verdicts[r.Hook][code]
	if !known {
		return Result{}, fmt.Errorf("the program at %s returned %d for %x", r.Hook, int32(code), frame)
	}
	return Result{verdict, o.DataOut, code}, nil
}
