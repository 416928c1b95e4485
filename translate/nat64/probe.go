// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// probeTTL is the hop limit of probes, which begin here.
const probeTTL = 64

// probe asks the IPv6 host of a connection that was silent for long whether it still has
// it: a segment without data, sequence and acknowledgment 0, ACK alone set. A host that
// has the connection answers with what it expects, which the peer answers in turn (RFC
// 6146 section 3.5.2.2, ESTABLISHED).
func (e *Engine) probe(c *call, s *state.Session) {
	src, r := e.embed(s.Prefix, netip.AddrFrom4(s.Peer))
	if r != none {
		return
	}
	const size = packet.IPv6HeaderLen + 20
	b := packet.AppendIPv6Header(c.out.Alloc(size), packet.ProtoTCP, probeTTL, 20, src, netip.AddrFrom16(s.Client))
	m := b[len(b):size]
	clear(m)
	binary.BigEndian.PutUint16(m, s.PeerPort)
	binary.BigEndian.PutUint16(m[2:], s.ClientPort)
	m[12], m[13] = 5<<4, flagACK
	b = b[:size]
	ip := packet.IPv6(b)
	binary.BigEndian.PutUint16(m[16:], packet.Checksum(ip.SrcBytes(), ip.DstBytes(), packet.ProtoTCP, m))
	e.stats.Probes++
	c.out.SendIP(b)
}
