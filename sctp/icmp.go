// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// handleError gives the engine an ICMP message (RFC 9260 section 10). That no program has a port of UDP means that
// none speaks SCTP there (RFC 6951 section 5.5); of packets in IP it means nothing.
func (e *Endpoint) handleError(m port.PairError) {
	icmp := assoc.ICMP{Pair: assoc.Pair{Local: m.Local, Remote: m.Remote.Addr()}, MTU: m.MTU, Quoted: m.Quoted}
	switch m.Kind {
	case port.PairTooBig:
		icmp.Kind = assoc.TooBig
	case port.PairNoProtocol:
		icmp.Kind = assoc.NoProtocol
	case port.PairNoPort:
		if !e.network.udp {
			return
		}
		icmp.Kind = assoc.NoProtocol
	default:
		icmp.Kind = assoc.Unreachable
	}
	t := e.begin()
	if !e.closed {
		e.engine.HandleICMP(icmp, t.now, t.Output)
	}
	e.finish(t)
}
