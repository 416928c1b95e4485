// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// Side is where a packet comes from.
type Side uint8

// The sides.
const (
	FromIPv6 Side = iota
	FromIPv4
)

// TCP flags (RFC 9293 section 3.1).
const (
	flagFIN = 1
	flagSYN = 2
	flagRST = 4
	flagACK = 16
)

// Change is what a TCP segment does to its session.
type Change struct {
	Next    state.Status
	Refresh bool // begin the lifetime of Next again
}

// Step is the state table of RFC 6146 section 3.5.2.2 for the segments of a session that
// is there: each of them is translated and sent on. flags is the octet of the TCP
// header. A SYN counts first, then RST, then FIN: no sound segment has two of them. Where
// the IPv4 side may open no connections, that from both FINs to V4 INIT is not taken.
func Step(now state.Status, from Side, flags uint8) Change {
	switch {
	case flags&flagSYN != 0:
		return stepSYN(now, from, flags)
	case flags&flagRST != 0:
		return stepRST(now)
	case flags&flagFIN != 0:
		return stepFIN(now, from)
	}
	return stepOther(now)
}

// stepSYN: one SYN of each side makes a connection. After both FINs another one may begin
// on the same ports, which would lose its session in the middle if this one went on ending
// (docs/decisions/0011-reopened-connections.md).
func stepSYN(now state.Status, from Side, flags uint8) Change {
	switch {
	case now == state.BothFin && opens(flags) && from == FromIPv6:
		return Change{state.V6Init, true}
	case now == state.BothFin && opens(flags):
		return Change{state.V4Init, true}
	case now == state.V4Init && from == FromIPv6, now == state.V6Init && from == FromIPv4:
		return Change{state.Established, true}
	case now == state.V6Init: // the IPv6 host repeats it
		return Change{state.V6Init, true}
	}
	return stepOther(now)
}

// stepRST: the peer may not accept it, so an open connection is only put on probation. So is
// one that has seen a FIN, where the letter of RFC 6146 would keep it for two hours more: it is
// mostly over, and RFC 7857 section 2.2 wants 4 minutes after any RST. Nowhere else does it
// count for more than any other segment, and on probation for less.
func stepRST(now state.Status) Change {
	switch now {
	case state.Established, state.V4Fin, state.V6Fin:
		return Change{state.Trans, true}
	case state.Trans:
		return Change{state.Trans, false}
	}
	return stepOther(now)
}

// stepFIN: data flows until both sides have sent one.
func stepFIN(now state.Status, from Side) Change {
	switch {
	case now == state.Established && from == FromIPv4:
		return Change{state.V4Fin, false}
	case now == state.Established:
		return Change{state.V6Fin, false}
	case now == state.V4Fin && from == FromIPv6, now == state.V6Fin && from == FromIPv4:
		return Change{state.BothFin, true}
	}
	return stepOther(now)
}

// stepOther: whatever flows in an open connection keeps it open.
func stepOther(now state.Status) Change {
	switch now {
	case state.Established, state.V4Fin, state.V6Fin:
		return Change{now, true}
	case state.Trans:
		return Change{state.Established, true}
	}
	return Change{now, false}
}

// opens reports whether a segment opens a connection.
func opens(flags uint8) bool { return flags&(flagSYN|flagRST|flagFIN) == flagSYN }
