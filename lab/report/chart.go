// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Chart is one picture of a report: exactly one of its kinds is set. It is
// written to a file of its own, EXPERIMENT-NAME.svg, into the page, and as a
// table into the CSV file.
type Chart struct {
	// Name is part of a file's name: lower-case letters, digits and hyphens.
	Name string `json:"name"`
	// Title stands above the picture.
	Title string `json:"title"`
	// Histogram shows how single samples spread.
	Histogram *Histogram `json:"histogram,omitempty"`
	// Bars compares medians.
	Bars *Bars `json:"bars,omitempty"`
	// Plot shows values over another quantity.
	Plot *Plot `json:"plot,omitempty"`
}

// Role says whose samples a series or a bar holds; it chooses the colour.
type Role string

// The roles.
const (
	// Published is what a paper or a standard states.
	Published Role = "published"
	// Reference is what neither competes nor is ours: the kernel's own
	// forwarding.
	Reference Role = "reference"
	// Peer is other software on the same work.
	Peer Role = "peer"
	// Ours is Isthmus; with several variants, the one in user space.
	Ours Role = "ours"
	// OursTC and OursXDP are Isthmus with its fast path.
	OursTC  Role = "ours-tc"
	OursXDP Role = "ours-xdp"
)

// AddChart adds a picture to the report.
func (r *Report) AddChart(c Chart) { r.Charts = append(r.Charts, c) }

// WriteSVG draws the chart as one self-contained file.
func (c *Chart) WriteSVG(w io.Writer) error {
	var text string
	switch {
	case c.Histogram != nil:
		text = c.Histogram.svg(c.Title)
	case c.Bars != nil:
		text = c.Bars.svg(c.Title)
	case c.Plot != nil:
		text = c.Plot.svg(c.Title)
	default:
		return fmt.Errorf("the chart %q has neither bars nor a histogram nor a plot", c.Title)
	}
	_, err := io.WriteString(w, text)
	return err
}

// table holds the numbers of the chart as they go into the CSV file.
func (c *Chart) table() Table {
	switch {
	case c.Histogram != nil:
		return c.Histogram.table(c.Title)
	case c.Bars != nil:
		return c.Bars.table(c.Title)
	case c.Plot != nil:
		return c.Plot.table(c.Title)
	}
	return Table{Title: c.Title}
}

// svg is the picture as text; a chart without a kind has none.
func (c *Chart) svg() string {
	var b strings.Builder
	_ = c.WriteSVG(&b)
	return b.String()
}

// partGroups is how many groups of bars are still one picture on a page.
const partGroups = 6

// parts are the chart cut into up to three pictures of the same scale, if it is
// tall.
func (c *Chart) parts() []Chart {
	if c.Bars == nil || len(c.Bars.Groups) <= partGroups {
		return []Chart{*c}
	}
	_, _, longest := c.Bars.columns()
	each := max(partGroups/2, (len(c.Bars.Groups)+2)/3)
	var parts []Chart
	for groups := range slices.Chunk(c.Bars.Groups, each) {
		b := *c.Bars
		b.Groups, b.Scale = groups, longest
		parts = append(parts, Chart{Name: c.Name, Bars: &b})
	}
	for i := range parts {
		parts[i].Title = fmt.Sprintf("%s (%d of %d)", c.Title, i+1, len(parts))
	}
	return parts
}
