// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf_test

import (
	"encoding/binary"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
	"github.com/isthmus-net/isthmus/translate/translatebpf/translatebpftest"
)

// transports are the usual flows, one of each protocol.
var transports = []state.Transport{state.TCP, state.UDP, state.ICMP}

func usual(transport state.Transport) flow {
	return flow{transport: transport, client: translatebpftest.ClientAddr, pool: translatebpftest.PoolAddr, peer: translatebpftest.ServerAddr, poolPort: translatebpftest.PoolPort}
}

func protocolOf(t state.Transport, six bool) byte {
	switch {
	case t == state.TCP:
		return 6
	case t == state.UDP:
		return 17
	case six:
		return 58
	}
	return 1
}

// packet6 makes the packet of a flow's client with a message of n bytes.
func (w *natWorld) packet6(f flow, n int) []byte {
	proto := protocolOf(f.transport, true)
	ip := packet.AppendIPv6Header(nil, proto, 64, n, f.client, w.peer6(f))
	return translatebpftest.Seal(append(ip, translatebpftest.Message(proto, n, translatebpftest.ClientPort, translatebpftest.ServerPort)...))
}

// packet4 makes the packet of a flow's server, with DF.
func (w *natWorld) packet4(f flow, n int) []byte {
	proto := protocolOf(f.transport, false)
	ip := []byte{0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, proto, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(20+n))
	ip = append(append(ip, f.peer.AsSlice()...), f.pool.AsSlice()...)
	m := translatebpftest.Message(proto, n, translatebpftest.ServerPort, f.poolPort)
	if f.transport == state.ICMP {
		binary.BigEndian.PutUint16(m[4:], f.poolPort)
	}
	return translatebpftest.Seal4(translatebpftest.Seal(append(ip, m...)))
}
