// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"fmt"

	"github.com/isthmus-net/isthmus/gprs/gtp"
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
