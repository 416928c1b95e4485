// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package measure

import (
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sctp/media/transfer"
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

// Mark is something that has happened to a path of a sender.
type Mark struct {
	Kind transfer.MarkKind
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
		marks = append(marks, Mark{Kind: transfer.FirstData, Path: c.Path, At: c.At, TSN: c.TSN})
	}
	if !c.Again && c.Path != m.fresh {
		m.fresh = c.Path
		marks = append(marks, Mark{Kind: transfer.FirstNew, Path: c.Path, At: c.At, TSN: c.TSN})
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

// index has marks in the order of their times, so that those of one among thousands of failovers are found soon.
type index struct {
	data, fresh runs             // FirstData and FirstNew
	down, rto   map[Path][]*Mark // Down, and those that have an RTO
}

func newIndex(marks []Mark) *index {
	sorted := make([]*Mark, len(marks))
	for i := range marks {
		sorted[i] = &marks[i]
	}
	slices.SortStableFunc(sorted, func(a, b *Mark) int { return a.At.Compare(b.At) })
	x := &index{down: map[Path][]*Mark{}, rto: map[Path][]*Mark{}}
	for _, m := range sorted {
		switch m.Kind {
		case transfer.FirstData:
			x.data.add(m)
		case transfer.FirstNew:
			x.fresh.add(m)
		case transfer.Down:
			x.down[m.Path] = append(x.down[m.Path], m)
		}
		if m.RTO > 0 {
			x.rto[m.Path] = append(x.rto[m.Path], m)
		}
	}
	return x
}

// clocks reads the clocks of a failure of a path between two instants.
func (x *index) clocks(failed Path, from, to time.Time) Clocks {
	since := func(list []*Mark) time.Duration {
		if len(list) == 0 || list[0].At.After(to) {
			return Never
		}
		return list[0].At.Sub(from)
	}
	return Clocks{since(x.data.behind(failed, from)), since(x.fresh.behind(failed, from)), since(behind(x.down[failed], from))}
}

// rtoAt is the RTO of a path that was known at an instant; 0 is none.
func (x *index) rtoAt(p Path, at time.Time) time.Duration {
	list := x.rto[p]
	if n := len(list) - len(behind(list, at.Add(1))); n > 0 {
		return list[n-1].RTO
	}
	return 0
}

// behind returns the marks from an instant on.
func behind(list []*Mark, from time.Time) []*Mark {
	i, _ := slices.BinarySearchFunc(list, from, func(m *Mark, t time.Time) int { return m.At.Compare(t) })
	return list[i:]
}

// runs are marks in the order of their times.
type runs struct {
	marks  []*Mark
	starts []int // places of those that are of another path than the one before
}

func (r *runs) add(m *Mark) {
	if n := len(r.marks); n == 0 || r.marks[n-1].Path != m.Path {
		r.starts = append(r.starts, n)
	}
	r.marks = append(r.marks, m)
}

// behind returns the marks from the first one on that is not before an instant, and not of a path.
func (r *runs) behind(p Path, from time.Time) []*Mark {
	list := behind(r.marks, from)
	if len(list) == 0 || list[0].Path != p {
		return list
	}
	next, _ := slices.BinarySearch(r.starts, len(r.marks)-len(list)+1)
	if next == len(r.starts) {
		return nil
	}
	return r.marks[r.starts[next]:]
}
