// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"testing"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// TestAnswersFitTheLeastPath has requests fail, and behind them a large one that no one knows, by a path that carries no more
// than the least of IPv4: the answer is sent, with its AUTH in one packet (RFC 5061 section 5.2, E7).
func TestAnswersFitTheLeastPath(t *testing.T) {
	for failures := range 16 {
		s := authentic(t, both, 1, 1, func(*Parameters) {})
		p := s.a.paths[0]
		p.port = 9899
		p.mtu = leastIPv4 + headerIPv6 - headerIPv4
		c := chunk.ASCONF{Serial: s.init.TSN, Address: s.remote[0]}
		for i := range failures {
			c.Requests = chunk.AppendRequest(c.Requests, chunk.Request{Type: chunk.ParamSetPrimary, Correlation: uint32(i), Address: addresses(third)[0]})
		}
		c.Requests = chunk.AppendParameter(c.Requests, 0xc0ff, make([]byte, 500))
		s.peerByUDP(s.signed(chunk.HMACSHA256, c.Append(nil)))
		if len(s.packets) != 1 || s.packets[0].Fragment || len(s.packets[0].Octets) > p.room() {
			t.Errorf("%d failures: %d packets %+v", failures, len(s.packets), s.packets)
		}
	}
}

// peerByUDP has the engine handle a packet of the peer's in UDP.
func (s *script) peerByUDP(chunks []byte) {
	b := chunk.Begin(nil, chunk.Header{Source: scriptPeerPort, Destination: scriptPort, Tag: s.a.tag})
	b = append(b, chunks...)
	chunk.Seal(b)
	s.e.Handle(Packet{Pair: s.pair, Port: 9899, Octets: b}, s.now, &s.out)
	s.collect()
}
