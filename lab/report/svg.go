// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A drawing is as wide as a telephone, so that its text can be read there; a
// page puts several beside each other where there is room. Measures are in
// units of the drawing, which is a pixel at its natural size.
const (
	canvasWidth = 360
	fontSize    = 12
	smallSize   = 11
	titleSize   = 14
	lineHeight  = 16
)

// palette is the style of every drawing. Its colours keep a contrast of at
// least 3 to 1 to the paper, light or dark, and differ in lightness, so that
// they can be distinguished without colour vision.
const palette = `.isthmus{font:12px system-ui,"DejaVu Sans",sans-serif;--ink:#1b1f24;--soft:#59636e;--rule:#d5dae0;--paper:#fff;` +
	`--published:#8a6d00;--reference:#7d8590;--peer:#b4540a;--ours:#6aa3e0;--ours-tc:#2f74c0;--ours-xdp:#123f7d}` +
	`@media(prefers-color-scheme:dark){.isthmus{--ink:#e6e9ed;--soft:#a3adb8;--rule:#3a424c;--paper:#14181d;` +
	`--published:#d9b64a;--reference:#8b949e;--peer:#e8894a;--ours:#3c79bd;--ours-tc:#6fb0f5;--ours-xdp:#c3e0ff}}` +
	`.isthmus text{fill:var(--ink)}.isthmus .title{font-size:14px;font-weight:600}.isthmus .name{font-weight:600}` +
	`.isthmus .small{font-size:11px;fill:var(--soft)}.isthmus .paper{fill:var(--paper)}.isthmus line{stroke:var(--ink)}` +
	`.isthmus .grid{stroke:var(--rule)}.isthmus .axis{stroke:var(--soft)}.isthmus .mark{stroke:var(--published);stroke-width:3}` +
	`.isthmus path{fill:none!important;stroke-linecap:round;stroke-linejoin:round}.isthmus path.published{stroke:var(--published)}` +
	`.isthmus path.reference{stroke:var(--reference)}.isthmus path.peer{stroke:var(--peer)}.isthmus path.ours{stroke:var(--ours)}` +
	`.isthmus path.ours-tc{stroke:var(--ours-tc)}.isthmus path.ours-xdp{stroke:var(--ours-xdp)}` +
	`.isthmus .must{stroke:var(--ink);stroke-dasharray:3 2}` +
	`.isthmus .published{fill:var(--published)}.isthmus .reference{fill:var(--reference)}.isthmus .peer{fill:var(--peer)}` +
	`.isthmus .ours{fill:var(--ours)}.isthmus .ours-tc{fill:var(--ours-tc)}.isthmus .ours-xdp{fill:var(--ours-xdp)}`

// drawing collects the elements of a picture; y is how far down it has come.
type drawing struct {
	body strings.Builder
	y    float64
}

// coordinate prints a length with as much precision as a screen has.
func coordinate(x float64) string { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) }

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder does not fail
	return b.String()
}

func (d *drawing) text(x, y float64, anchor, class, s string) {
	fmt.Fprintf(&d.body, `<text x="%s" y="%s" text-anchor="%s"`, coordinate(x), coordinate(y), anchor)
	if class != "" {
		fmt.Fprintf(&d.body, ` class="%s"`, class)
	}
	fmt.Fprintf(&d.body, ">%s</text>\n", escape(s))
}

func (d *drawing) rect(class string, x, y, width, height float64) {
	fmt.Fprintf(&d.body, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`+"\n",
		escape(class), coordinate(x), coordinate(y), coordinate(width), coordinate(height))
}

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&d.body, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n",
		class, coordinate(x1), coordinate(y1), coordinate(x2), coordinate(y2))
}

// heading writes the title, in as many lines as it needs.
func (d *drawing) heading(title string) {
	d.y = 6
	for _, line := range wrap(title, canvasWidth-16, titleSize) {
		d.y += lineHeight + 2
		d.text(8, d.y, "start", "title", line)
	}
	d.y += 8
}

// ticks draws the scale below the rows.
func (d *drawing) ticks(p axis, steps []float64, unit string) {
	d.y += 8
	for i, step := range steps {
		x := p.at(step)
		d.line("axis", x, d.y-12, x, d.y-7)
		label, anchor := number(step), "middle"
		if half := textWidth(label, smallSize) / 2; x+half > canvasWidth-4 {
			x, anchor = canvasWidth-4, "end"
		}
		if i == 0 && p.start < 20 {
			anchor = "start"
		}
		d.text(x, d.y+5, anchor, "small", label)
	}
	d.y += 6 + lineHeight
	d.text((p.start+p.end)/2, d.y, "middle", "small", unit)
}

// finish closes the picture. The title and the description are for those who
// do not see it.
func (d *drawing) finish(title, description string) string {
	height := coordinate(d.y + 10)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" class="isthmus" role="img" viewBox="0 0 %d %s" width="%d" height="%s">
<title>%s</title>
<desc>%s</desc>
<style>%s</style>
<rect class="paper" width="100%%" height="100%%"/>
%s</svg>
`, canvasWidth, height, canvasWidth, height, escape(title), escape(description), palette, d.body.String())
}

// axis maps values from .. to onto a length from start to end; what lies
// outside is drawn at the end.
type axis struct{ from, to, start, end float64 }

func (a axis) at(x float64) float64 {
	if a.to <= a.from {
		return a.start
	}
	share := min(max((x-a.from)/(a.to-a.from), 0), 1)
	return a.start + share*(a.end-a.start)
}

// ticks are up to seven round numbers within a range, from its lower end on.
func ticks(from, to float64) []float64 {
	if to <= from {
		return []float64{from}
	}
	step := math.Pow10(int(math.Floor(math.Log10(to - from))))
	for _, factor := range []float64{0.1, 0.2, 0.5, 1, 2, 5} {
		if (to-from)/(step*factor) <= 6 {
			step *= factor
			break
		}
	}
	var steps []float64
	for i := math.Ceil(from/step - 1e-9); i*step <= to+step*1e-9; i++ {
		steps = append(steps, i*step+0) // adding makes a negative zero positive
	}
	return steps
}

// number prints a value without needless digits.
func number(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }

// short prints a value as a person would say it.
func short(x float64) string {
	switch a := math.Abs(x); {
	case a >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
	}
	return strconv.FormatFloat(math.Round(x*100)/100, 'f', -1, 64)
}

// ceiling is the next round number, for the upper end of a scale.
func ceiling(x float64) float64 {
	step := math.Pow10(int(math.Floor(math.Log10(x))))
	return math.Ceil(x/step-1e-9) * step
}

// textWidth estimates how wide text is drawn, with the widths of a broad font,
// since no one knows which one the reader has: it may be too much, hardly too
// little.
func textWidth(s string, size float64) float64 {
	ems := 0.0
	for _, c := range s {
		switch {
		case strings.ContainsRune("iljI|.,:;'!() ", c):
			ems += 0.38
		case strings.ContainsRune("mwMW%@<>=+", c):
			ems += 0.95
		case c >= 'A' && c <= 'Z':
			ems += 0.75
		default:
			ems += 0.64
		}
	}
	return ems * size
}

// wrap breaks text into lines of at most that width, between words; a word
// that is wider by itself keeps its line. Bold text is a tenth wider.
func wrap(text string, width, size float64) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch longer := *last + " " + word; {
		case *last == "":
			*last = word
		case textWidth(longer, size*1.1) <= width:
			*last = longer
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
