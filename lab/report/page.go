// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"html/template"
	"io"
	"strings"
	"time"
)

// pages holds the templates of both kinds of page: that of one report and that
// of many. A page needs nothing but itself, so that it can be sent as one file
// and read without a network.
//
//go:embed page.html
var pages string

//go:embed page.css
var style string

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"style": func() template.CSS { return template.CSS(style) },
	"when":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
	"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
}).Parse(pages))

// WriteHTML writes one self-contained page.
func (r *Report) WriteHTML(w io.Writer) error {
	return templates.ExecuteTemplate(w, "page", newView(r, 2))
}

// view is what a template shows of a report.
type view struct {
	*Report
	// Level is that of the headings inside the report.
	Level int
}

func newView(r *Report, level int) *view { return &view{r, level} }

// card is a picture of the page with what stands below it.
type card struct {
	Picture template.HTML // made by this package, which escapes
	Caption string
	Missed  bool
	Judged  bool
}

// Heading opens a section inside the report.
func (v *view) Heading(text string) template.HTML {
	tag := "h2"
	if v.Level > 2 {
		tag = "h3"
	}
	return template.HTML("<" + tag + ">" + escape(text) + "</" + tag + ">")
}

// Verdict is one word about the whole, also the class of its mark.
func (v *view) Verdict() string {
	switch {
	case len(v.Faults) > 0:
		return "wrong"
	case len(v.Missed()) > 0:
		return "missed"
	}
	return "ok"
}

// VerdictText says it in a few words.
func (v *view) VerdictText() string {
	judged := 0
	for _, f := range v.Figures {
		if f.Judged() {
			judged++
		}
	}
	switch v.Verdict() {
	case "wrong":
		return "WRONG: " + count(len(v.Faults), "fault")
	case "missed":
		return missMark + ": " + count(len(v.Missed()), "figure") + " of " + number(float64(judged))
	}
	if judged == 0 {
		return "ok"
	}
	return "ok: " + count(judged, "figure") + " within bounds"
}

func count(n int, what string) string {
	text := number(float64(n)) + " " + what
	if n != 1 {
		text += "s"
	}
	return text
}

// Cards are the charts, then a small picture for each figure.
func (v *view) Cards() []card {
	var cards []card
	for i := range v.Charts {
		cards = append(cards, card{Picture: template.HTML(v.Charts[i].svg())})
	}
	summary, ok := v.summary()
	if !ok {
		return cards
	}
	for _, g := range summary.Bars.Groups {
		title := g.Label
		g.Label = ""
		one := Chart{Title: title, Bars: &Bars{Groups: []Group{g}}}
		c := card{Picture: template.HTML(one.svg())}
		for _, f := range v.Figures {
			if f.label() == title && f.Judged() {
				c.Judged, c.Missed, c.Caption = true, f.Missed(), "must be "+f.mustText()
			}
		}
		cards = append(cards, c)
	}
	return cards
}

// cell is one cell of a table with the mark behind it, "ok", "MISS" or none.
type cell struct{ Text, Mark, Class string }

// sheet is a table as the page shows it.
type sheet struct {
	Title   string
	Columns []string
	Rows    [][]cell
	Notes   []string
}

// Sheets are the tables, that of the figures first: it is what a reader looks
// for.
func (v *view) Sheets() []sheet {
	var sheets []sheet
	if len(v.Figures) > 0 {
		grid := v.grid()
		grid.Title, grid.Notes = "Figures: "+v.Title, nil
		s := newSheet(grid)
		for i, f := range v.Figures {
			if last := &s.Rows[i][len(s.Rows[i])-1]; f.Judged() && !f.Missed() {
				last.Mark, last.Class = "ok", "ok"
			}
		}
		sheets = append(sheets, s)
	}
	for _, t := range v.Tables {
		sheets = append(sheets, newSheet(t))
	}
	return sheets
}

func newSheet(t Table) sheet {
	s := sheet{Title: t.Title, Columns: t.Columns, Notes: t.Notes}
	for _, row := range t.Rows {
		var cells []cell
		for _, text := range row {
			c := cell{Text: text}
			if before, ok := strings.CutSuffix(text, missMark); ok {
				c = cell{strings.TrimSpace(before), missMark, "missed"}
			}
			cells = append(cells, c)
		}
		s.Rows = append(s.Rows, cells)
	}
	return s
}
