// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// WriteJSON writes the whole report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		*Report
		Missed []string `json:"missed,omitempty"`
	}{r, r.Missed()})
}

// WriteCSV writes every table, the figures last with a column each for median,
// minimum, maximum and number of samples. Tables are separated by a record
// with the title alone.
func (r *Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	for _, t := range r.Tables {
		_ = c.Write([]string{t.Title})
		_ = c.Write(t.Columns)
		_ = c.WriteAll(t.Rows)
	}
	if len(r.Figures) > 0 {
		_ = c.Write([]string{r.Title})
		head := []string{"figure", "unit"}
		for _, who := range []string{"published", r.Peer, "Isthmus"} {
			head = append(head, who+" median", who+" min", who+" max", who+" samples")
		}
		_ = c.Write(append(head, "ratio", "must", "missed"))
		for _, f := range r.Figures {
			_ = c.Write(f.record())
		}
	}
	c.Flush()
	return c.Error() // also that of the writes above
}

func (f Figure) record() []string {
	cells := []string{f.Name, f.Unit}
	for _, v := range []Value{f.Published, f.Peer, f.Isthmus} {
		if !v.Known() {
			cells = append(cells, v.Absent, "", "", "0")
			continue
		}
		for _, x := range []float64{v.Median(), slices.Min(v.Samples), slices.Max(v.Samples)} {
			cells = append(cells, strconv.FormatFloat(x, 'g', 6, 64))
		}
		cells = append(cells, strconv.Itoa(len(v.Samples)))
	}
	return append(cells, f.ratioText(), f.mustText(), strconv.FormatBool(f.Missed()))
}

// page needs nothing but itself, so that it can be sent as one file.
var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Title}}</title><style>
body{font:16px/1.4 sans-serif;max-width:70em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse}th,td{padding:.2em .8em;text-align:right;border-bottom:1px solid #ccc}
th:first-child,td:first-child{text-align:left}.bad{color:#b00}
</style></head><body><h1>{{.Title}}</h1>
{{.Chart}}
{{range .Tables}}<h2>{{.Title}}</h2>
<table><tr>{{range .Columns}}<th>{{.}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table>
{{range .Notes}}<p>{{.}}</p>
{{end}}{{end}}{{range .Faults}}<p class="bad">WRONG: {{.}}</p>
{{end}}{{range .Missed}}<p class="bad">MISS: {{.}}</p>
{{end}}</body></html>
`))

// WriteHTML writes one self-contained page.
func (r *Report) WriteHTML(w io.Writer) error {
	var chart strings.Builder
	if err := r.WriteSVG(&chart); err != nil {
		return err
	}
	return page.Execute(w, struct {
		Title          string
		Chart          template.HTML // from a template that escapes
		Tables         []Table
		Faults, Missed []string
	}{r.Title, template.HTML(chart.String()), r.all(), r.Faults, r.Missed()})
}

// WriteFiles writes EXPERIMENT.json, .csv, .svg and .html into a folder, which it
// makes if need be.
func (r *Report) WriteFiles(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("the folder for results cannot be made: %w", err)
	}
	for _, form := range []struct {
		ending string
		write  func(io.Writer) error
	}{{"json", r.WriteJSON}, {"csv", r.WriteCSV}, {"svg", r.WriteSVG}, {"html", r.WriteHTML}} {
		if err := writeFile(filepath.Join(dir, r.Experiment+"."+form.ending), form.write); err != nil {
			return fmt.Errorf("the results cannot be written: %w", err)
		}
	}
	return nil
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
