// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import "github.com/isthmus-net/isthmus/sctp/chunk"

// Passage is a DATA chunk that was sent or has come, for who measures. The output has passages of associations that
// are observed, and of no others.
type Passage struct {
	Association *Association
	Pair
	TSN    uint32
	Stream uint16
	Octets int // of user data
	How    PassageKind
}

// PassageKind says why a chunk was sent, or how it has come.
type PassageKind uint8

// Kinds of passages. Those of chunks that were sent are counted by the counters of the same meaning.
const (
	SentNew    PassageKind = iota // for the first time
	SentLate                      // again, after T3
	SentFast                      // again, after three reports that it is missing
	SentCopy                      // a copy by another path, since one is silent (EarlyProbe)
	SentMoved                     // again, when the other path has answered (EarlyProbe)
	Arrived                       // for the first time
	Duplicated                    // once more
)

// Observe has the output tell of each DATA chunk of the association from now on, or no more.
func (a *Association) Observe(on bool) { a.observed = on }

// pass tells of a chunk that was sent, if someone wants to know.
func (a *Association) pass(p *Path, c *sent, tsn uint32, how PassageKind, out *Output) {
	if a.observed {
		out.Passages = append(out.Passages, Passage{a, p.Pair, tsn, c.message.Stream, c.size, how})
	}
}

// passed tells of a chunk that has come, if someone wants to know.
func (a *Association) passed(in *arrival, d *chunk.Data, how PassageKind, out *Output) {
	if a.observed {
		out.Passages = append(out.Passages, Passage{a, in.Pair, d.TSN, d.Stream, len(d.User), how})
	}
}
