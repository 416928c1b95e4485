// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import "time"

// parted are our tags of associations that have just ended with a SHUTDOWN COMPLETE of ours. What the peer sent before it
// had that, by another path, is out of the blue, and an ABORT in answer might come there first: the peer would hear that an
// association failed which has ended as it should.
type parted struct{ queue ring[partedTag] }

type partedTag struct {
	tag uint32
	at  time.Time
}

// For how long a packet may be late, and how many associations are kept so long.
const (
	partedTime = time.Second
	maxParted  = 64
)

func (p *parted) add(tag uint32, now time.Time) {
	if p.queue.length == maxParted {
		p.queue.drop()
	}
	*p.queue.push() = partedTag{tag, now}
}

// has reports whether the association of a tag has just ended.
func (p *parted) has(tag uint32, now time.Time) bool {
	for p.queue.length > 0 && !p.queue.at(0).at.Add(partedTime).After(now) {
		p.queue.drop()
	}
	for i := range p.queue.length {
		if p.queue.at(i).tag == tag {
			return true
		}
	}
	return false
}
