// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Histogram shows how the samples of several series spread over bins of equal
// width, in percent of each series, one row for each series on a common axis.
type Histogram struct {
	// Unit of the samples, "µs" for example.
	Unit string `json:"unit"`
	// Bin is the width of a bin in that unit.
	Bin float64 `json:"bin"`
	// Series are drawn from top to bottom.
	Series []Series `json:"series"`
}

// Series is one row of a histogram.
type Series struct {
	// Name says who or what was measured.
	Name string `json:"name"`
	// Role chooses the colour.
	Role Role `json:"role"`
	// Samples is how many there were; 0 if only an average is known.
	Samples int `json:"samples,omitempty"`
	// First numbers the first bin: it holds values from First times the width
	// of a bin up to the next.
	First int `json:"first,omitempty"`
	// Shares are percent of the samples in each bin from First on.
	Shares []float64 `json:"shares,omitempty"`
	// Average is the arithmetic mean.
	Average float64 `json:"average"`
	// Median, P99 and P999 are the values that 50, 99 and 99.9 % of the
	// samples do not pass; 0 if that is not known.
	Median float64 `json:"median,omitempty"`
	P99    float64 `json:"p99,omitempty"`
	P999   float64 `json:"p99_9,omitempty"`
}

// Add adds a row made from samples in the histogram's unit. Without samples it
// adds nothing.
func (h *Histogram) Add(name string, role Role, samples []float64) {
	if len(samples) == 0 {
		return
	}
	sorted := slices.Sorted(slices.Values(samples))
	s := Series{
		Name: name, Role: role, Samples: len(sorted), First: h.bin(sorted[0]),
		Median: Measured(sorted...).Median(), P99: quantile(sorted, 0.99), P999: quantile(sorted, 0.999),
	}
	s.Shares = make([]float64, h.bin(sorted[len(sorted)-1])-s.First+1)
	each := 100 / float64(len(sorted))
	for _, x := range sorted {
		s.Shares[h.bin(x)-s.First] += each
		s.Average += x / float64(len(sorted))
	}
	h.Series = append(h.Series, s)
}

// AddAverage adds a row of which nothing but its average is known, as papers
// state it: a line instead of bars.
func (h *Histogram) AddAverage(name string, role Role, average float64) {
	h.Series = append(h.Series, Series{Name: name, Role: role, Average: average})
}

// AddShares adds a row of which only the shares of the bins are known, in percent of so
// many samples, from the bin at 0 on. They may leave samples out that lie beyond the
// last one.
func (h *Histogram) AddShares(name string, role Role, samples int, average float64, shares []float64) {
	s := Series{Name: name, Role: role, Samples: samples, Average: average}
	for s.First < len(shares)-1 && shares[s.First] == 0 {
		s.First++
	}
	s.Shares = shares[s.First:]
	s.Median, s.P99, s.P999 = h.passed(s, 50), h.passed(s, 99), h.passed(s, 99.9)
	h.Series = append(h.Series, s)
}

// passed is the lower edge of the bin that so many percent do not pass, 0 if the bins
// hold fewer.
func (h *Histogram) passed(s Series, percent float64) float64 {
	const rounding = 1e-9
	sum := 0.0
	for i, share := range s.Shares {
		if sum += share; sum > percent-rounding {
			return float64(s.First+i) * h.Bin
		}
	}
	return 0
}

// bin numbers the bin of a value.
func (h *Histogram) bin(x float64) int { return int(math.Floor(x / h.Bin)) }

