// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "time"

// Transport is a transport protocol that has a BIB, a session table and ports of its
// own (RFC 6146 section 3.1).
type Transport uint8

// The transports. An ICMP query has its identifier where the others have ports.
const (
	TCP Transport = iota
	UDP
	ICMP
	Transports // how many there are
)

// String returns "tcp", "udp" or "icmp".
func (t Transport) String() string {
	if t >= Transports {
		return "unknown"
	}
	return [...]string{"tcp", "udp", "icmp"}[t]
}

// Status is the state of a session.
type Status uint8

// The states of a session. UDP and ICMP know Opened alone; the others are those of TCP
// (RFC 6146 section 3.5.2).
const (
	Free Status = iota
	Opened
	V4Init
	V6Init
	Established
	V4Fin
	V6Fin
	BothFin
	Trans
	Statuses // how many there are
)

// String returns the state's name in snake_case.
func (s Status) String() string {
	if s >= Statuses {
		return "unknown"
	}
	return [...]string{
		"free", "open", "v4_init", "v6_init", "established", "v4_fin", "v6_fin", "both_fin", "trans",
	}[s]
}

// Flags of a session.
type Flags uint8

const (
	// Slow marks a session that the engine alone handles.
	Slow Flags = 1
	// Expected marks a session that was made for a packet that is to come.
	Expected Flags = 2
	// Detoured marks a session that is an FTP control connection of an IPv4 client, which
	// the engine gives to a proxy.
	Detoured Flags = 4
)

// Word is the part of a session that changes as a whole: stamp, state, flags and
// generation.
type Word uint64

const (
	wordStatus     = 32
	wordFlags      = 40
	wordGeneration = 48
)

// Stamp is when the session's lifetime began.
func (w Word) Stamp() uint32 { return uint32(w) }

// Status is the session's state.
func (w Word) Status() Status { return Status(w >> wordStatus) }

// Flags are the session's flags.
func (w Word) Flags() Flags { return Flags(w >> wordFlags) }

// Generation tells one use of a record from the next.
func (w Word) Generation() uint16 { return uint16(w >> wordGeneration) }

// Age returns how many units of a stamp the lifetime has run at stamp now; never less
// than 0, since the clock of another core may be a little ahead.
func (w Word) Age(now uint32) uint32 {
	if age := int32(now - w.Stamp()); age > 0 {
		return uint32(age)
	}
	return 0
}

func wordOf(generation uint16, status Status, flags Flags, stamp uint32) Word {
	return Word(generation)<<wordGeneration | Word(flags)<<wordFlags | Word(status)<<wordStatus | Word(stamp)
}

// StampUnit is the unit of stamps, some 268 ms: a power of two of nanoseconds of
// CLOCK_MONOTONIC, since a fast path shifts faster than it divides.
const StampUnit = time.Duration(1) << stampShift

const stampShift = 28

// StampEvery is how old a stamp gets before [Table.Touch] renews it, in units.
const StampEvery = 4

// Stamp returns the stamp of an instant of CLOCK_MONOTONIC. Stamps wrap round after 36
// years.
func Stamp(monotonic time.Duration) uint32 { return uint32(monotonic >> stampShift) }

// Units returns the least number of units that last as long as d, so that comparing
// [Word.Age] with it is comparing with d.
func Units(d time.Duration) uint32 {
	return uint32(min(max((d+StampUnit-1)>>stampShift, 0), 1<<31-1))
}
