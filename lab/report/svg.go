// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"html/template"
	"io"
	"math"
	"slices"
)

// Measures of the chart, in pixels.
const (
	chartWidth = 760
	barStart   = 90
	barRoom    = 520 // of the longest bar
	barHeight  = 16
	labelRoom  = 24
	rowGap     = 14
)

// bar is one bar with its name and number. whisker is where the range ends.
type bar struct {
	Name, Text         string
	Y, Width           int
	Low, High, Whisker int
	Ours               bool
}

// group is a figure of the chart: its label and the bars below.
type group struct {
	Label string
	Y     int
	Bars  []bar
}

// chart holds one group for each figure that was measured; each has a scale of
// its own, since units differ and the ratio is what counts.
type chart struct {
	Width, Height, BarStart, BarHeight int
	Groups                             []group
}

func (r *Report) chart() chart {
	c := chart{Width: chartWidth, Height: rowGap, BarStart: barStart, BarHeight: barHeight}
	for _, f := range r.Figures {
		if f.Isthmus.Known() {
			c.Groups = append(c.Groups, r.group(f, &c.Height))
		}
	}
	return c
}

// group draws one figure from height y downwards.
func (r *Report) group(f Figure, y *int) group {
	g := group{Label: f.label(), Y: *y + barHeight}
	*y += labelRoom
	longest := 0.0
	values := []struct {
		name string
		Value
	}{{"published", f.Published}, {r.Peer, f.Peer}, {"Isthmus", f.Isthmus}}
	for _, v := range values {
		if v.Known() {
			longest = max(longest, slices.Max(v.Samples))
		}
	}
	scale := func(x float64) int {
		if longest == 0 {
			return 0
		}
		return int(math.Round(x / longest * barRoom))
	}
	for _, v := range values {
		if !v.Known() {
			continue
		}
		low, high := scale(slices.Min(v.Samples)), scale(slices.Max(v.Samples))
		g.Bars = append(g.Bars, bar{
			Name: v.name, Text: f.number(v.Median()), Y: *y, Width: scale(v.Median()),
			Low: barStart + low, High: barStart + high, Whisker: *y + barHeight/2, Ours: v.name == "Isthmus",
		})
		*y += barHeight + 2
	}
	*y += rowGap
	return g
}

// picture is text of black on white, readable where there are no colours.
var picture = template.Must(template.New("chart").Funcs(template.FuncMap{
	"add": func(a, b int) int { return a + b },
}).Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#fff"/>
{{$c := .}}{{range .Groups}}<text x="4" y="{{.Y}}" font-weight="bold">{{.Label}}</text>
{{range .Bars}}<text x="{{add $c.BarStart -6}}" y="{{add .Y 12}}" text-anchor="end">{{.Name}}</text>
<rect x="{{$c.BarStart}}" y="{{.Y}}" width="{{.Width}}" height="{{$c.BarHeight}}" fill="{{if .Ours}}#1f6fb2{{else}}#b9b9b9{{end}}"/>
<path d="M{{.Low}} {{.Whisker}}H{{.High}}" stroke="#000"/>
<text x="{{add .High 6}}" y="{{add .Y 12}}">{{.Text}}</text>
{{end}}{{end}}</svg>
`))

// WriteSVG draws the medians of the figures as bars, with a line from the
// lowest to the highest sample.
func (r *Report) WriteSVG(w io.Writer) error { return picture.Execute(w, r.chart()) }
