// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"html/template"
	"io"
	"sync"
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

var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"style": func() template.CSS { return template.CSS(style) },
		"when":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
		"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	}).Parse(pages))
})

// WriteHTML writes one self-contained page.
func (r *Report) WriteHTML(w io.Writer) error {
	return templates().ExecuteTemplate(w, "page", newView(r, 2))
}

// view is what a template shows of a report.
type view struct {
	*Report
	// Level is that of the headings inside the report.
	Level int
}

func newView(r *Report, level int) *view { return &view{r, level} }

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

// Picture is a chart to stand inside the page.
func (v *view) Picture(c Chart) template.HTML {
	return template.HTML(c.svg()) // made by this package, which escapes
}

// Pictures are the charts, tall ones in parts that stand beside each other.
func (v *view) Pictures() []template.HTML {
	var pictures []template.HTML
	for _, c := range v.Charts {
		for _, part := range c.parts() {
			pictures = append(pictures, v.Picture(part))
		}
	}
	return pictures
}

// card is the small picture of a figure with its verdict, if it has one.
type card struct {
	Picture template.HTML
	Must    *cell
}

// FigureCards are a picture for each figure that has something to stand beside;
// of others the table says it all.
func (v *view) FigureCards() []card {
	var cards []card
	for _, f := range v.Figures {
		g := v.group(f)
		if !f.Isthmus.Known() || len(g.known()) < 2 || g.longest() == 0 {
			continue
		}
		g.Label = ""
		c := card{Picture: v.Picture(Chart{Title: f.label(), Bars: &Bars{Groups: []Group{g}}})}
		if f.Judged() {
			must := f.mustCell()
			c.Must = &must
		}
		cards = append(cards, c)
	}
	return cards
}

// cell is one cell of a table with the mark behind it, "ok", "MISS" or none.
type cell struct{ Text, Mark, Class string }

// mustCell is the must of a figure with its verdict.
func (f Figure) mustCell() cell {
	switch {
	case !f.Judged():
		return cell{Text: f.mustText()}
	case f.Missed():
		return cell{f.mustText(), missMark, "missed"}
	}
	return cell{f.mustText(), "ok", "ok"}
}

// sheet is a table as the page shows it.
type sheet struct {
	Title   string
	Columns []string
	Rows    [][]cell
	Notes   []string
}

// Summary is the table of the figures, nil if there are none.
func (v *view) Summary() *sheet {
	if len(v.Figures) == 0 {
		return nil
	}
	s := newSheet(v.grid())
	s.Title, s.Notes = v.Title, v.note(nil)
	for i, f := range v.Figures {
		row := s.Rows[i]
		row[len(row)-1] = f.mustCell()
	}
	return &s
}

// Sheets are the other tables.
func (v *view) Sheets() []sheet {
	var sheets []sheet
	for _, t := range v.others() {
		sheets = append(sheets, newSheet(t))
	}
	return sheets
}

func newSheet(t Table) sheet {
	s := sheet{Title: t.Title, Columns: t.Columns, Notes: t.Notes}
	for _, row := range t.Rows {
		var cells []cell
		for _, text := range row {
			cells = append(cells, cell{Text: text})
		}
		s.Rows = append(s.Rows, cells)
	}
	return s
}
