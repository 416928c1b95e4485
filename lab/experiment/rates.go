// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/lab/report"
)

// direction is where packets go through a relay or a translator.
type direction string

// The directions.
const (
	toIPv4   direction = "IPv6 to IPv4"
	toIPv6   direction = "IPv4 to IPv6"
	bothWays direction = "both at once"
)

// throughputCase is one direction and size, measured on all ways, one sample a round.
type throughputCase struct {
	direction            direction
	size                 int
	offered, passed, cpu map[way][]float64 // packets per second, and nanoseconds a packet
}

func newThroughputCase(d direction, size int) *throughputCase {
	return &throughputCase{d, size, map[way][]float64{}, map[way][]float64{}, map[way][]float64{}}
}

// label names the case in tables.
func (c *throughputCase) label() string { return fmt.Sprintf("%s, %d bytes", c.direction, c.size) }

// add adds a slice.
func (c *throughputCase) add(w way, r rate) {
	c.offered[w] = append(c.offered[w], r.offered)
	c.passed[w] = append(c.passed[w], r.passed)
	if r.cpu > 0 {
		c.cpu[w] = append(c.cpu[w], r.cpu)
	}
}

// cpuTable begins the table that stands beside one of rates.
func cpuTable(first string, ways []way) report.Table {
	t := report.Table{
		Title:   "nanoseconds of CPU for each packet that arrives, in the same slices: median (lowest to highest slice)",
		Columns: []string{first},
		Notes:   []string{"Of receiving in the kernel, the sink's share in it, and of the program that forwards, on all CPUs; not of the generator. Under more load than a way carries what is lost costs, too."},
	}
	for _, w := range ways {
		t.Columns = append(t.Columns, w.title)
	}
	return t
}

// cpuRow is a row of it.
func (c *throughputCase) cpuRow(label string, ways []way) []string {
	row := []string{label}
	for _, w := range ways {
		row = append(row, spread(c.cpu[w], 0))
	}
	return row
}

// rigLimit is how much of what a bare hop carries a way may carry before the rig is what
// is measured.
const rigLimit = 0.9

// rigNotes name the ways that carry as much as the rig. Few slices do not tell.
func (c *throughputCase) rigNotes(bare way) (notes []string) {
	most := report.Measured(c.passed[bare]...)
	if len(most.Samples) < longRun {
		return nil
	}
	for _, w := range slices.SortedFunc(maps.Keys(c.passed), func(a, b way) int { return strings.Compare(a.name, b.name) }) {
		share := report.Measured(c.passed[w]...).Median() / most.Median()
		if w != bare && share >= rigLimit {
			notes = append(notes, fmt.Sprintf("%s: %s carries %.2f of the bare hop. The rig is the limit, and not the router.", c.label(), w.title, share))
		}
	}
	return notes
}
