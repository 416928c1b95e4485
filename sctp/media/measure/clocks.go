// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package measure

import (
	"net/netip"
	"time"
)

// Path is a pair of addresses, as the one sees it who has measured.
type Path struct{ Local, Remote netip.Addr }

// String returns both addresses.
func (p Path) String() string { return p.Local.String() + ">" + p.Remote.String() }

// Swapped is the path as the other end sees it.
func (p Path) Swapped() Path { return Path{p.Remote, p.Local} }

// Chunk is a DATA chunk that has left or come.
type Chunk struct {
	At     time.Time
	Path   Path
	TSN    uint32
	Stream uint16
	Octets int
	Again  bool // it was sent, or has come, before
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
	NewRTO                    // the path's RTO is another
)

var markWords = [...]string{"first data", "first new", "failing", "down", "up", "new RTO"}

// String returns the kind in words.
func (k MarkKind) String() string { return markWords[k] }

// Mark is something that has happened to a path of a sender.
type Mark struct {
	Kind MarkKind
	Path Path
	At   time.Time
	TSN  uint32        // of data
	RTO  time.Duration // of the path, where it is known
}

// Marker finds marks among the chunks that leave. The zero value is ready.
type Marker struct {
	last, fresh Path
}

// Add takes a chunk that leaves, and appends its marks.
func (m *Marker) Add(marks []Mark, c *Chunk) []Mark {
	if c.Path != m.last {
		m.last = c.Path
		marks = append(marks, Mark{Kind: FirstData, Path: c.Path, At: c.At, TSN: c.TSN})
	}
	if !c.Again && c.Path != m.fresh {
		m.fresh = c.Path
		marks = append(marks, Mark{Kind: FirstNew, Path: c.Path, At: c.At, TSN: c.TSN})
	}
	return marks
}

// Clocks are the three of a failover, from an instant on; below zero is what has not happened.
type Clocks struct {
	First time.Duration // data of any kind by another path
	New   time.Duration // data that was not sent before by another path
	Down  time.Duration // the path is inactive
}

// Never is the time of what has not happened.
const Never time.Duration = -1

// ClocksOf reads the clocks of a failure of a path out of the sender's marks between two instants.
func ClocksOf(marks []Mark, failed Path, from, to time.Time) Clocks {
	c := Clocks{Never, Never, Never}
	for i := range marks {
		m := &marks[i]
		clock := map[MarkKind]*time.Duration{FirstData: &c.First, FirstNew: &c.New, Down: &c.Down}[m.Kind]
		if clock == nil || *clock != Never || m.At.Before(from) || m.At.After(to) || (m.Path == failed) != (m.Kind == Down) {
			continue
		}
		*clock = m.At.Sub(from)
	}
	return c
}
