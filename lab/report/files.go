// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// WriteCSV writes every table, then the numbers behind each chart, the figures
// last with a column each for median, minimum, maximum and number of samples.
// Tables are separated by a record with the title alone.
func (r *Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	tables := slices.Clone(r.Tables)
	for i := range r.Charts {
		tables = append(tables, r.Charts[i].table())
	}
	for _, t := range tables {
		_ = c.Write([]string{t.Title})
		_ = c.Write(t.Columns)
		_ = c.WriteAll(t.Rows)
	}
	if len(r.Figures) > 0 {
		_ = c.Write([]string{r.Title})
		head := []string{"figure", "unit"}
		for _, who := range []string{"published", cmp.Or(r.Peer, "peer"), "Isthmus"} {
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
			cells = append(cells, number(x))
		}
		cells = append(cells, strconv.Itoa(len(v.Samples)))
	}
	return append(cells, f.ratioText(), f.mustText(), strconv.FormatBool(f.Missed()))
}

// WriteFiles writes into a folder, which it makes if need be: EXPERIMENT.json,
// .csv and .html, EXPERIMENT.svg with the figures, and EXPERIMENT-NAME.svg for
// each chart.
func (r *Report) WriteFiles(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("the folder for results cannot be made: %w", err)
	}
	forms := map[string]func(io.Writer) error{".json": r.WriteJSON, ".csv": r.WriteCSV, ".html": r.WriteHTML}
	if c, ok := r.summary(); ok {
		forms[".svg"] = c.WriteSVG
	}
	for i := range r.Charts {
		forms["-"+r.Charts[i].Name+".svg"] = r.Charts[i].WriteSVG
	}
	for ending, write := range forms {
		if err := writeFile(filepath.Join(dir, r.Experiment+ending), write); err != nil {
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