// quantile is the smallest sample that at least the share q of all do not pass.
func quantile(sorted []float64, q float64) float64 {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// Measures of a histogram, in units of the drawing.
const (
	rowHeight     = 46 // of the tallest bin
	averageHeight = 12 // of the line of an average
	rowLabel      = 20
	mostBins      = 120 // on the axis; narrower bars cannot be distinguished
	leastBins     = 10
)

// span is the range of bins that the axis shows: to where 99 % of each series
// lie. What lies beyond is said in words.
func (h *Histogram) span() (first, end int) {
	first, end = math.MaxInt, math.MinInt
	for _, s := range h.Series {
		low, high := s.First, h.bin(s.P99)
		switch {
		case s.Samples == 0:
			low, high = h.bin(s.Average), h.bin(s.Average)
		case s.P99 == 0: // beyond the last bin
			high = s.First + len(s.Shares) - 1
		}
		first, end = min(first, low), max(end, high+2)
	}
	if first > end { // no series
		return 0, leastBins
	}
	if first < mostBins/4 {
		first = 0
	}
	return first, min(max(end, first+leastBins), first+mostBins)
}

// tallest is the largest share of a bin on the axis.
func (h *Histogram) tallest() float64 {
	tallest := 0.0
	for _, s := range h.Series {
		for _, share := range s.Shares {
			tallest = max(tallest, share)
		}
	}
	if tallest == 0 {
		return 1
	}
	return tallest
}

func (h *Histogram) svg(title string) string {
	first, end := h.span()
	steps := ticks(float64(first)*h.Bin, float64(end)*h.Bin)
	top := ceiling(h.tallest())
	left := textWidth(number(top)+"%", smallSize) + 10
	p := axis{from: float64(first) * h.Bin, to: float64(end) * h.Bin, start: left, end: canvasWidth - 8}
	d := drawing{}
	d.heading(title)
	for _, s := range h.Series {
		d.label(left, s.Name, h.words(s, end))
		d.row(h, s, p, top)
	}
	d.ticks(p, steps, h.Unit)
	return d.finish(title, h.describe())
}

// label writes the name of a row and its figures, beside each other if there is
// room.
func (d *drawing) label(left float64, name, words string) {
	d.y += rowLabel
	d.text(left, d.y-6, "start", "name", name)
	if left+textWidth(name, fontSize*1.1)+textWidth(words, smallSize) > canvasWidth-16 {
		d.y += lineHeight - 2
	}
	d.text(canvasWidth-8, d.y-6, "end", "small", words)
}

// row draws the bars of one series, or the line of an average.
func (d *drawing) row(h *Histogram, s Series, p axis, top float64) {
	floor := d.y + rowHeight
	if s.Samples == 0 {
		floor = d.y + averageHeight
		d.line("mark", p.at(s.Average), d.y, p.at(s.Average), floor)
		d.line("axis", p.start, floor, p.end, floor)
		d.y = floor + 4
		return
	}
	d.line("grid", p.start, d.y, p.end, d.y)
	d.text(p.start-4, d.y+4, "end", "small", number(top)+"%")
	for i, share := range s.Shares {
		from := p.at(float64(s.First+i) * h.Bin)
		to := p.at(float64(s.First+i+1) * h.Bin)
		if share > 0 && from >= p.start && to <= p.end+0.01 {
			height := share / top * rowHeight
			d.rect(string(s.Role), from, floor-height, max(to-from-0.4, 0.6), height)
		}
	}
	d.line("axis", p.start, floor, p.end, floor)
	d.y = floor + 4
}

// words are the figures of one series, for its row.
func (h *Histogram) words(s Series, end int) string {
	if s.Samples == 0 {
		return fmt.Sprintf("average %s", short(s.Average))
	}
	text := fmt.Sprintf("median %s, p99 %s", short(s.Median), s.p99())
	if beyond := s.beyond(end); beyond >= 0.05 {
		text += fmt.Sprintf(", %.1f%% beyond", beyond)
	}
	return text
}

// p99 is the 99th percentile in words.
func (s *Series) p99() string {
	if s.P99 == 0 {
		return "not known"
	}
	return short(s.P99)
}

// beyond is the percentage of samples from that bin on.
func (s *Series) beyond(end int) float64 {
	left := 100.0
	for i, share := range s.Shares {
		if s.First+i < end {
			left -= share
		}
	}
	return left
}

// describe says in words what the picture shows.
func (h *Histogram) describe() string {
	said := []string{fmt.Sprintf("Percentage of samples in bins of %s %s.", short(h.Bin), h.Unit)}
	for _, s := range h.Series {
		if s.Samples == 0 {
			said = append(said, fmt.Sprintf("%s: average %s %s.", s.Name, short(s.Average), h.Unit))
			continue
		}
		said = append(said, fmt.Sprintf("%s: median %s, 99th percentile %s %s.", s.Name, short(s.Median), s.p99(), h.Unit))
	}
	return strings.Join(said, " ")
}

// table has a row for each bin that some series reaches.
func (h *Histogram) table(title string) Table {
	t := Table{Title: title + ", percent of samples in each bin", Columns: []string{"from, " + h.Unit}}
	first, last := math.MaxInt, math.MinInt
	for _, s := range h.Series {
		t.Columns = append(t.Columns, s.Name)
		if len(s.Shares) > 0 {
			first, last = min(first, s.First), max(last, s.First+len(s.Shares)-1)
		}
	}
	for bin := first; bin <= last; bin++ {
		row, filled := []string{short(float64(bin) * h.Bin)}, false
		for _, s := range h.Series {
			share := 0.0
			if i := bin - s.First; i >= 0 && i < len(s.Shares) {
				share = s.Shares[i]
			}
			filled = filled || share > 0
			row = append(row, strconv.FormatFloat(share, 'f', -1, 32))
		}
		if filled {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}
