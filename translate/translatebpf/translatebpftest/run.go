// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translatebpftest

import (
	"encoding/binary"
	"testing"

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

// Run gives a frame to a program.
func (h *Host) Run(t testing.TB, at Hook, program *ebpf.Program, frame []byte) (fastpath.Verdict, []byte) {
	t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, 4096)}
	var codes [3]uint32
	if at == InXDP {
		codes = [3]uint32{4, 2, 1}
	} else {
		codes = [3]uint32{7, 0xffffffff, 2}
		o.Context = skb{Ifindex: uint32(h.Ports[0].Index)}
	}
	var code uint32
	h.NS.Do(t, func() (err error) {
		code, err = program.Run(&o)
		return err
	})
	for verdict, c := range codes {
		if code == c {
			return fastpath.Verdict(verdict), o.DataOut
		}
	}
	t.Fatalf("the program at %s returned %d for %x", at, int32(code), frame)
	return 0, nil
}

// Frame puts an Ethernet header for the host in front of a packet.
func (h *Host) Frame(ip []byte) []byte {
	f := append(append([]byte{}, h.Ports[0].MAC...), MAC(200)...)
	kind := uint16(0x86dd)
	if ip[0]>>4 == 4 {
		kind = 0x0800
	}
	return append(binary.BigEndian.AppendUint16(f, kind), ip...)
}
