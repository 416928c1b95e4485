// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/isthmus-net/isthmus/lab/report"
)

// publishedLatency is a row of a paper's table.
type publishedLatency struct {
	name     string
	averages map[direction][]float64 // microseconds, by latencySizes; 0 is not stated
	column   string                  // of the histogram of 512 bytes; "" if there is none
}

// publishedLatencies are of 10,000 packets, one per second: the WCMC paper's table, and
// Table 1 of AINA 2005. That one does not name its size; its averages are the means of
// the sheet embedded in the document, which is of 512 bytes.
var publishedLatencies = []publishedLatency{
	{"NICI-Teredo, WCMC", map[direction][]float64{toIPv4: {7.56, 7.67, 7.91}, toIPv6: {8.47, 8.71, 8.93}}, ""},
	{"6WIND, WCMC", map[direction][]float64{toIPv4: {13.30, 13.53, 14.00}, toIPv6: {14.34, 14.62, 14.80}}, ""},
	{"Miredo, WCMC", map[direction][]float64{toIPv4: {28.55, 29.45, 30.26}, toIPv6: {27.94, 28.76, 29.69}}, ""},
	{"NICI-Teredo, AINA 2005", map[direction][]float64{toIPv4: {0, 7.82, 0}, toIPv6: {0, 9.03, 0}}, "linux"},
	{"6WIND, AINA 2005", map[direction][]float64{toIPv4: {0, 13.53, 0}, toIPv6: {0, 14.63, 0}}, "freebsd"},
	{"Miredo, AINA 2005", map[direction][]float64{toIPv4: {0, 30.46, 0}, toIPv6: {0, 33.14, 0}}, "miredo"},
}

// publishedPackets is how many packets each published figure is of.
const publishedPackets = 10_000

// average is the published one of a case, 0 if there is none.
func (p publishedLatency) average(d direction, size int) float64 {
	return p.averages[d][slices.Index(latencySizes, size)]
}

// draw adds what is published of a case to its histogram.
func (p publishedLatency) draw(h *report.Histogram, d direction, size int) {
	average := p.average(d, size)
	switch {
	case average == 0:
	case p.column == "":
		h.AddAverage(p.name, report.Published, average)
	default:
		h.AddShares(p.name, report.Published, publishedPackets, average, publishedShares()[p.column+publishedColumn[d]])
	}
}

// publishedColumn ends the names of the columns of a direction.
var publishedColumn = map[direction]string{toIPv4: "_encapsulate", toIPv6: "_decapsulate"}

//go:embed published/aina-2005-histogram.csv
var aina2005 string

// publishedShares are the columns of the sheet: percent of the packets that took so many
// microseconds, from 0 on.
var publishedShares = sync.OnceValue(func() map[string][]float64 {
	reader := csv.NewReader(strings.NewReader(aina2005))
	reader.Comment = '#'
	rows, err := reader.ReadAll()
	if err != nil {
		panic(fmt.Sprintf("the published histogram: %v", err))
	}
	columns := map[string][]float64{}
	for _, row := range rows[1:] {
		for i, name := range rows[0] {
			share, err := strconv.ParseFloat(row[i], 64)
			if err != nil {
				panic(fmt.Sprintf("the published histogram: %v", err))
			}
			columns[name] = append(columns[name], share)
		}
	}
	return columns
})
