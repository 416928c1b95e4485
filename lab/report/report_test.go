// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func sample() *Report {
	return &Report{
		Experiment: "demo",
		Title:      "Demo",
		Tables:     []Table{{Title: "Grid", Columns: []string{"from \\ to", "a"}, Rows: [][]string{{"a", "9/9"}, {"long name", "0/9"}}}},
		Peer:       "Miredo",
		Figures: []Figure{
			{Name: "start", Unit: "ms", Decimals: 1, Published: None("44 to 53"), Peer: Milliseconds(50*time.Millisecond, 40*time.Millisecond),
				Isthmus: Measured(10, 12, 50), Must: &Must{Bound: 20}},
			{Name: "pairs", Published: Measured(19), Peer: Measured(13), Isthmus: Measured(16), Must: &Must{AtLeast: true, Bound: 17}},
			{Name: "rate", Unit: "Mbit/s", Peer: None("needs root"), Isthmus: Measured(7)},
		},
		Notes:   []string{"A note."},
		Machine: "paper.",
	}
}

func TestText(t *testing.T) {
	var b strings.Builder
	if err := sample().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	want := `
Grid
from \ to    a
---------  ---
a          9/9
long name  0/9


Demo
figure        published               Miredo              Isthmus  Isthmus / Miredo        must
------------  ---------  -------------------  -------------------  ----------------  ----------
start, ms      44 to 53  45.0 (40.0 to 50.0)  12.0 (10.0 to 50.0)              0.27       <= 20
pairs                19                   13                   16              1.23  >= 17 MISS
rate, Mbit/s          -           needs root                    7                 -
A note.
Measured: paper.

MISS: pairs is 16, must be >= 17
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("text differs (-want +got):\n%s", diff)
	}
}

func TestEmptyColumnsAreLeftOut(t *testing.T) {
	r := &Report{Peer: "Miredo", Figures: []Figure{{Name: "ratio", Isthmus: Measured(2), Must: &Must{Bound: 3}}}}
	want := Table{Columns: []string{"figure", "Isthmus", "must"}, Rows: [][]string{{"ratio", "2", "<= 3"}}}
	if diff := cmp.Diff(want, r.grid()); diff != "" {
		t.Errorf("table differs (-want +got):\n%s", diff)
	}
	r.Figures = append(r.Figures, Figure{Name: "x", Peer: None("needs root"), Isthmus: Measured(1)})
	if got := r.grid().Columns; len(got) != 4 || got[1] != "Miredo" {
		t.Errorf("the columns are %q; the reason why the peer is absent must stay", got)
	}
}

func TestColourOnlyWhenPainted(t *testing.T) {
	p := printer{colour: true}
	p.table(sample().grid())
	if !strings.Contains(p.text.String(), red+missMark+plain) {
		t.Errorf("no red mark in %q", p.text.String())
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if onTerminal(f) {
		t.Error("a file counts as a terminal")
	}
}

func TestMissIsJudgedAsPrinted(t *testing.T) {
	for _, c := range []struct {
		situation string
		figure    Figure
		want      bool
	}{
		{"prints as the bound", Figure{Decimals: 1, Isthmus: Measured(3.04), Must: &Must{Bound: 3}}, false},
		{"prints above the bound", Figure{Decimals: 1, Isthmus: Measured(3.06), Must: &Must{Bound: 3}}, true},
		{"below a lower bound", Figure{Isthmus: Measured(16), Must: &Must{AtLeast: true, Bound: 17}}, true},
		{"on a lower bound", Figure{Isthmus: Measured(17), Must: &Must{AtLeast: true, Bound: 17}}, false},
		{"below a range", Figure{Decimals: 1, Isthmus: Measured(-0.2), Must: &Must{AtLeast: true, Bound: -0.1, Most: 0.1}}, true},
		{"within a range", Figure{Decimals: 1, Isthmus: Measured(0), Must: &Must{AtLeast: true, Bound: -0.1, Most: 0.1}}, false},
		{"above a range", Figure{Decimals: 1, Isthmus: Measured(0.2), Must: &Must{AtLeast: true, Bound: -0.1, Most: 0.1}}, true},
		{"not measured", Figure{Must: &Must{Bound: 3}}, false},
		{"no must", Figure{Isthmus: Measured(1e9)}, false},
	} {
		t.Run(c.situation, func(t *testing.T) {
			if got := c.figure.Missed(); got != c.want {
				t.Errorf("missed is %v, want %v", got, c.want)
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	missed := sample()
	wrong := sample()
	wrong.Fault("%d of 9 lost", 2)
	good := &Report{}
	for _, c := range []struct {
		situation string
		report    *Report
		strict    bool
		want      error
	}{
		{"a figure missed", missed, false, nil},
		{"a figure missed, strict", missed, true, ErrMissed},
		{"a fault", wrong, false, ErrWrong},
		{"a fault, strict", wrong, true, ErrWrong},
		{"nothing wrong, strict", good, true, nil},
	} {
		t.Run(c.situation, func(t *testing.T) {
			if err := c.report.Verdict(c.strict); !errors.Is(err, c.want) {
				t.Errorf("verdict is %v, want %v", err, c.want)
			}
		})
	}
}

func TestFilesHoldTheFigures(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	if err := sample().WriteFiles(dir); err != nil {
		t.Fatal(err)
	}
	read := func(ending string) string {
		b, err := os.ReadFile(filepath.Join(dir, "demo."+ending))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}

	var decoded struct {
		Figures []struct {
			Isthmus struct{ Median, Min, Max float64 }
		}
		Missed []string
	}
	if err := json.Unmarshal([]byte(read("json")), &decoded); err != nil {
		t.Fatal(err)
	}
	if got := decoded.Figures[0].Isthmus; got.Median != 12 || got.Min != 10 || got.Max != 50 {
		t.Errorf("JSON holds %+v", got)
	}
	if len(decoded.Missed) != 1 {
		t.Errorf("JSON names %v as missed", decoded.Missed)
	}

	c := csv.NewReader(strings.NewReader(read("csv")))
	c.FieldsPerRecord = -1
	records, err := c.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pairs", "", "19", "19", "19", "1", "13", "13", "13", "1", "16", "16", "16", "1", "1.23", ">= 17", "true"}
	if diff := cmp.Diff(want, records[len(records)-2]); diff != "" {
		t.Errorf("CSV record differs (-want +got):\n%s", diff)
	}
	html, svg := read("html"), read("svg")
	if !strings.Contains(html, `<td>&gt;= 17 <span class="mark missed">MISS</span></td>`) {
		t.Errorf("HTML lacks the mark:\n%s", html)
	}
	if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil {
		t.Errorf("the chart is no XML: %v\n%s", err, svg)
	}
}
