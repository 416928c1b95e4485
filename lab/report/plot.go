// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Plot shows values over another quantity, as the figures of papers do.
type Plot struct {
	// X and Y name the axes, with their units: "RTO, s".
	X string `json:"x"`
	Y string `json:"y"`
	// Curves are drawn in their order, the last on top.
	Curves []Curve `json:"curves"`
}

// Curve is one series of a plot.
type Curve struct {
	// Name says what it shows.
	Name string `json:"name"`
	// Role chooses the colour.
	Role Role `json:"role"`
	// Dots leaves the points unconnected.
	Dots bool `json:"dots,omitempty"`
	// Points in the order in which they are connected.
	Points []Point `json:"points"`
}

// Point is a value of a curve: an average, with the lowest and the highest sample. Of a single
// sample all three are the same.
type Point struct {
	X    float64 `json:"x"`
	Y    float64 `json:"y"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Add adds the point of a value: the average of its samples, with their range. Without samples it
// adds nothing.
func (c *Curve) Add(x float64, v Value) {
	if !v.Known() {
		return
	}
	sum := 0.0
	for _, s := range v.Samples {
		sum += s
	}
	c.Points = append(c.Points, Point{x, sum / float64(len(v.Samples)), slices.Min(v.Samples), slices.Max(v.Samples)})
}

// Measures of a plot, in units of the drawing.
const (
	plotHeight = 200
	dotSize    = 2
	markSize   = 5
)

// bounds are the ends of both axes, which begin at 0 unless values are below it.
func (p *Plot) bounds() (x, y [2]float64) {
	for _, c := range p.Curves {
		for _, q := range c.Points {
			x = [2]float64{min(x[0], q.X), max(x[1], q.X)}
			y = [2]float64{min(y[0], q.Low), max(y[1], q.High)}
		}
	}
	return x, y
}

func (p *Plot) svg(title string) string {
	d := drawing{}
	d.heading(title)
	for _, c := range p.Curves {
		d.legend(&c)
	}
	d.y += lineHeight
	d.text(8, d.y, "start", "small", p.Y)
	d.y += 8
	x, y := p.bounds()
	steps, left := ticks(y[0], y[1]), 0.0
	for _, step := range steps {
		left = max(left, textWidth(number(step), smallSize))
	}
	across := axis{from: x[0], to: x[1], start: left + 14, end: canvasWidth - 12}
	up := axis{from: y[0], to: y[1], start: d.y + plotHeight, end: d.y}
	for _, step := range steps {
		d.line("grid", across.start, up.at(step), across.end, up.at(step))
		d.text(across.start-5, up.at(step)+4, "end", "small", number(step))
	}
	d.line("axis", across.start, up.end, across.start, up.start)
	d.line("axis", across.start, up.start, across.end, up.start)
	for _, c := range p.Curves {
		d.curve(&c, across, up)
	}
	d.y += plotHeight + 12
	d.ticks(across, ticks(x[0], x[1]), p.X)
	return d.finish(title, p.describe())
}

// legend names a curve beside its colour.
func (d *drawing) legend(c *Curve) {
	for i, line := range wrap(c.Name, canvasWidth-36, fontSize) {
		d.y += lineHeight
		if i == 0 {
			d.rect(string(c.Role), 8, d.y-8, 14, 6)
		}
		d.text(28, d.y, "start", "", line)
	}
}

// curve draws points and what connects them, as few elements, since there may be thousands.
func (d *drawing) curve(c *Curve, across, up axis) {
	var way, dots, ranges strings.Builder
	move := "M"
	var last string
	for _, q := range c.Points {
		x, y := across.at(q.X), up.at(q.Y)
		at := coordinate(x) + " " + coordinate(y)
		fmt.Fprintf(&way, "%s%s", move, at)
		if move = "L"; at != last {
			fmt.Fprintf(&dots, "M%sh0", at)
		}
		if last = at; q.High > q.Low {
			fmt.Fprintf(&ranges, "M%s %sV%s", coordinate(x), coordinate(up.at(q.Low)), coordinate(up.at(q.High)))
		}
	}
	size := dotSize
	if !c.Dots {
		d.path(c.Role, 1.5, way.String())
		size = markSize
	}
	d.path(c.Role, 1, ranges.String())
	d.path(c.Role, float64(size), dots.String())
}

func (d *drawing) path(role Role, width float64, way string) {
	if way != "" {
		fmt.Fprintf(&d.body, `<path class="%s" stroke-width="%s" d="%s"/>`+"\n", escape(string(role)), coordinate(width), way)
	}
}

// describe says in words what the picture shows.
func (p *Plot) describe() string {
	said := []string{fmt.Sprintf("%s over %s.", p.Y, p.X)}
	for _, c := range p.Curves {
		if len(c.Points) == 0 {
			continue
		}
		from, to := c.Points[0], c.Points[len(c.Points)-1]
		said = append(said, fmt.Sprintf("%s: from %s at %s to %s at %s.", c.Name, short(from.Y), short(from.X), short(to.Y), short(to.X)))
	}
	return strings.Join(said, " ")
}

// table has a row for each point.
func (p *Plot) table(title string) Table {
	t := Table{Title: title, Columns: []string{"curve", p.X, p.Y, "min", "max"}}
	for _, c := range p.Curves {
		for _, q := range c.Points {
			row := []string{c.Name}
			for _, v := range []float64{q.X, q.Y, q.Low, q.High} {
				row = append(row, precise(v))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// precise prints a value of which six digits may be too few, as of a TSN.
func precise(x float64) string {
	if math.Abs(x) >= 1e6 {
		return fmt.Sprintf("%.0f", x)
	}
	return number(x)
}
