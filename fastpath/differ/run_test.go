// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/teredo/teredobpf"
)

// Return codes of programs.
const (
	xdpDrop, xdpPass, xdpRedirect = 1, 2, 4
	tcPass, tcDrop, tcRedirect    = 0xffffffff, 2, 7
)

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

// runner runs one program again and again. It must be used in the thread of the
// namespace.
type runner struct {
	place   place
	program *ebpf.Program
	out     []byte
	context skb
}

func (w *world) runner(p place) *runner {
	r := &runner{place: p, program: w.fast.Programs().XDP, out: make([]byte, 4096)}
	if p == atTC {
		r.program = w.fast.Programs().Ingress
		r.context.Ifindex = uint32(ports[0].index)
	}
	return r
}

// run gives a frame to the program. The result's bytes are good until the next.
func (r *runner) run(frame []byte) (result, error) {
	o := ebpf.RunOptions{Data: frame, DataOut: r.out[:cap(r.out)]}
	if r.place == atTC {
		o.Context = r.context
	}
	code, err := r.program.Run(&o)
	if err != nil {
		return result{}, fmt.Errorf("test run at %s of %x: %w", r.place, frame, err)
	}
	res := result{out: o.DataOut, code: code}
	switch {
	case r.place == atXDP && code == xdpRedirect, r.place == atTC && code == tcRedirect:
		res.verdict = fastpath.Forward
	case r.place == atXDP && code == xdpPass, r.place == atTC && code == tcPass:
		res.verdict = fastpath.Punt
	case r.place == atXDP && code == xdpDrop, r.place == atTC && code == tcDrop:
		res.verdict = fastpath.Drop
	default:
		return res, fmt.Errorf("the program at %s returned %d for %x", r.place, int32(code), frame)
	}
	return res, nil
}

// coarse is the clock of programs.
func coarse() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now)
	return time.Duration(now.Nano())
}

// counted returns the reasons that were counted since the last call.
func (w *world) counted() map[teredobpf.Reason]uint64 {
	w.t.Helper()
	list, err := w.fast.Counters()
	if err != nil {
		w.t.Fatal(err)
	}
	news, now := make(map[teredobpf.Reason]uint64), make(map[teredobpf.Reason]uint64)
	for i, c := range list {
		r := teredobpf.Reason(i)
		now[r] = c.Packets
		if n := c.Packets - w.last[r]; n > 0 {
			news[r] = n
		}
	}
	w.last = now
	return news
}
