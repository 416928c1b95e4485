// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// Report says how the sender's side of the association is, from time to time:
//
//	| header (4) | at, ns since 1970 (8) | next TSN (4) | sent (8) | late (8) | fast (8) | copies (8) | moved (8) |
//	| paths (1) | marks (1) | lost marks (2) | paths | marks |
type Report struct {
	Transfer uint16
	At       time.Time
	NextTSN  uint32
	Sent     uint64 // DATA chunks, for the first time
	Late     uint64 // again, after a timeout
	Fast     uint64 // again, after three reports
	Copies   uint64 // of the early probe
	Moved    uint64 // again, when the early probe was answered
	Paths    []PathReport
	Marks    []Mark
	Lost     uint16 // marks that there was no room for
}

// PathReport is what the sender knows of a path, 23 octets behind its two addresses:
//
//	| local | remote | state (1) | flags (1): 1 current, 2 primary, 4 confirmed, 8 in doubt | errors (1) |
//	| RTO, us (4) | SRTT, us (4) | RTTVAR, us (4) | cwnd (4) | in flight (4) |
//
// An address is its length, 4 or 16, and its octets. Local is the sender's.
type PathReport struct {
	Local, Remote                        netip.Addr
	State                                uint8 // 0 active, 1 potentially failed, 2 inactive
	Current, Primary, Confirmed, InDoubt bool
	Errors                               uint8
	RTO, SRTT, RTTVar                    time.Duration
	CWND, Flight                         uint32
}

// Mark is something that has happened to a path of the sender:
//
//	| kind (1) | local | remote | at, ns since 1970 (8) | TSN (4) | RTO, us (4) |
type Mark struct {
	Kind          MarkKind
	Local, Remote netip.Addr
	At            time.Time
	TSN           uint32        // of data
	RTO           time.Duration // of the path
}

// MarkKind says what has happened to a path.
type MarkKind uint8

// Kinds of marks.
const (
	FirstData MarkKind = iota // data by another path than the last
	FirstNew                  // data that was not sent before, by another path than the last such
	Failing                   // the path is potentially failed
	Down                      // the path is inactive
	Up                        // the path is active again
	NewRTO                    // the path's RTO is another: no mark of a report, but seen in its paths
)

var markWords = [...]string{"first data", "first new", "failing", "down", "up", "new RTO"}

// String returns the kind in words.
func (k MarkKind) String() string { return markWords[k] }

func (*Report) kind() Kind { return KindReport }

// Append implements [Message]. There are at most [MaxReport] paths, and as many marks.
func (m *Report) Append(b []byte) []byte {
	b = begin(b, m, m.Transfer)
	b = binary.BigEndian.AppendUint64(b, uint64(m.At.UnixNano()))
	b = binary.BigEndian.AppendUint32(b, m.NextTSN)
	for _, n := range []uint64{m.Sent, m.Late, m.Fast, m.Copies, m.Moved} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = append(b, byte(len(m.Paths)), byte(len(m.Marks)))
	b = binary.BigEndian.AppendUint16(b, m.Lost)
	for i := range m.Paths {
		b = m.Paths[i].append(b)
	}
	for i := range m.Marks {
		b = m.Marks[i].append(b)
	}
	return b
}

func readReport(transfer uint16, r *reader) *Report {
	m := &Report{Transfer: transfer, At: r.instant(), NextTSN: r.uint32()}
	for _, n := range []*uint64{&m.Sent, &m.Late, &m.Fast, &m.Copies, &m.Moved} {
		*n = r.uint64()
	}
	paths, marks := int(r.uint8()), int(r.uint8())
	if m.Lost = r.uint16(); paths > MaxReport || marks > MaxReport {
		r.fail("a count that cannot be")
	}
	for i := 0; i < paths && r.problem == ""; i++ {
		m.Paths = append(m.Paths, readPath(r))
	}
	for i := 0; i < marks && r.problem == ""; i++ {
		m.Marks = append(m.Marks, readMark(r))
	}
	return m
}

func (p *PathReport) append(b []byte) []byte {
	b = appendAddr(appendAddr(b, p.Local), p.Remote)
	flags := byte(0)
	for i, set := range []bool{p.Current, p.Primary, p.Confirmed, p.InDoubt} {
		if set {
			flags |= 1 << i
		}
	}
	b = append(b, p.State, flags, p.Errors)
	for _, d := range []time.Duration{p.RTO, p.SRTT, p.RTTVar} {
		b = appendMicros(b, d)
	}
	b = binary.BigEndian.AppendUint32(b, p.CWND)
	return binary.BigEndian.AppendUint32(b, p.Flight)
}

func readPath(r *reader) (p PathReport) {
	p.Local, p.Remote, p.State = r.addr(), r.addr(), r.uint8()
	flags := r.uint8()
	for i, set := range []*bool{&p.Current, &p.Primary, &p.Confirmed, &p.InDoubt} {
		*set = flags&(1<<i) != 0
	}
	if p.Errors = r.uint8(); flags > 15 || p.State > 2 {
		r.fail("a state that is not known")
	}
	p.RTO, p.SRTT, p.RTTVar, p.CWND, p.Flight = r.micros(), r.micros(), r.micros(), r.uint32(), r.uint32()
	return p
}

func (m *Mark) append(b []byte) []byte {
	b = appendAddr(appendAddr(append(b, byte(m.Kind)), m.Local), m.Remote)
	b = binary.BigEndian.AppendUint64(b, uint64(m.At.UnixNano()))
	return appendMicros(binary.BigEndian.AppendUint32(b, m.TSN), m.RTO)
}

func readMark(r *reader) (m Mark) {
	if m.Kind = MarkKind(r.uint8()); m.Kind >= NewRTO {
		r.fail("a mark that is not known")
	}
	m.Local, m.Remote, m.At, m.TSN, m.RTO = r.addr(), r.addr(), r.instant(), r.uint32(), r.micros()
	return m
}

func appendAddr(b []byte, a netip.Addr) []byte {
	octets := a.AsSlice()
	return append(append(b, byte(len(octets))), octets...)
}

func (r *reader) addr() netip.Addr {
	n := int(r.uint8())
	if n != 4 && n != 16 {
		r.fail("an address that is none")
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(r.take(n))
	return a
}

// appendMicros appends a time in microseconds, the longest that there is room for at most.
func appendMicros(b []byte, d time.Duration) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(min(max(d/time.Microsecond, 0), 1<<32-1)))
}

func (r *reader) micros() time.Duration { return time.Duration(r.uint32()) * time.Microsecond }

func (r *reader) instant() time.Time { return time.Unix(0, int64(r.uint64())) }
