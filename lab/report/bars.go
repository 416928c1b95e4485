// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bars compares medians: groups of horizontal bars, each with a line from its
// lowest to its highest sample.
type Bars struct {
	// Unit of all values, "" if the groups name theirs.
	Unit string `json:"unit,omitempty"`
	// Decimals are the digits printed behind the point.
	Decimals int `json:"decimals,omitempty"`
	// Apart gives each group a scale of its own; otherwise one serves all.
	Apart bool `json:"apart,omitempty"`
	// Groups are drawn from top to bottom.
	Groups []Group `json:"groups"`
	// Scale is the highest value of the scale; the values decide if they are higher.
	Scale float64 `json:"scale,omitempty"`
}

// Group is a set of bars with a name.
type Group struct {
	Label string `json:"label"`
	Bars  []Bar  `json:"bars"`
	// Decimals replaces that of the chart if it is not nil.
	Decimals *int `json:"decimals,omitempty"`
	// Must is drawn as a line across the group; nil if there is none.
	Must *Must `json:"must,omitempty"`
}

// Bar is one bar; a value that is not known is left out.
type Bar struct {
	Name  string `json:"name"`
	Role  Role   `json:"role"`
	Value Value  `json:"value"`
}

// known lists the bars of which there are samples.
func (g *Group) known() []Bar {
	return slices.DeleteFunc(slices.Clone(g.Bars), func(b Bar) bool { return !b.Value.Known() })
}

// longest is the highest sample or bound of the group.
func (g *Group) longest() float64 {
	longest := 0.0
	for _, b := range g.known() {
		longest = max(longest, slices.Max(b.Value.Samples))
	}
	if g.Must != nil {
		longest = max(longest, g.Must.Bound, g.Must.Most)
	}
	return longest
}

// print writes a number of the group.
func (b *Bars) print(g *Group, x float64) string {
	decimals := b.Decimals
	if g.Decimals != nil {
		decimals = *g.Decimals
	}
	return strconv.FormatFloat(x, 'f', decimals, 64)
}

// Measures of bars, in units of the drawing.
const (
	barHeight = 15
	barGap    = 4
	groupGap  = 12
)

func (b *Bars) svg(title string) string {
	d := drawing{}
	d.heading(title)
	names, numbers, longest := b.columns()
	for i := range b.Groups {
		g := &b.Groups[i]
		to := longest
		if b.Apart {
			to = g.longest()
		}
		d.group(b, g, axis{to: to, start: names + 8, end: canvasWidth - 8 - numbers - 8})
	}
	if b.Unit != "" {
		d.y += lineHeight
		d.text(canvasWidth-8, d.y, "end", "small", b.Unit)
	}
	return d.finish(title, b.describe())
}

// columns are the widths of the longest name and number, and the highest
// value of all groups.
func (b *Bars) columns() (names, numbers, longest float64) {
	for i := range b.Groups {
		g := &b.Groups[i]
		longest = max(longest, g.longest())
		for _, bar := range g.known() {
			names = max(names, textWidth(bar.Name, fontSize))
			numbers = max(numbers, textWidth(b.print(g, bar.Value.Median()), fontSize))
		}
	}
	return names + 8, numbers, max(longest, b.Scale)
}

// group draws one group from the present height downwards.
func (d *drawing) group(b *Bars, g *Group, p axis) {
	if g.Label != "" {
		for _, line := range wrap(g.Label, canvasWidth-16, fontSize) {
			d.y += lineHeight
			d.text(8, d.y, "start", "name", line)
		}
		d.y += 6
	}
	above := d.y
	for _, bar := range g.known() {
		v := bar.Value
		low, high := p.at(slices.Min(v.Samples)), p.at(slices.Max(v.Samples))
		middle := d.y + barHeight/2.0
		d.text(p.start-6, d.y+barHeight-3, "end", "", bar.Name)
		d.rect(string(bar.Role), p.start, d.y, max(p.at(v.Median())-p.start, 1), barHeight)
		if high > low {
			d.line("whisker", low, middle, high, middle)
			d.line("whisker", low, middle-3, low, middle+3)
			d.line("whisker", high, middle-3, high, middle+3)
		}
		d.text(canvasWidth-8, d.y+barHeight-3, "end", "", b.print(g, v.Median()))
		d.y += barHeight + barGap
	}
	if g.Must != nil {
		d.line("must", p.at(g.Must.Bound), above-3, p.at(g.Must.Bound), d.y-1)
		if g.Must.Most != 0 {
			d.line("must", p.at(g.Must.Most), above-3, p.at(g.Must.Most), d.y-1)
		}
	}
	d.line("axis", p.start, above-3, p.start, d.y-1)
	d.y += groupGap
}

// describe says in words what the picture shows.
func (b *Bars) describe() string {
	var said []string
	for i := range b.Groups {
		g := &b.Groups[i]
		var numbers []string
		for _, bar := range g.known() {
			numbers = append(numbers, strings.TrimSpace(bar.Name+" "+b.print(g, bar.Value.Median())))
		}
		said = append(said, g.Label+": "+strings.Join(numbers, ", ")+".")
	}
	if b.Unit != "" {
		said = append(said, "In "+b.Unit+".")
	}
	return strings.Join(said, " ")
}

// table has a row for each bar.
func (b *Bars) table(title string) Table {
	t := Table{Title: title, Columns: []string{"group", "bar", "median", "min", "max", "samples"}}
	if b.Unit != "" {
		t.Title += ", " + b.Unit
	}
	for _, g := range b.Groups {
		for _, bar := range g.Bars {
			row := []string{g.Label, bar.Name, bar.Value.Absent, "", "", "0"}
			if v := bar.Value; v.Known() {
				row = []string{g.Label, bar.Name, number(v.Median()), number(slices.Min(v.Samples)), number(slices.Max(v.Samples)), fmt.Sprint(len(v.Samples))}
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}
