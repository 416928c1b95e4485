// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package measure

import "time"

// Failover is a change of path with what the sender's marks say of it.
type Failover struct {
	Change
	Clocks               // from LastOld on
	RTO    time.Duration // of the old path at the sender, as last reported before; 0 is not known
}

// Failovers puts the changes of a receiver beside the marks of its sender, whose paths are the other way round.
func Failovers(changes []Change, marks []Mark) (list []Failover) {
	x := newIndex(marks)
	for i := range changes {
		f, end := Failover{Change: changes[i]}, time.Unix(1<<40, 0)
		if i+1 < len(changes) {
			end = changes[i+1].FirstNew
		}
		old := f.From.Swapped()
		f.Clocks, f.RTO = x.clocks(old, f.LastOld, end), x.rtoAt(old, f.LastOld)
		list = append(list, f)
	}
	return list
}
