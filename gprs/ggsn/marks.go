// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"fmt"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// Marks are the code points (RFC 2474) of the traffic classes of TS 23.107 section 6.3.
type Marks struct {
	Conversational, Streaming, Background uint8
	Interactive                           [3]uint8 // by traffic handling priority
}

// DefaultMarks are EF, AF41, AF31, AF21, AF11 and best effort.
var DefaultMarks = Marks{Conversational: 46, Streaming: 34, Interactive: [3]uint8{26, 18, 10}}

// maxDSCP is the highest code point: they have 6 bits.
const maxDSCP = 63

func (m *Marks) check() error {
	for _, one := range append(m.Interactive[:], m.Conversational, m.Streaming, m.Background) {
		if one > maxDSCP {
			return fmt.Errorf("%d is no DSCP: it is 0 to %d", one, maxDSCP)
		}
	}
	return nil
}

// of returns the mark of a profile of a length. One without a class has it by its delay (TS 23.107
// section 9.1.2.3); a class or priority that is subscribed is not known here, and counts as the lowest.
func (m *Marks) of(p *gtp.Profile, length int) uint8 {
	class, priority := p.Class, p.HandlingPriority
	if length < release99 {
		class, priority = gtp.ClassInteractive, p.Delay
		if p.Delay == 0 || p.Delay > 3 {
			class = gtp.ClassBackground
		}
	}
	switch class {
	case gtp.ClassConversational:
		return m.Conversational
	case gtp.ClassStreaming:
		return m.Streaming
	case gtp.ClassInteractive:
		if priority == 0 {
			priority = 3
		}
		return m.Interactive[priority-1]
	}
	return m.Background
}

// outerClass is the traffic class of the G-PDU around a packet whose context has a mark (RFC 2983
// section 3.1, RFC 6040 section 4.1).
func (a *APN) outerClass(mark uint8, p []byte) uint8 {
	inner, class := packet.TrafficClass(p), mark<<2
	if a.Uniform {
		class = inner &^ packet.ECN
	}
	if !a.ClearECN {
		class |= inner & packet.ECN
	}
	return class
}

// emerge gives a packet of a terminal what its G-PDU has met on the way; false: it must be dropped (RFC
// 6040 section 4.2).
func (e *Engine) emerge(c call, s *session, p []byte) bool {
	switch packet.Emerge(p, c.class) {
	case packet.EmergedLost:
		return false
	case packet.EmergedOddly:
		e.stats.ECNOdd++
	}
	if e.accessPoint(s).Uniform {
		packet.SetDSCP(p, c.class>>2)
	}
	return true
}
